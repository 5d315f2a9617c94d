/*
 * engine_pool.h: one engine process per rank. All are started, connected and killed together: after
 * one is lost the others cannot continue. gpt2d restarts lost engines, with growing pauses if that
 * fails.
 *
 *   down (waits to start) -> starting (hello, connect, ready) -> ready
 *     -> failing (waits for the processes to end) -> down
 *
 * and from any of them, after a release: releasing -> released, until warm.
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
	const char *backend;    /* "cpu", "cuda": the required device; NULL: any */
	const char *tuning_dir; /* where they keep the results of timing */
	int ranks;              /* of all nodes */
	int node_ranks;         /* of this node, the first ones, and of each other node */
	int threads, peak_tflops;
	const char *interface;   /* between nodes; NULL: there is one node */
	bool away;               /* begin as released */
	int64_t start_timeout_s; /* from exec to ready */
	int64_t alive_timeout_s; /* without any message */
	void (*ready)(void *arg);
	void (*message)(int rank, const char *method, json_t *params, void *arg);
	/* No more messages from these engines; reason: "engine_lost: rank 1 killed by signal 9". */
	void (*lost)(const char *reason, void *arg);
	void (*gone)(void *arg);     /* all processes have ended, for any reason */
	void (*released)(void *arg); /* after engine_pool_release: all processes have ended */
	void *arg;
	/* Those below get world. After engine_pool_stop: all processes have ended. */
	void (*stopped)(void *world);
	/*
	 * The engines of other nodes, numbered from 1; unused if there are none. A node that
	 * returns has ended the engines of an earlier epoch.
	 */
	bool (*complete)(void *world); /* all nodes have joined: engines can start */
	void (*remote_start)(int node, int64_t epoch, void *world);
	/* To the first n ranks of the node; params is borrowed. */
	void (*remote_send)(int node, int n, const char *method, json_t *params, void *world);
	void (*remote_kill)(int node, void *world);
	void *world;
};

/* The loop starts the engines. What options points to outlives the pool. */
void engine_pool_create(const struct engine_pool_options *options, struct engine_pool **out);
void engine_pool_destroy(struct engine_pool *p); /* takes NULL */

/* Reads what the engines have written, before a caller judges their silence. */
void engine_pool_hear(struct engine_pool *p);

bool engine_pool_ready(const struct engine_pool *p);
/* all processes have ended, or there were none */
bool engine_pool_gone(const struct engine_pool *p);
/* To the first n ranks; params is borrowed. */
void engine_pool_send(struct engine_pool *p, int n, const char *method, json_t *params);
/*
 * Kills and restarts all; calls lost() with reason before it returns, unless they are already lost.
 */
void engine_pool_restart(struct engine_pool *p, const char *reason);
/* The engines have done useful work: the pause after the next failure is the shortest again. */
void engine_pool_worked(struct engine_pool *p);
/*
 * Ends the engines as engine_pool_stop does, until engine_pool_warm starts them again. Both may be
 * called in any state, but not while a segment is with the engines.
 */
void engine_pool_release(struct engine_pool *p);
void engine_pool_warm(struct engine_pool *p);
/*
 * Starts engines that wait for their next try at once; false: they do not wait. While they fail,
 * the pause between two tries doubles from 0.2 s to 10 minutes.
 */
bool engine_pool_retry(struct engine_pool *p);
bool engine_pool_away(const struct engine_pool *p);     /* released, or releasing */
bool engine_pool_released(const struct engine_pool *p); /* all processes have ended */
/*
 * Ends the engines in good order, and kills those that do not end within 5 s; then calls stopped(),
 * maybe at once.
 */
void engine_pool_stop(struct engine_pool *p);

void engine_pool_reap(struct engine_pool *p); /* on SIGCHLD, or when a remote one has ended */

/* The process of a rank of another node, for the reports of its node; NULL: there is none. */
struct engine_link *engine_pool_remote(struct engine_pool *p, int rank);
/* A node has joined: engines that waited for it start. */
void engine_pool_node_joined(struct engine_pool *p);
/* A node and its engines are lost: lost() gets "peer_lost: node=1 rank=2: why". */
void engine_pool_node_lost(struct engine_pool *p, int node, const char *why);

/* Seconds since the start of the engines began, or -1; seconds until the next try, or -1. */
double engine_pool_starting_s(const struct engine_pool *p);
int64_t engine_pool_retry_s(const struct engine_pool *p);
/*
 * {state, reason, program, threads, restarts, starting_s, ready_after_s, retry_in_s, ranks: [...]}
 */
json_t *engine_pool_json(const struct engine_pool *p);
/* An array of {node, topology} in the order of nodes; topology: null before its engines ran. */
json_t *engine_pool_topology(const struct engine_pool *p);
const char *engine_pool_state_name(const struct engine_pool *p);
/* reason of the last loss; may be empty */
const char *engine_pool_reason(const struct engine_pool *p);

#endif
