/* What holds where nothing was given, as a value. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/address.h"
#include "daemon/config/paths.h"
#include "daemon/config/settings_table.h"

static int replace(char **path, const char *text)
{
	char *copy = strdup(text);

	if (copy == NULL)
		return -ENOMEM;
	free(*path);
	*path = copy;
	return 0;
}

/* stderr and journal, which stand for no file. */
static bool is_word(const struct settings *s, char *const *path)
{
	return path == &s->log_file &&
		(strcmp(*path, "stderr") == 0 || strcmp(*path, "journal") == 0);
}

/* A path that was given; whoever uses it says what is wrong with it. */
static int make_absolute(struct settings *s, const struct settings_row *row)
{
	char **path = (char **)(void *)settings_integer(s, row), full[PATH_MAX], error[256];

	if (row->type != SETTING_PATH || *path == NULL || is_word(s, path) ||
		paths_absolute(*path, row->name, full, sizeof(full), error, sizeof(error)) < 0)
		return 0;
	return replace(path, full);
}

int settings_resolve(struct settings *s)
{
	char path[PATH_MAX], error[PATH_MAX + 256];
	int rc = 0;

	if (paths_socket(s->socket, path, sizeof(path), error, sizeof(error)) == 0)
		rc = replace(&s->socket, path);
	if (rc == 0 && paths_state_dir(s->state_dir, path, sizeof(path), error, sizeof(error)) == 0)
		rc = replace(&s->state_dir, path);
	if (rc == 0 && s->log_file == NULL)
		rc = replace(&s->log_file, "stderr");
	for (size_t i = 0; i < settings_n_rows && rc == 0; i++)
		rc = make_absolute(s, &settings_rows[i]);
	s->socket_mode = (int64_t)address_access(s).mode;
	/* an engine that was given says itself what it is for */
	if (s->device == DEVICE_UNSET && s->engine == NULL)
		s->device = paths_are_system() ? DEVICE_CPU : DEVICE_AUTO;
	return rc;
}
