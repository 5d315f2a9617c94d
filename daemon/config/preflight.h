/*
 * preflight.h: what can be known before anything is made or opened of whether gpt2d can have its
 * files and folders where the settings say. The start asks it first, and so do `gpt2d -n` and
 * `gpt2d --check`: all say the same. Nothing is changed.
 */
#ifndef GPT2D_DAEMON_CONFIG_PREFLIGHT_H
#define GPT2D_DAEMON_CONFIG_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/config/settings.h"

enum preflight {
	PREFLIGHT_LOG,
	PREFLIGHT_METRICS,
	PREFLIGHT_STATE, /* the folder, runs in it, the database's name */
	PREFLIGHT_GROUP, /* that the socket can be given it */
	PREFLIGHT_SOCKET,
	PREFLIGHTS,
};

/* 0, or a negative errno with error, which names the path or the group. */
int preflight_try(enum preflight what, const struct settings *s, char *error, size_t error_bytes);
/* The name of the setting behind it. */
const char *preflight_setting(enum preflight what);
/* Whether that is given; if not, the standard place is meant. */
bool preflight_is_set(enum preflight what, const struct settings *s);

/* What does not keep gpt2d from starting, and is most likely not meant: called for each. */
void preflight_warn(const struct settings *s, void (*warn)(const char *text, void *arg), void *arg);
/* The same without places that nothing stands in for: preflight_try fails on these. */
void preflight_warn_files(
	const struct settings *s, void (*warn)(const char *text, void *arg), void *arg);

#endif
