/*
 * metrics_file.h: the file of metrics_file. gpt2d replaces and removes only a file of figures or an
 * empty file, so that a wrong path costs nobody a file.
 */
#ifndef GPT2D_DAEMON_CONFIG_METRICS_FILE_H
#define GPT2D_DAEMON_CONFIG_METRICS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether path ends in a name that a file can have and that does not begin with a dot. */
bool metrics_file_valid(const char *path);
/* Whether path is free, or a regular file that is empty or holds figures. */
bool metrics_file_replaceable(const char *path);

/* Writes the file whole or not at all: 0, -EEXIST: not replaceable, or another negative errno. */
int metrics_file_write(const char *path, const char *text, size_t n, mode_t mode);
void metrics_file_remove(const char *path);

#endif
