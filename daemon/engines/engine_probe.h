/*
 * engine_probe.h: is an engine of this build, and does it check a spec?
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H
#define GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Starts the program as a checker and asks it to check a small run. 0 with the device and its
 * library in text, or -EPROTO with what went wrong. Blocks for timeout_s at most. What the engine
 * prints goes to the log.
 */
int engine_probe(const char *program, int64_t timeout_s, char *text, size_t text_bytes);

#endif
