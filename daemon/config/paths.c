#include "daemon/config/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { TOLD_BYTES = 300 }; /* of a path that is far too long */

int paths_absolute(const char *path, const char *what, char *out, size_t out_bytes, char *error,
	size_t error_bytes)
{
	char here[PATH_MAX] = "";
	int n;

	if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
		n = -errno;
		snprintf(error, error_bytes, "%s: %s: %s", what, path, strerror(-n));
		return n;
	}
	n = snprintf(out, out_bytes, "%s%s%s", here, here[0] ? "/" : "", path);
	if (n >= 0 && (size_t)n < out_bytes)
		return 0;
	snprintf(error, error_bytes, "%s: %.*s%s: longer than %zu bytes", what, TOLD_BYTES, path,
		strlen(path) > TOLD_BYTES ? "..." : "", out_bytes - 1);
	return -ENAMETOOLONG;
}

/* An absolute path of the environment; the XDG rules have others ignored. */
static const char *folder(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] == '/' ? value : NULL;
}

/* That there is no place for what; a name of the environment may be the reason. */
static int no_place(const char *what, const char *advice, const char *name, char *error,
	size_t error_bytes)
{
	const char *value = getenv(name);
	bool relative = value != NULL && value[0] != '\0' && value[0] != '/';

	snprintf(error, error_bytes, "%s: no place for it: %s%s%s%s%.64s%s", what, advice,
		relative ? "; " : "", relative ? name : "", relative ? " is \"" : "",
		relative ? value : "", relative ? "\", an absolute path is expected" : "");
	return -EINVAL;
}

/* systemd tells several folders with a colon between them; the first is ours. */
static int service_path(const char *name, const char *file, char *out, size_t out_bytes)
{
	const char *value = folder(name);

	if (value == NULL)
		return -ENOENT;
	snprintf(out, out_bytes, "%.*s%s", (int)strcspn(value, ":"), value, file);
	return 0;
}

bool paths_are_system(void)
{
	return geteuid() == 0 || folder("STATE_DIRECTORY") != NULL;
}

bool paths_config(char *out, size_t out_bytes)
{
	const char *config = folder("XDG_CONFIG_HOME"), *home = folder("HOME");

	if (service_path("CONFIGURATION_DIRECTORY", "/gpt2d.conf", out, out_bytes) == 0)
		return true;
	if (paths_are_system())
		snprintf(out, out_bytes, "/etc/gpt2d/gpt2d.conf");
	else if (config != NULL)
		snprintf(out, out_bytes, "%s/gpt2d/gpt2d.conf", config);
	else if (home != NULL)
		snprintf(out, out_bytes, "%s/.config/gpt2d/gpt2d.conf", home);
	else
		return false;
	return true;
}

int paths_socket(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	const char *runtime = folder("XDG_RUNTIME_DIR");
	size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path);
	char path[PATH_MAX] = "";

	if (out_bytes > longest)
		out_bytes = longest;
	if (asked != NULL)
		snprintf(path, sizeof(path), "%s", asked);
	else if (service_path("RUNTIME_DIRECTORY", "/gpt2d.sock", path, sizeof(path)) == 0)
		;
	else if (paths_are_system())
		snprintf(path, sizeof(path), "/run/gpt2d/gpt2d.sock");
	else if (runtime != NULL)
		snprintf(path, sizeof(path), "%s/gpt2d/gpt2d.sock", runtime);
	if (path[0] == '\0')
		return no_place("socket", "give --socket, or set GPT2D_SOCKET or XDG_RUNTIME_DIR",
			"XDG_RUNTIME_DIR", error, error_bytes);
	return paths_absolute(path, "socket", out, out_bytes, error, error_bytes);
}

int paths_state_dir(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	const char *state = folder("XDG_STATE_HOME"), *home = folder("HOME");
	char path[PATH_MAX] = "";

	if (asked != NULL)
		snprintf(path, sizeof(path), "%s", asked);
	else if (service_path("STATE_DIRECTORY", "", path, sizeof(path)) == 0)
		;
	else if (paths_are_system())
		snprintf(path, sizeof(path), "/var/lib/gpt2d");
	else if (state != NULL)
		snprintf(path, sizeof(path), "%s/gpt2d", state);
	else if (home != NULL)
		snprintf(path, sizeof(path), "%s/.local/state/gpt2d", home);
	if (path[0] == '\0')
		return no_place("state_dir", "give --state-dir, or set XDG_STATE_HOME or HOME",
			"XDG_STATE_HOME", error, error_bytes);
	return paths_absolute(path, "state_dir", out, out_bytes, error, error_bytes);
}
