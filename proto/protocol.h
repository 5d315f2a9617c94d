/*
 * protocol.h: the names of all messages. JSON-RPC 2.0, one object per line.
 *
 * Between gpt2ctl and gpt2d (Unix socket): requests with an id; "hello" first. Between gpt2d and an
 * engine rank (socketpair, fd 3 of the engine): notifications both ways; "engine.hello" first.
 * proto/gpt2d-protocol.7.in has an example of each.
 */
#ifndef GPT2D_PROTO_PROTOCOL_H
#define GPT2D_PROTO_PROTOCOL_H

#include <stdint.h>

enum { PROTOCOL_VERSION = 1 };

/* Longest line from a client; longest line from gpt2d or an engine. */
enum {
	PROTOCOL_CLIENT_LINE_MAX = 2 << 20,
	PROTOCOL_LINE_MAX = 16 << 20,
};

/* Priority of a run: from -PROTOCOL_PRIORITY_MAX to this; default 0. */
enum { PROTOCOL_PRIORITY_MAX = 100 };

/* Limits of a request "generate": tokens of the prompt, and tokens to add. */
enum { PROTOCOL_PROMPT_MAX = 65536 };

/* Bytes of a file in a reply. */
enum { PROTOCOL_ARTIFACT_PIECE = 256 << 10 };

/*
 * ---- requests of a client ----
 *
 * The members of every message are rows of proto/schema/schema_messages.c. From them the build
 * makes gpt2d-protocol(7) and messages.schema.json, and the tests check every message that they
 * receive. Times are UTC texts ("2026-01-08T19:50:57.123Z"). Steps count from 1.
 */
#define METHOD_HELLO         "hello"         /* the first request of a connection */
#define METHOD_SUBMIT        "submit"        /* queue a run */
#define METHOD_DRY_RUN       "dry-run"       /* check a spec; nothing is queued */
#define METHOD_STATUS        "status"        /* state of gpt2d, its engines and its queue */
#define METHOD_SHOW          "show"          /* a run with its arms, segments and transitions */
#define METHOD_LIST          "list"          /* runs by ID */
#define METHOD_FOLLOW        "follow"        /* send the events of a run until it ends */
#define METHOD_ARTIFACTS     "artifacts"     /* files of the latest attempt of a run */
#define METHOD_ARTIFACT_READ "artifact-read" /* a piece of a file */
#define METHOD_CHECKPOINT    "checkpoint"    /* where the newest checkpoint of a run is */
#define METHOD_GENERATE      "generate"      /* continue a text with a run's weights */
#define METHOD_LOGS          "logs"          /* messages of a run, or without id of gpt2d itself */
#define METHOD_METRICS       "metrics"       /* figures for a monitoring system */
#define METHOD_TOPO          "topo"          /* how each node is built */
#define METHOD_PRUNE         "prune"         /* remove ended runs */
#define METHOD_KEEP          "keep"          /* protect a run from pruning */
#define METHOD_CANCEL        "cancel"        /* end a run */
#define METHOD_PRIORITY      "priority"      /* move a queued run */
#define METHOD_DRAIN         "drain"         /* start no more runs */
#define METHOD_RESUME        "resume"        /* start runs again */
/* end the engines after the run in progress and keep the queue */
#define METHOD_RELEASE  "release"
#define METHOD_WARM     "warm"     /* start the engines */
#define METHOD_SHUTDOWN "shutdown" /* end gpt2d after the run in progress */
#define METHOD_VERSION  "version"  /* versions of gpt2d and its libraries */

#define PROTOCOL_OLDER_S_MAX INT64_C(9223372036) /* as nanoseconds in 64 bits */

/*
 * ---- events of a followed run ----
 *
 * seq counts per run from 1 and grows by one from event to event; a gap means that events were
 * dropped for this follower. It begins at 1 again when gpt2d restarts, and once the run has ended.
 */
/* the run has another state */
#define EVENT_STATE   "run.state"
#define EVENT_SEGMENT "run.segment" /* a segment has another state */
#define EVENT_BLOCK   "run.block"   /* a block has ended: the comparison so far */
/* a step is done; at most ten such events in a second */
#define EVENT_STEP     "run.step"
#define EVENT_ARTIFACT "run.artifact" /* a file is written */
#define EVENT_LOG      "run.log"      /* a message of an engine or of gpt2d about the run */
/* gpt2d cannot write the store, so it reports no end of the run; or it can write again */
#define EVENT_STORE "run.store"
#define EVENT_DONE  "run.done" /* the last event: how the run ended */

/*
 * ---- gpt2d to an engine ----
 *
 * gpt2d starts an engine as PROGRAM --role rank --rank R --ranks N --threads T, or with another
 * role. Its fd 3 is the link, its stdin is empty, and its output goes to gpt2d's log. It trains one
 * segment at a time: the next segment.start comes after segment.trained (rank 0), segment.failed or
 * segment.cancelled of the previous one. T is at most PROTOCOL_THREADS_MAX.
 */
enum { PROTOCOL_THREADS_MAX = 1024 };

#define ENGINE_CONNECT "engine.connect" /* addresses of all ranks, also if there is only one */
#define ENGINE_EXIT    "engine.exit"    /* end in good order */
#define SEGMENT_START  "segment.start"  /* train a segment; sent to the first world ranks */
#define SEGMENT_CANCEL "segment.cancel" /* end the segment in progress */
/*
 * Continue a text; to rank 0, between segments. segment.cancel with this run and segment 0 ends it.
 */
#define GENERATE_START "generate.start"
#define CHECK_REQUEST  "check" /* check a spec; to a process with role check */

/* ---- an engine to gpt2d ---- */

#define ENGINE_HELLO     "engine.hello"     /* the first message of a process */
#define ENGINE_READY     "engine.ready"     /* connected and warm */
#define ENGINE_ALIVE     "engine.alive"     /* at least once a second */
#define ENGINE_LOG       "engine.log"       /* a message for the log */
#define ENGINE_TOPOLOGY  "engine.topology"  /* local rank 0: how its node is built */
#define SEGMENT_STARTED  "segment.started"  /* Rank 0: the parameters are initialised */
#define SEGMENT_STEP     "segment.step"     /* Rank 0: a step is done */
#define SEGMENT_ARTIFACT "segment.artifact" /* Rank 0: a file is written */
/* Rank 0: the work is done, files are being written, the next segment may start */
#define SEGMENT_TRAINED "segment.trained"
#define SEGMENT_DONE    "segment.done"   /* Rank 0: all files are durable, the marker last */
#define SEGMENT_FAILED  "segment.failed" /* any rank */
/* Rank 0; not sent for a segment that is already trained */
#define SEGMENT_CANCELLED "segment.cancelled"
#define GENERATE_PROGRESS "generate.progress" /* Rank 0: at most once a second */
#define GENERATE_DONE     "generate.done"     /* Rank 0: the tokens */
#define GENERATE_FAILED   "generate.failed"   /* Rank 0 */
#define CHECK_REPLY       "check.reply"       /* the result of a check */

/*
 * ---- the leader of several nodes to a member, and back ----
 *
 * Notifications over the link (daemon/nodes). A member starts engines, forwards messages between
 * gpt2d and the engines, and reports how they end. epoch identifies one start of all engines: both
 * sides ignore messages of an earlier epoch.
 */
#define NODE_HELLO   "node.hello"   /* member: the first message of a connection */
#define NODE_WELCOME "node.welcome" /* leader: the member belongs to the world */
#define NODE_REFUSED "node.refused" /* leader: why it refuses the member; it then closes */
#define NODE_ALIVE   "node.alive"   /* leader, each second; the member sends it back */
#define NODE_START   "node.start"   /* leader: start the engines of this node */
#define NODE_SEND    "node.send"    /* leader: pass a message on to the first n of them */
#define NODE_KILL    "node.kill"    /* leader: kill them */
#define NODE_STARTED "node.started" /* member: the process of a rank runs */
#define NODE_SAID    "node.said"    /* member: a message of a rank */
#define NODE_BROKEN  "node.broken"  /* member: a rank sends no more messages */
#define NODE_ENDED   "node.ended"   /* member: the process of a rank has ended */
#define NODE_CHECK   "node.check"   /* leader: check a spec with the files of this node */
#define NODE_CHECKED "node.checked" /* member: the errors of the spec on its node */
#define NODE_LEAVE   "node.leave"   /* member: its gpt2d is stopped */

/* ---- exit codes of an engine ---- */
enum engine_exit {
	ENGINE_EXIT_OK = 0,
	ENGINE_EXIT_OUTPUT = 1, /* its output (--version, --help) could not be written */
	ENGINE_EXIT_USAGE = 2,
	ENGINE_EXIT_PEER_LOST = 70, /* a collective timed out, or a peer was lost */
	ENGINE_EXIT_POISONED = 71,  /* only a new process can repair the state of the device */
	ENGINE_EXIT_ORPHAN = 72,    /* gpt2d ended */
	/* ranks could not reach each other, or no room for shared memory */
	ENGINE_EXIT_BOOTSTRAP = 73,
	ENGINE_EXIT_STARVED = 74, /* no thread could be started: starved.h */
	ENGINE_EXIT_LOADER = 127, /* of ld.so, before main: a shared library is missing */
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
	/* too many clients, stopping, or the awaited state cannot be reached */
	PROTOCOL_BUSY = -32005,
	PROTOCOL_STORE = -32006, /* could not be written to disk */
	PROTOCOL_NO_SUCH_FILE = -32007,
	PROTOCOL_WRONG_STATE = -32008, /* the state of the run does not allow the request */
	/* this node is a member: only the leader serves the request */
	PROTOCOL_WRONG_NODE = -32009,
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
	CTL_NOT_NOW = 10,      /* retry later */
	CTL_GPT2D_FAILED = 11, /* or its checker failed */
	CTL_WRONG_STATE = 12,  /* the state of the run does not allow the request */
	CTL_DECLINED = 13,     /* by the user on the terminal */
	CTL_AMBIGUOUS = 14,    /* a gate on a verdict that is AMBIGUOUS */
	CTL_TIMEOUT = 124,
	CTL_UNREAD = 141, /* the reader of stdout closed it; what shells show for SIGPIPE */
};

#endif
