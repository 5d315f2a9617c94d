/*
 * output.h: gpt2ctl's output, as text or JSON, and checks that it was written.
 *
 * JSON: each line is an object that begins with "schema" (OUTPUT_SCHEMA, raised when a key changes
 * its meaning) and "kind". Errors go to stderr as text; with JSON also to stdout as {"schema",
 * "kind": "error", "error": {exit, message, code?, data?}}.
 */
#ifndef GPT2D_CTL_PRINT_OUTPUT_H
#define GPT2D_CTL_PRINT_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/print/term.h"

enum { OUTPUT_SCHEMA = 1 };

struct output {
	bool json;
	bool failed;     /* a write to stdout failed: nothing more is printed */
	bool unread;     /* it failed because the reader closed the pipe */
	struct term out; /* stdout */
	struct term err; /* stderr */
};

/*
 * Print object: with JSON as a line of that kind, else by text. text NULL: with JSON only. Returns
 * whether stdout still accepts output.
 */
bool output_print(struct output *o, const char *kind, const json_t *object,
	void (*text)(struct output *o, const json_t *object));
/* "gpt2ctl: MESSAGE" on stderr. */
void output_error(struct output *o, const char *message);
/* output_error, and with JSON also error on stdout; error is taken. */
void output_failure(struct output *o, const char *message, json_t *error);

/* Flush stdout: false if a write has failed, which is reported once. */
bool output_flush(struct output *o);
/*
 * After a verb that changed something: if the result could not be printed, say on stderr that the
 * change was made, because the exit status looks like a refusal.
 */
void output_confirm(struct output *o, const char *verb);
/*
 * Flush stdout: the exit status to end with. CTL_TRANSPORT if a write failed, CTL_UNREAD if it
 * failed because the reader closed the pipe.
 */
int output_finish(struct output *o, int exit);

#endif
