/*
 * engine_output.h: the standard output and error of an engine and its libraries: a pipe, whose
 * lines go to gpt2d's log as warnings, "rank 0 printed: ...". The length of a line and the rate of
 * lines are limited. Further lines are read, dropped and counted, and the last of them are logged
 * when the engine ends. The writing end does not block: if gpt2d is suspended and the pipe is full,
 * lines are lost and no engine waits.
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_OUTPUT_H
#define GPT2D_DAEMON_ENGINES_ENGINE_OUTPUT_H

#include <sys/types.h>

struct engine_output;
struct event_base;

enum {
	ENGINE_OUTPUT_BURST_BYTES = 256 * 1024, /* logged at once, from one process */
	ENGINE_OUTPUT_BYTES_PER_S = 16 * 1024,  /* logged in the long run */
};

/* what: "rank 0", copied. 0 or a negative errno. */
int engine_output_create(struct event_base *base, const char *what, struct engine_output **out);
/* Stops reading. Takes NULL. */
void engine_output_destroy(struct engine_output *o);

/* the writing end, until the process is started */
int engine_output_fd(const struct engine_output *o);
/* closes it in gpt2d, once the child has it */
void engine_output_started(struct engine_output *o, pid_t pid);

/* Logs what is in the pipe now. */
void engine_output_drain(struct engine_output *o);
/*
 * The process has ended. Logs the rest of the pipe, a last line without its newline, the number of
 * dropped lines, and the last dropped lines. Children of the engine that hold the pipe are ignored.
 */
void engine_output_end(struct engine_output *o);

#endif
