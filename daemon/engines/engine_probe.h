/*
 * engine_probe.h: checks whether an engine has this build, can check a spec, and can connect two
 * ranks, and which shared libraries it lacks.
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H
#define GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Starts the program as a checker, which checks a small run. With several ranks, then starts two
 * that only connect over UCX, without a device: as ranks of two nodes if interface is given, else
 * (NULL) of one. 0 with the device and its library in text, or -EPROTO with the error. Each of the
 * two steps blocks for timeout_s at most. The engine's output goes to the log.
 */
int engine_probe(const char *program, int64_t ranks, const char *interface, int64_t timeout_s,
	char *text, size_t text_bytes);

/*
 * The shared libraries that the dynamic linker does not find for the program, with their packages:
 * "libcublasLt.so.13 (package libcublas-13-0), ...". Returns how many; also 0 if the program is not
 * linked dynamically.
 */
int engine_probe_libraries(const char *program, char *text, size_t text_bytes);

#endif
