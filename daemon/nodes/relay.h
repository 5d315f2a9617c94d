/*
 * relay.h: the member's side: joins the leader, and joins again after a loss. It starts this node's
 * engines when the leader requests it, forwards messages between the leader and the engines, and
 * reports how they end. It makes one decision itself: without the leader it ends the engines, and
 * joins again when all have ended. So the leader never meets engines of an earlier world.
 */
#ifndef GPT2D_DAEMON_NODES_RELAY_H
#define GPT2D_DAEMON_NODES_RELAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct checker;
struct event_base;
struct relay;
struct settings;

struct relay_options {
	struct event_base *base;
	const struct settings *settings;
	const char *program, *tuning_dir;
	struct checker *checker; /* until relay_stop */
	int threads;
	void (*stopped)(void *arg); /* after relay_stop: all processes have ended */
	void *arg;
};

/* 0, or a negative errno with error. */
int relay_create(
	const struct relay_options *options, struct relay **out, char *error, size_t error_bytes);
void relay_destroy(struct relay *r); /* takes NULL */

void relay_reap(struct relay *r); /* on SIGCHLD */
/*
 * Ends the engines and leaves once no run is in progress or the leader has closed the link, and
 * after 12 s at the latest; stopped() is called, maybe at once.
 */
void relay_stop(struct relay *r);
/* "HOST (ADDRESS)"; before the first join the setting join. */
const char *relay_leader(const struct relay *r);
/* {state, leader, address, since, reason, silent_s} */
json_t *relay_json(const struct relay *r);
/*
 * "ready", "starting" or "down": the state of this node's engines, in the words of
 * engine_pool_json.
 */
const char *relay_engine_state(const struct relay *r);
/* Rows of this node's ranks, as in engine_pool_json. */
json_t *relay_ranks_json(const struct relay *r);

#endif
