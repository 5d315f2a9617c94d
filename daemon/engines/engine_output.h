/*
 * engine_output.h: what an engine, or a library in it, prints on its standard output and error: a
 * pipe, whose lines go to gpt2d's log as warnings, "rank 0 printed: ...". They are bounded, each
 * and together; what is too much is read, dropped and counted. The pipe's writing end does not
 * block: while gpt2d stands still and the pipe is full, lines are lost and no engine waits.
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_OUTPUT_H
#define GPT2D_DAEMON_ENGINES_ENGINE_OUTPUT_H

#include <sys/types.h>

struct engine_output;
struct event_base;

enum {
	ENGINE_OUTPUT_BURST_BYTES = 256 * 1024, /* in the log, from one process at once */
	ENGINE_OUTPUT_BYTES_PER_S = 16 * 1024,  /* in the long run */
};

/* what: "rank 0", copied. 0 or a negative errno. */
int engine_output_create(struct event_base *base, const char *what, struct engine_output **out);
/* Nothing more is read or said. Takes NULL. */
void engine_output_destroy(struct engine_output *o);

int engine_output_fd(const struct engine_output *o); /* the writing end, until it is started */
void engine_output_started(struct engine_output *o, pid_t pid); /* that end is the child's alone */

/* Log now what is in the pipe; what is printed meanwhile may stay. */
void engine_output_drain(struct engine_output *o);
/*
 * The same when the process has ended, with a last line without its newline, how much was left out,
 * and the last lines of that. What children have the pipe open is not waited for, nor read later.
 */
void engine_output_end(struct engine_output *o);

#endif
