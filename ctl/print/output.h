/*
 * output.h: everything gpt2ctl prints, behind one table of functions; one table prints for people,
 * the other JSON. Objects are as the daemon sent them, or as a verb built them. Verbs print nothing
 * themselves.
 *
 * JSON: each line is an object with "schema" (OUTPUT_SCHEMA, raised when a key changes its meaning)
 * and "kind" in front. Failures go to stderr as text in both; with JSON also to stdout as
 * {"schema", "kind": "error", "error": {exit, message, data?}}.
 */
#ifndef GPT2D_CTL_PRINT_OUTPUT_H
#define GPT2D_CTL_PRINT_OUTPUT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl/ctl.h"

enum { OUTPUT_SCHEMA = 1 };

struct progress;
struct view;

struct output {
	void (*submitted)(struct ctl *ctl, const json_t *reply);
	/* verbose: with the resolved spec, which JSON has always */
	void (*dry_run)(struct ctl *ctl, const json_t *reply, bool verbose);
	void (*status)(struct ctl *ctl, const json_t *reply, size_t queue_rows);
	void (*top)(struct ctl *ctl, const json_t *object, const struct view *view);
	void (*list)(struct ctl *ctl, const json_t *reply);
	void (*show)(struct ctl *ctl, const json_t *reply);
	/* the reply to "artifacts", all pages; after a copy with "copied_to" and each file's
	 * "result" */
	void (*artifacts)(struct ctl *ctl, const json_t *result);
	void (*logs)(struct ctl *ctl, const json_t *result);   /* the reply, all pages */
	void (*log_line)(struct ctl *ctl, const json_t *line); /* one of them, with id */
	void (*pruned)(struct ctl *ctl, const json_t *result); /* {runs, bytes, dry_run} */
	void (*kept)(struct ctl *ctl, const json_t *reply);
	void (*metrics)(struct ctl *ctl, const json_t *reply); /* {text} */
	void (*compare)(struct ctl *ctl, const json_t *comparison);
	/* {runs: [{id, state, already, exit} or {id, state null, error, exit}], exit} */
	void (*cancelled)(struct ctl *ctl, const json_t *result);
	/* the reply to drain, resume, release, warm */
	void (*gate)(struct ctl *ctl, const char *method, const json_t *reply);
	void (*priority)(struct ctl *ctl, const json_t *reply);
	void (*waited)(
		struct ctl *ctl, const json_t *result); /* {runs: [{id, name, state, reason}]} */
	void (*prepared)(struct ctl *ctl, const json_t *result);
	void (*shutdown)(struct ctl *ctl, const json_t *reply);
	void (*version)(struct ctl *ctl, const json_t *versions);
	void (*event)(struct ctl *ctl, struct progress *progress, const char *event,
		const json_t *params);
	void (*error)(struct ctl *ctl, const struct ctl_error *error);
	/* spec errors of a file; n_dropped more were found */
	void (*spec_errors)(struct ctl *ctl, const char *file, const json_t *errors);
};

extern const struct output output_text, output_json;

/* Flush stdout: false, which is said once, when anything of it could not be written. */
bool output_goes_on(struct ctl *ctl);

/*
 * After the answer of a verb that has changed something: where it could not be written that is said
 * on standard error, as the exit code looks like a refusal.
 */
void output_tell_done(struct ctl *ctl, const char *verb);

/*
 * Flush stdout: the exit code to leave with, CTL_TRANSPORT when anything could not be written,
 * CTL_UNREAD when that is because its reader went away, of which nothing is said.
 */
int output_finish(struct ctl *ctl, int exit);

#endif
