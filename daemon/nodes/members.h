/*
 * members.h: the leader's side of membership: which nodes have joined, their facts, heartbeats. The
 * leader refuses a member with another build, another number of ranks, or the ID of a connected
 * node. A node that is silent for node_timeout is lost.
 */
#ifndef GPT2D_DAEMON_NODES_MEMBERS_H
#define GPT2D_DAEMON_NODES_MEMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct members;
struct settings;

struct members_options {
	struct event_base *base;
	const struct settings *settings;
	const char *state_dir; /* gets the file with the bound address */
	void (*joined)(int node, void *arg);
	void (*lost)(int node, const char *why, void *arg);
	void (*message)(int node, const char *method, json_t *params, void *arg);
	bool (*busy)(
		void *arg); /* a run is in progress: a member that is stopped waits for its end */
	void *arg;
};

/* 0, or a negative errno with error. */
int members_create(const struct members_options *options, struct members **out, char *error,
	size_t error_bytes);
void members_destroy(struct members *m); /* takes NULL */

bool members_joined(const struct members *m, int node);
bool members_complete(const struct members *m);
/* "node 1", "nodes 1 and 3", "nodes 1, 2, 3 and 60 more": the missing nodes. */
void members_missing(const struct members *m, char *out, size_t out_bytes);
void members_send(struct members *m, int node, const char *method, json_t *params); /* takes it */
const char *members_address(const struct members *m); /* of the listening socket */
/* An array of a row for each node but the leader. */
json_t *members_json(const struct members *m);

#endif
