/*
 * checker.h: a resident engine process (--role check) that checks whether a configuration can be
 * trained here: data present, long enough, within the vocabulary; memory; bucket plan. gpt2d starts
 * it when first needed, and replaces it if it dies, is silent or too slow, or if no client waits
 * for its current check. It has one question at a time, in order of arrival, so that a crash has
 * one culprit.
 */
#ifndef GPT2D_DAEMON_ENGINES_CHECKER_H
#define GPT2D_DAEMON_ENGINES_CHECKER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/host/data_roots.h"

struct event_base;
struct checker;

struct checker_options {
	struct event_base *base;
	const char *program;
	int threads;             /* of each rank */
	int node_ranks;          /* on each node, one node after another */
	int64_t timeout_s;       /* of one question */
	int64_t alive_timeout_s; /* longest silence while it has a question */
	struct data_roots data_roots;
	const char *runs; /* folder of the runs' directories */
};

/* What options points to outlives the checker. */
void checker_create(const struct checker_options *options, struct checker **out);
/* The failure with which checker_destroy answers open questions. */
extern const char checker_stopping[];
void checker_destroy(struct checker *c); /* takes NULL */

struct checker_question {
	int64_t world;          /* ranks of gpt2d */
	const char *spec, *arm; /* a text and the arm in it; outlive the answer */
	const json_t *resume;   /* folders for its resume_from; NULL: none; outlives the answer */
	const char *runs;       /* the leader's, if that is another node; NULL: options.runs */
	/* a file that the leader has just made in the checkpoints' folder; NULL: none */
	const char *probe;
	const char *file; /* a token file of the arm, for a message; "": none */
	/*
	 * Called once, later: failure NULL and reply (check.reply's params, borrowed), or failure a
	 * text (the checker failed or was too slow).
	 */
	void (*answer)(void *arg, const char *failure, json_t *reply);
	/* Whether a client still waits; if not, the checker's process is killed. */
	bool (*wanted)(void *arg);
	void *arg;
};
void checker_ask(struct checker *c, const struct checker_question *question);

/* Whether its process ends when idle, because the engines are released and it holds GPU memory. */
void checker_rest(struct checker *c, bool rest);

void checker_reap(struct checker *c); /* on SIGCHLD; takes NULL */

#endif
