/*
 * paths.h: where things are when nobody says where. System paths for root and for a service of
 * systemd (which tells its folders in the environment); below the home folder for everybody else's
 * own daemon.
 */
#ifndef GPT2D_DAEMON_CONFIG_PATHS_H
#define GPT2D_DAEMON_CONFIG_PATHS_H

#include <stdbool.h>
#include <stddef.h>

bool paths_are_system(void); /* not a user's own daemon */

/* gpt2d.conf: whether there is a place for it (whether it is there is another question). */
bool paths_config(char *out, size_t out_bytes);

/* asked: a setting, or NULL for the standard place. 0, or a negative errno with error. out is
 * absolute. */
int paths_socket(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes);
int paths_state_dir(
	const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes);

/* path made absolute by the present folder; what: the setting, for error. */
int paths_absolute(const char *path, const char *what, char *out, size_t out_bytes, char *error,
	size_t error_bytes);

#endif
