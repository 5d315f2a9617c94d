/*
 * world.h: the engines of all nodes behind one engine_pool, so that the scheduler does not know
 * which ranks are remote. The part of this gpt2d among several nodes decides how:
 *
 *   alone the pool has the ranks of this node
 *   leader the pool has the ranks of all nodes; members.h starts, feeds and watches those of
 *           members
 *   member the pool is empty and released; relay.h has this node's ranks, the leader decides
 *
 * There is one pool for all nodes instead of one pool per node. So its state machine (start,
 * connect, ready, loss, restart) exists once, and a member has no state that could disagree with
 * the leader's.
 */
#ifndef GPT2D_DAEMON_NODES_WORLD_H
#define GPT2D_DAEMON_NODES_WORLD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/engines/engine_pool.h"

struct checker;
struct checker_question;
struct settings;
struct world;

struct world_options {
	const struct settings *settings;
	const char *state_dir;
	struct checker *checker; /* until world_end_checks */
	/*
	 * As for engine_pool_create; the world fills in ranks, nodes and the remote functions. Its
	 * stopped() gets arg.
	 */
	struct engine_pool_options pool;
	void (*changed)(void *arg); /* a node joined or was lost; arg is that of pool */
	bool (*busy)(void *arg);    /* a run is in progress */
};

/* 0, or a negative errno with error. */
int world_create(
	const struct world_options *options, struct world **out, char *error, size_t error_bytes);
void world_destroy(struct world *w); /* takes NULL */

struct engine_pool *world_pool(struct world *w);
void world_reap(struct world *w); /* on SIGCHLD; takes NULL */
/* Ends all engines; calls stopped() of the pool's options once all have ended. */
void world_stop(struct world *w);

/* "waiting for node 3" while nodes are missing; false: none are. */
bool world_waits(const struct world *w, char *out, size_t out_bytes);
/* The leader's address, for a request that only the leader serves; NULL: this is not a member. */
const char *world_leader(const struct world *w);
/* Whether a run of so many ranks has some on another node that is there. */
bool world_spans(const struct world *w, int64_t ranks);
/*
 * Has the members that are there, and that have one of the first ranks of the world, check what the
 * leader's checker found right: world, spec, arm, file and probe of question count. Later, answer
 * gets an array of {key, message}, borrowed, each message with its node. false: there is nobody to
 * ask, and answer is not called.
 */
bool world_check(struct world *w, const struct checker_question *question, int64_t ranks,
	void (*answer)(void *arg, json_t *errors), void *arg);
/* Answers all open checks at once; no check may follow. Takes NULL. */
void world_end_checks(struct world *w);
/* As engine_pool_json; on a member with its own ranks. */
json_t *world_engine_json(const struct world *w);
/* null: alone; else {node, part, nodes, cluster, interface, listen, leader, members}. */
json_t *world_json(const struct world *w);

#endif
