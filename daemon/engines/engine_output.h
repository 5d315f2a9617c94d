/*
 * engine_output.h: the standard output and error of an engine and of the libraries in it: a pipe,
 * whose lines go to gpt2d's log as warnings, "rank 0 printed: ...". Each line and all of them are
 * bounded; further lines are read, dropped and counted, and the last of these are logged when the
 * engine ends. The pipe's writing end does not block: if gpt2d stands still and the pipe is full,
 * lines are lost and no engine waits.
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

/* Logs what is in the pipe now. */
void engine_output_drain(struct engine_output *o);
/*
 * The process has ended. Logs what is in the pipe, a last line without its newline, how much was
 * dropped, and the last lines of that. Children of the engine that hold the pipe are ignored.
 */
void engine_output_end(struct engine_output *o);

#endif
