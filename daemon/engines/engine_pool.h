/*
 * engine_pool.h: one engine process per rank, started together, connected together, killed
 * together: after one is lost the others cannot go on. gpt2d restarts lost
 * engines, at growing intervals while that fails.
 *
 *   down (waits to start) -> starting (hello, connect, ready) -> ready
 *     -> failing (ends are awaited) -> down
 *
 * and from any of them, when they are not wanted: releasing -> released, until they are again.
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_POOL_H
#define GPT2D_DAEMON_ENGINES_ENGINE_POOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct engine_link;
struct event_base;
struct engine_pool;

struct engine_pool_options {
	struct event_base *base;
	const char *program;
	const char *backend; /* "cpu", "cuda": what it has to compute on; NULL: whatever it does */
	const char *tuning_dir; /* where they keep what they found out by timing */
	int ranks;              /* of all nodes */
	int node_ranks;         /* of this node, the first ones, and of each other node */
	int threads, peak_tflops;
	const char *interface;   /* between nodes; NULL: there is one node */
	bool away;               /* begin as released */
	int64_t start_timeout_s; /* from exec to ready */
	int64_t alive_timeout_s; /* without any message */
	void (*ready)(void *arg);
	void (*message)(int rank, const char *method, json_t *params, void *arg);
	/*
	 * Of the other nodes, numbered from 1; unused where there are none. A node that comes back
	 * has ended the engines of an earlier epoch.
	 */
	bool (*complete)(void *arg); /* every node is there: engines can start */
	void (*remote_start)(int node, int64_t epoch, void *arg);
	/* To the first n ranks of the node; params is borrowed. */
	void (*remote_send)(int node, int n, const char *method, json_t *params, void *arg);
	void (*remote_kill)(int node, void *arg);
	/* Nothing more will come from these engines; reason: "engine_lost: rank 1 killed by signal
	 * 9". */
	void (*lost)(const char *reason, void *arg);
	void (*gone)(void *arg);     /* however they came to their end: no process is left */
	void (*released)(void *arg); /* after engine_pool_release: no process is left */
	void (*stopped)(void *arg);  /* after engine_pool_stop: the same */
	void *arg;
};

/* The loop starts the engines. What options points to outlives the pool. */
void engine_pool_create(const struct engine_pool_options *options, struct engine_pool **out);
void engine_pool_destroy(struct engine_pool *p); /* takes NULL */

/* Handles what the engines have written, before anybody judges how long they say nothing. */
void engine_pool_hear(struct engine_pool *p);

bool engine_pool_ready(const struct engine_pool *p);
bool engine_pool_gone(const struct engine_pool *p); /* no process is left, or there was none */
/* To the first n ranks; params is borrowed. */
void engine_pool_send(struct engine_pool *p, int n, const char *method, json_t *params);
/* Kill and restart all; lost() is called with reason before this returns, unless they are lost
 * already. */
void engine_pool_restart(struct engine_pool *p, const char *reason);
/* They did what they are for: the next failure is waited for as short as the first. */
void engine_pool_worked(struct engine_pool *p);
/*
 * End them as engine_pool_stop does, until engine_pool_warm starts them again; both may be called
 * in any state. Not while a segment is with them.
 */
void engine_pool_release(struct engine_pool *p);
void engine_pool_warm(struct engine_pool *p);
/*
 * Starts engines that wait for their next try now; false: they do not wait. Until they do what they
 * are for, the pause between two tries doubles from 0.2 s to 10 minutes.
 */
bool engine_pool_retry(struct engine_pool *p);
bool engine_pool_away(const struct engine_pool *p);     /* released, or about to be */
bool engine_pool_released(const struct engine_pool *p); /* no process is left */
/* End them in good order, kill those that do not within 5 s; stopped() is called, maybe at once. */
void engine_pool_stop(struct engine_pool *p);

void engine_pool_reap(struct engine_pool *p); /* on SIGCHLD, or when a remote one has ended */

/* The process of a rank of another node, for what its node says of it; NULL: there is none. */
struct engine_link *engine_pool_remote(struct engine_pool *p, int rank);
/* A node has come: engines that wait for it start. */
void engine_pool_node_joined(struct engine_pool *p);
/* A node is gone, and its engines with it: lost() gets "peer_lost: node=1 rank=2: why". */
void engine_pool_node_lost(struct engine_pool *p, int node, const char *why);

/* Seconds since they are being started, -1 when they are not; until they are tried again, or -1. */
double engine_pool_starting_s(const struct engine_pool *p);
int64_t engine_pool_retry_s(const struct engine_pool *p);
/*
 * {state, reason, program, threads, restarts, starting_s, ready_after_s, retry_in_s, ranks: [...]}
 */
json_t *engine_pool_json(const struct engine_pool *p);
/* An array of {node, topology} in the order of nodes; topology: null before its engines ran. */
json_t *engine_pool_topology(const struct engine_pool *p);
const char *engine_pool_state_name(const struct engine_pool *p);
const char *engine_pool_reason(const struct engine_pool *p); /* of the last loss; empty when none */

#endif
