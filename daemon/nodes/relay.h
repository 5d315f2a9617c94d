/*
 * relay.h: the member's side: joins the leader and joins again after a loss, starts this node's
 * engines when the leader says so, passes on what the leader and they say to each other, and
 * reports how they end. It decides one thing: without the leader it ends them, and joins again when
 * none is left. So the leader never meets engines of an earlier world.
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
	void (*stopped)(void *arg); /* after relay_stop: no process is left */
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
/* "HOST (ADDRESS)"; before it was ever joined the setting join. */
const char *relay_leader(const struct relay *r);
/* {state, leader, address, since, reason, silent_s} */
json_t *relay_json(const struct relay *r);
/* "ready", "starting" or "down": the engines of this node, as engine_pool_json calls it. */
const char *relay_engine_state(const struct relay *r);
/* The processes: rows as those of engine_pool_json, of this node's ranks. */
json_t *relay_ranks_json(const struct relay *r);

#endif
