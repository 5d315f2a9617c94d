/*
 * engine_probe.h: is an engine of this build, does it check a spec, can two ranks connect, and
 * which shared libraries does it lack?
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H
#define GPT2D_DAEMON_ENGINES_ENGINE_PROBE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Starts the program as a checker and asks it to check a small run; where there are several ranks,
 * then starts two that only connect over UCX, without a device: as ranks of two nodes where there
 * is an interface (NULL: one node), else as those of one. 0 with the device and its library
 * in text, or -EPROTO with what went wrong. Each of the two blocks for timeout_s at most. What the
 * engine prints goes to the log.
 */
int engine_probe(const char *program, int64_t ranks, const char *interface, int64_t timeout_s,
	char *text, size_t text_bytes);

/*
 * The shared libraries that the dynamic linker does not find for the program, with the packages
 * that have them: "libcublasLt.so.13 (package libcublas-13-0), ...". How many; 0 also when the
 * program is not linked dynamically.
 */
int engine_probe_libraries(const char *program, char *text, size_t text_bytes);

#endif
