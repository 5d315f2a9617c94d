/*
 * engine_program.h: chooses the engine program for the setting device. It finds the requested
 * program or returns an error with advice; it never chooses another one silently.
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_PROGRAM_H
#define GPT2D_DAEMON_ENGINES_ENGINE_PROGRAM_H

#include <limits.h>
#include <stddef.h>

#include "daemon/config/settings.h"

struct engine_program {
	char path[PATH_MAX];
	/* DEVICE_CPU, DEVICE_CUDA; DEVICE_UNSET: the program decides */
	enum settings_device device;
	char why[PATH_MAX + 128]; /* why auto chose this device; else empty */
};

/* 0, or a negative errno with error. */
int engine_program_find(
	const struct settings *s, struct engine_program *out, char *error, size_t error_bytes);
/* The names of the requested and the chosen: "cpu", "cuda", "auto", "engine". */
const char *engine_program_device_name(enum settings_device device);
/* gpt2-engine-DEVICE beside this program, installed or in the build's folders: 0 or -ENOENT. */
int engine_program_beside(
	const char *device, char *out, size_t out_bytes, char *error, size_t error_bytes);

#endif
