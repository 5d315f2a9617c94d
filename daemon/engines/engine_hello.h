/* engine_hello.h: whether a process that greets is the engine that was started. */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_HELLO_H
#define GPT2D_DAEMON_ENGINES_ENGINE_HELLO_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

/* What was started. */
struct engine_hello {
	int rank;
	const char *program;
	const char *backend; /* that the setting device asks for; NULL: any */
	pid_t pid;
};

/* What to do about an engine of another build or protocol. */
#define ENGINE_HELLO_CURE "install gpt2d and its engine from the same build"

/* Of the parameters of engine.hello: why is empty, or says what is not as it was started. */
void engine_hello_check(
	const struct engine_hello *started, json_t *params, char *why, size_t why_bytes);

/* The same of protocol and build alone: started's rank and backend are not asked for. */
void engine_hello_check_build(
	const struct engine_hello *started, json_t *params, char *why, size_t why_bytes);

#endif
