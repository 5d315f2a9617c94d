/*
 * paths.h: the standard places of the configuration file, the socket and the state directory.
 * They are system paths for root and for a systemd service (which names them in the environment),
 * and XDG folders for a user's own daemon.
 */
#ifndef GPT2D_DAEMON_CONFIG_PATHS_H
#define GPT2D_DAEMON_CONFIG_PATHS_H

#include <stdbool.h>
#include <stddef.h>

bool paths_are_system(void); /* not a user's own daemon */

/* gpt2d.conf; false: there is no standard place. Whether the file exists is another question. */
bool paths_config(char *out, size_t out_bytes);

/* asked: a setting, or NULL for the standard place. out is absolute. 0, or a negative errno with
 * error. */
int paths_socket(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes);
int paths_state_dir(
	const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes);

/* path made absolute by the current folder; what: the setting, for error. */
int paths_absolute(const char *path, const char *what, char *out, size_t out_bytes, char *error,
	size_t error_bytes);

#endif
