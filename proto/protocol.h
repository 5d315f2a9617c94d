/*
 * protocol.h: every message, by name, in one place. JSON-RPC 2.0, one object per line.
 *
 * Between gpt2ctl and gpt2d (Unix socket): requests with an id; "hello" first. Between gpt2d and an
 * engine rank (socketpair, fd 3 of the engine): notifications both ways; "engine.hello" first.
 * proto/gpt2d-protocol.7.in shows an example of each.
 */
#ifndef GPT2D_PROTO_PROTOCOL_H
#define GPT2D_PROTO_PROTOCOL_H

#include <stdint.h>

enum { PROTOCOL_VERSION = 1 };

/* Longest line: what a client may send; what gpt2d and an engine may send. */
enum {
	PROTOCOL_CLIENT_LINE_MAX = 2 << 20,
	PROTOCOL_LINE_MAX = 16 << 20,
};

/* Of a run: from -PROTOCOL_PRIORITY_MAX to it; 0 when none is given. */
enum { PROTOCOL_PRIORITY_MAX = 100 };

/* Bytes of a file in a reply. */
enum { PROTOCOL_ARTIFACT_PIECE = 256 << 10 };

/*
 * ---- requests of a client; params -> result ----
 *
 * A member marked ? may be absent. Times are UTC texts ("2026-01-08T19:50:57.123Z") or null. A run,
 * wherever one is sent, is
 *   {id, name, uid, state, reason, priority, rerun_of, gpus, segments, segments_done, attempt,
 *    restart, kept, timeout_s, spec_sha256, submitted_at, started_at, ended_at, dir}
 * with state one of queued, starting, running, finishing, done, failed, cancelled, interrupted, and
 * reason null or "code: text" ("engine_lost: rank 1 killed by signal 9"). Progress, wherever it is
 * sent, is null or
 *   {segment, segments, block, arm, step, steps, loss, tokens_per_sec, step_time_ns, eta_s}
 * with segments and blocks counted from 0, steps from 1. Priorities are -100 to 100, of two queued
 * runs the one with the higher priority starts first, of equals the one with the lower id; rerun_of
 * is the id of the run whose spec was submitted again, or null. An outlook is null for a run that
 * is not queued, else
 *   {position, waiting, starts_in_s}
 * with position the queued runs that start before it, waiting "code: text" (codes: waiting.h), and
 * starts_in_s a number or null. A hold is null or {since, uid, reason}, reason null when none was
 * given.
 */

/*
 * {protocol, build?, client?} -> {protocol, build, version, pid, started_at, uid, engine, ranks,
 * cancel_timeout_s}. pid and started_at tell one start of gpt2d from another: events, and messages
 * of no run, are numbered anew with each. cancel_timeout_s: how long the answer to "cancel" may
 * wait for a step's end.
 */
#define METHOD_HELLO "hello"
/*
 * {spec: its text, priority?, rerun_of?} -> {id, name, state, spec_sha256, segments,
 * position, waiting}; waiting as in an outlook. PROTOCOL_STORE, _INTERNAL and _BUSY have data
 * {queued: false}.
 */
#define METHOD_SUBMIT "submit"
/*
 * {spec: its text} -> {spec, spec_sha256, segments, order: [{block, position, arm}],
 * arms: [{arm, spec_sha256, check}]}
 */
#define METHOD_DRY_RUN "dry-run"
/*
 * {} -> {daemon: {pid, uid, version, build, state, uptime_s, cpu_s, rss_bytes, socket, state_dir,
 * clients}, host: {processors, load_1m, memory_bytes, memory_available_bytes, memory_limit_bytes
 * (of gpt2d's control group)}, store: null or, while it is failing, {path, errno, error, since,
 * advice}, engine: {state, reason, program, device, device_why, threads, restarts,
 * starting_s, ready_after_s, retry_in_s, idle: null or, where idle_release ended them, {since,
 * after_s}, ranks: [{rank, pid, state, device, gpu, cpu_s, rss_bytes}]}, running: null or {run,
 * progress, stopping}, waiting (of the head of the queue), queued, queue: [{id, name, uid,
 * priority} and its outlook] (the first 100), drained: hold, released: hold, counts: {state: n}}.
 * cpu_s is processor time since the process began; gpu: what the rank's last engine.alive told of
 * it, else null; engine's device: cpu, cuda, or engine (the program was named); device_why: why
 * "auto" took it, else null; stopping: why the run is being ended, else null.
 */
#define METHOD_STATUS "status"
/*
 * {id, after?, limit?} -> {run, spec, checks: [{arm, spec_sha256, check}], segments: [{segment,
 * block, position, arm, state, reason, started_at, ended_at, dir, summary, artifacts}],
 * transitions: [{at, state, reason}], progress, outlook, next}; pages as of list
 */
#define METHOD_SHOW "show"
/*
 * {after?, limit?, state?, newest?} -> {runs: [run], next}; pages end after 1 to 2 MiB as well.
 */
#define METHOD_LIST "list"
/*
 * {id, after?} -> {run, progress, outlook, store, seq, first}; then events until run.done. store as
 * in status: while it is an object, an end of the run is not on disk, and run.done comes later
 */
#define METHOD_FOLLOW "follow"
/*
 * The files of a run, of its latest attempt; pages end with a segment.
 * {id, segment?, after?, limit?} -> {id, name, state, reason, dir, files: [{path, segment,
 * bytes, announced, sha256}], missing: [{path, segment, bytes}], left_out, next}
 */
#define METHOD_ARTIFACTS "artifacts"
/* {id, path, offset?, bytes?} -> {id, path, offset, bytes, size, data (base64)} */
#define METHOD_ARTIFACT_READ "artifact-read"
/*
 * What was said of a run; without id, what gpt2d said of itself (id, name and state are null then).
 * {id?, after?, limit?, level?} -> {id, name, state, lines: [{n, at, rank (null: gpt2d), level,
 * message}], dropped, next, more, open}
 */
#define METHOD_LOGS "logs"
/* {} -> {text: in OpenMetrics' format} */
#define METHOD_METRICS "metrics"
/*
 * Remove ended runs to which all that is given applies, at least one of the first three; of others
 * than one's own admins only.
 * {keep?, older_than_s?, state?, dry_run?, forget?, after?, limit?} -> {runs: [{id, name, state,
 * ended_at, bytes}], bytes, dry_run, left: [{id, name, dir}] of those that stay for their folders
 * are not there and forget was not given, next}
 */
#define METHOD_PRUNE "prune"
#define PROTOCOL_OLDER_S_MAX INT64_C(9223372036) /* as nanoseconds in 64 bits */
/* {id, kept? (true)} -> {id, kept} */
#define METHOD_KEEP "keep"
/*
 * {id, queued?} -> {id, state, already}; the answer comes when it is true and durable: state
 * "cancelled" and already false, or the run had ended, or nearly, before the engines heard of it.
 * PROTOCOL_STORE: it is cancelled, but not on disk. queued: leave it alone when it has begun.
 */
#define METHOD_CANCEL "cancel"
/* {id, priority} -> {id, name, state, priority, before, outlook} */
#define METHOD_PRIORITY "priority"
/*
 * What follows answers {drained: hold, released: hold, already, running: id or null, stopping (that
 * run: it is being cancelled or interrupted), queued, engine: its state, took_s}; with wait only
 * when it has come about.
 */
/* {reason?, wait?} start no more runs; wait: until the one in progress has ended */
#define METHOD_DRAIN "drain"
/* {} start runs again */
#define METHOD_RESUME "resume"
/* {reason?, wait?, now?} end the engines, after the run in progress, or now: it is interrupted */
#define METHOD_RELEASE "release"
/* {wait?} take the engines again; wait: until they are ready */
#define METHOD_WARM "warm"
/* {now?} -> {running: id or null, stopping: whether that is being stopped} */
#define METHOD_SHUTDOWN "shutdown"
/* {} -> {protocol, build, version, libraries: {name: version}} */
#define METHOD_VERSION "version"

/*
 * ---- events of a followed run: {id, seq, at, ...} ----
 *
 * seq counts per run from 1 and grows by one from event to event; a gap means that events were
 * dropped for this follower. It starts anew when gpt2d does, and once the run has ended.
 */

/* {state, reason}; the state of before once more where an end is not on disk yet: reason says so */
#define EVENT_STATE "run.state"
/*
 * {segment, segments, block, position, arm, state, reason, summary?}; summary without long arrays
 */
#define EVENT_SEGMENT "run.segment"
/* progress; coalesced, at most ten in a second */
#define EVENT_STEP "run.step"
/* {segment, path, bytes} */
#define EVENT_ARTIFACT "run.artifact"
/* {rank, level, message} what an engine, or gpt2d (rank null), had to say of the run */
#define EVENT_LOG "run.log"
/*
 * {store: null or as in status} the store cannot be written, and the run's end not told therefore;
 * null: it can be again
 */
#define EVENT_STORE "run.store"
/* {state, reason, dir, dropped} the last one */
#define EVENT_DONE "run.done"

/*
 * ---- gpt2d -> engine ----
 *
 * An engine is started as PROGRAM --role rank --rank R --ranks N --threads T, or PROGRAM --role
 * check, or PROGRAM --role connect --rank R --ranks N. Its fd 3 is the link, its stdin is empty,
 * what it prints goes to gpt2d's log. It trains one segment at a time: the next segment.start comes
 * after segment.trained (rank 0), segment.failed or segment.cancelled of the one before. dir is
 * absolute, exists, and is the segment's own. T is at most PROTOCOL_THREADS_MAX.
 */
enum { PROTOCOL_THREADS_MAX = 1024 };

/* {addresses: [..]} of all ranks, rank order; also when there is one rank */
#define ENGINE_CONNECT "engine.connect"
/* {} end in good order */
#define ENGINE_EXIT "engine.exit"
/*
 * {run, segment, segments, arm, block, position, attempt, world, dir, spec: the run's canonical
 * text, spec_sha256 (of that text), data_roots: [folder], data?: {path: as in this run's first
 * segment.started}} to the first `world` ranks
 */
#define SEGMENT_START "segment.start"
/* {run, segment} */
#define SEGMENT_CANCEL "segment.cancel"
/*
 * {token, world (all ranks), spec: the canonical text, arm, data_roots: [folder], progress?: of
 * check.turn} to a process with role check
 */
#define CHECK_REQUEST "check"

/* ---- engine -> gpt2d ---- */

/* {protocol, build?, role, rank, pid, address?, device?: {...}} role connect: no device */
#define ENGINE_HELLO "engine.hello"
/* {} connected and warm; role check: after engine.hello, nothing to connect */
#define ENGINE_READY "engine.ready"
/*
 * {gpu?: {utilization (0 to 1), memory_used_bytes, memory_total_bytes, temperature_c, power_w,
 * other_processes: that compute on it, beside the engines}} at least every second while idle or
 * busy; null is what the driver does not say
 */
#define ENGINE_ALIVE "engine.alive"
/* {level: debug|info|warning|error, message} */
#define ENGINE_LOG "engine.log"
/*
 * {run, segment, init_ns, switch_ns?, data: {path: {dev, ino, bytes, modified_ns}} of the token
 * files} rank 0: parameters are initialised
 */
#define SEGMENT_STARTED "segment.started"
/* {run, segment, step (from 1), steps, loss, tokens_per_sec, step_time_ns} rank 0 */
#define SEGMENT_STEP "segment.step"
/* {run, segment, path, bytes} rank 0 */
#define SEGMENT_ARTIFACT "segment.artifact"
/* {run, segment} rank 0: work done, artifacts being written; another may start */
#define SEGMENT_TRAINED "segment.trained"
/* {run, segment, summary: {...}} rank 0: artifacts are durable, marker last */
#define SEGMENT_DONE "segment.done"
/*
 * {run, segment, reason, message, poisoned} any rank; reason is a code in lower case; "peer_lost"
 * yields to what happened to the peer
 */
#define SEGMENT_FAILED "segment.failed"
/* {run, segment, step} rank 0; nothing when it was trained already */
#define SEGMENT_CANCELLED "segment.cancelled"
/*
 * {token, progress} in place of check.reply: its files are large and not read to their end; to be
 * asked again, which goes on there
 */
#define CHECK_TURN "check.turn"
/* {token, ok, errors: [{key, message}], check: {...}} */
#define CHECK_REPLY "check.reply"

/* ---- exit codes of an engine ---- */
enum engine_exit {
	ENGINE_EXIT_OK = 0,
	ENGINE_EXIT_OUTPUT = 1, /* what it was to print, and nothing else, could not be written */
	ENGINE_EXIT_USAGE = 2,
	ENGINE_EXIT_PEER_LOST = 70, /* a collective timed out or a peer went away */
	ENGINE_EXIT_POISONED = 71,  /* the device is in a state that only a new process mends */
	ENGINE_EXIT_ORPHAN = 72,    /* gpt2d went away */
	ENGINE_EXIT_BOOTSTRAP = 73, /* ranks could not reach each other, or no room for that */
	ENGINE_EXIT_STARVED = 74,   /* no thread could be started: starved.h */
};

/* ---- error codes of replies, beyond JSON-RPC's own ---- */
enum protocol_error {
	PROTOCOL_PARSE_ERROR = -32700,
	PROTOCOL_INVALID_REQUEST = -32600,
	PROTOCOL_METHOD_NOT_FOUND = -32601,
	PROTOCOL_INVALID_PARAMS = -32602,
	PROTOCOL_INTERNAL = -32603,
	PROTOCOL_VERSION_MISMATCH = -32001,
	PROTOCOL_SPEC_REFUSED = -32002, /* data: {errors: [{line, column, key, message}]} */
	PROTOCOL_NO_SUCH_RUN = -32003,
	PROTOCOL_NOT_ALLOWED = -32004,
	PROTOCOL_BUSY = -32005,  /* too many clients, stopping, what was waited for will not be */
	PROTOCOL_STORE = -32006, /* could not be made durable */
	PROTOCOL_NO_SUCH_FILE = -32007,
	PROTOCOL_WRONG_STATE = -32008, /* of the run, for what is asked */
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
	CTL_NOT_ALLOWED = 9,
	CTL_NOT_NOW = 10,      /* later perhaps */
	CTL_GPT2D_FAILED = 11, /* or its checker */
	CTL_WRONG_STATE = 12,  /* of the run, for what is asked */
	CTL_DECLINED = 13,     /* by whom was asked on the terminal */
	CTL_TIMEOUT = 124,
	CTL_UNREAD = 141, /* stdout's reader went away; what shells show for SIGPIPE */
};

#endif
