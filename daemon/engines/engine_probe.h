/*
 * engine_probe.h: is an engine of this build, does it check a spec, and can two ranks connect?
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H
#define GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Starts the program as a checker and asks it to check a small run; where there are several ranks,
 * then starts two that only connect over UCX, without a device. 0 with the device and its library
 * in text, or -EPROTO with what went wrong. Each of the two blocks for timeout_s at most. What the
 * engine prints goes to the log.
 */
int engine_probe(
	const char *program, int64_t ranks, int64_t timeout_s, char *text, size_t text_bytes);

#endif
