/*
 * own_files.h: names that gpt2d has for files of its own: its settings, its socket, and what it
 * keeps in the state directory. No setting may make another use of them.
 */
#ifndef GPT2D_DAEMON_CONFIG_OWN_FILES_H
#define GPT2D_DAEMON_CONFIG_OWN_FILES_H

#include <stdbool.h>

#include "daemon/config/settings.h"

/* What path is of these, "the queue" for one; NULL: none of them, or that cannot be told. */
const char *own_files_find(const struct settings *s, const char *path);

/* The same, of the state directory alone, which is one itself: what the socket must not be. */
const char *own_files_find_state(const struct settings *s, const char *path);

/* Whether two names are of one file, which need not be there. */
bool own_files_same(const char *a, const char *b);

#endif
