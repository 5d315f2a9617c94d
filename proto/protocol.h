/*
 * protocol.h: every message, by name, in one place. JSON-RPC 2.0, one object per line.
 *
 * Between gpt2ctl and gpt2d (Unix socket): requests with an id; "hello" first. Between gpt2d and an engine
 * rank (socketpair, fd 3 of the engine): notifications both ways; "engine.hello" first.
 * proto/protocol.7 shows an example of each.
 */
#ifndef GPT2D_PROTOCOL_H
#define GPT2D_PROTOCOL_H

enum { PROTOCOL_VERSION = 1 };

/* Longest line: what a client may send; what gpt2d and an engine may send. */
enum {
	PROTOCOL_CLIENT_LINE_MAX = 2 << 20,
	PROTOCOL_LINE_MAX = 16 << 20,
};

/* ---- requests of a client; params → result ---- */
#define METHOD_HELLO    "hello"    /* {protocol, build?, client?} → {protocol, build, pid, uid, engine, ranks} */
#define METHOD_SUBMIT   "submit"   /* {spec: {...}} → {id, name, state, spec_sha256, segments} */
#define METHOD_DRY_RUN  "dry-run"  /* {spec: {...}} → {spec, spec_sha256, arms: [check]} */
#define METHOD_STATUS   "status"   /* {} → {daemon, engine: {state, ranks: [...]}, running?, queued, counts} */
#define METHOD_SHOW     "show"     /* {id} → {run, segments: [...], transitions: [...]} */
#define METHOD_LIST     "list"     /* {after?, limit?, state?} → {runs: [run], next?} */
#define METHOD_FOLLOW   "follow"   /* {id, after?} → {run, seq}; then event notifications until run.done */
#define METHOD_CANCEL   "cancel"   /* {id} → {id, state, already} */
#define METHOD_SHUTDOWN "shutdown" /* {now?} → {} */
#define METHOD_VERSION  "version"  /* {} → {protocol, build, version, libraries} */

/* ---- events of a followed run: {id, seq, at, ...}; seq counts per run, a gap means events were dropped ---- */
#define EVENT_STATE    "run.state"    /* {state, reason?, segment?} */
#define EVENT_SEGMENT  "run.segment"  /* {segment, segments, block, arm, state, summary?} */
#define EVENT_STEP     "run.step"     /* {segment, segments, arm, step, steps, loss, tokens_per_sec, step_time_ns} coalesced */
#define EVENT_ARTIFACT "run.artifact" /* {segment, path, bytes} */
#define EVENT_DONE     "run.done"     /* {state, reason?, dir, dropped} the last one */

/* ---- gpt2d → engine ---- */
#define ENGINE_CONNECT "engine.connect" /* {addresses: [..]} of all ranks, rank order */
#define ENGINE_EXIT    "engine.exit"    /* {} end in good order */
#define SEGMENT_START  "segment.start"  /* {run, segment, segments, name, arm, block, dir, spec: {...} of one arm, spec_sha256, ...} */
#define SEGMENT_CANCEL "segment.cancel" /* {run, segment} */
#define CHECK_REQUEST  "check"          /* {token, spec: {...} of one arm} to a process with role check */

/* ---- engine → gpt2d ---- */
#define ENGINE_HELLO     "engine.hello"     /* {protocol, build, role, rank, pid, address?, device: {...}} */
#define ENGINE_READY     "engine.ready"     /* {} connected and warm */
#define ENGINE_ALIVE     "engine.alive"     /* {} at least every second while idle or busy */
#define ENGINE_LOG       "engine.log"       /* {level, message} */
#define SEGMENT_STARTED  "segment.started"  /* {run, segment, init_ns, switch_ns?} rank 0: parameters are initialised */
#define SEGMENT_STEP     "segment.step"     /* {run, segment, step, steps, loss, tokens_per_sec, step_time_ns} rank 0 */
#define SEGMENT_ARTIFACT "segment.artifact" /* {run, segment, path, bytes} rank 0 */
#define SEGMENT_TRAINED  "segment.trained"  /* {run, segment} rank 0: work done, artifacts being written; another may start */
#define SEGMENT_DONE     "segment.done"     /* {run, segment, summary} rank 0: artifacts are durable, marker last */
#define SEGMENT_FAILED   "segment.failed"   /* {run, segment, reason, message, poisoned} any rank */
#define SEGMENT_CANCELLED "segment.cancelled" /* {run, segment, step} rank 0 */
#define CHECK_REPLY      "check.reply"      /* {token, ok, errors: [..], check: {...}} */

/* ---- exit codes of an engine ---- */
enum engine_exit {
	ENGINE_EXIT_OK = 0,
	ENGINE_EXIT_USAGE = 2,
	ENGINE_EXIT_PEER_LOST = 70, /* a collective timed out or a peer went away */
	ENGINE_EXIT_POISONED = 71,  /* the device is in a state that only a new process mends */
	ENGINE_EXIT_ORPHAN = 72,    /* gpt2d went away */
	ENGINE_EXIT_BOOTSTRAP = 73, /* ranks could not reach each other */
};

/* ---- error codes of replies, beyond JSON-RPC's own ---- */
enum protocol_error {
	PROTOCOL_PARSE_ERROR = -32700,
	PROTOCOL_INVALID_REQUEST = -32600,
	PROTOCOL_METHOD_NOT_FOUND = -32601,
	PROTOCOL_INVALID_PARAMS = -32602,
	PROTOCOL_INTERNAL = -32603,
	PROTOCOL_VERSION_MISMATCH = -32001,
	PROTOCOL_SPEC_REFUSED = -32002,  /* data: {errors: [{line, key, message}]} */
	PROTOCOL_NO_SUCH_RUN = -32003,
	PROTOCOL_NOT_ALLOWED = -32004,
	PROTOCOL_BUSY = -32005,          /* too many clients, shutting down */
	PROTOCOL_STORE = -32006,         /* could not be made durable */
};

/* ---- exit codes of gpt2ctl ---- */
enum ctl_exit {
	CTL_OK = 0,
	CTL_TRANSPORT = 1,
	CTL_USAGE = 2, /* or the spec was refused */
	CTL_NO_DAEMON = 3,
	CTL_RUN_FAILED = 4,
	CTL_GATE_FAILED = 5,
	CTL_CANCELLED = 6, /* or interrupted */
	CTL_NO_SUCH_RUN = 7,
	CTL_VERSION_MISMATCH = 8,
	CTL_TIMEOUT = 124,
};

#endif
