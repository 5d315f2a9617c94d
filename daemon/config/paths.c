#include "daemon/config/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { SHOWN_BYTES = 300 }; /* longest part of an overlong path in messages */

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
	snprintf(error, error_bytes, "%s: %.*s%s: longer than %zu bytes", what, SHOWN_BYTES, path,
		strlen(path) > SHOWN_BYTES ? "..." : "", out_bytes - 1);
	return -ENAMETOOLONG;
}

enum place { CONFIG, SOCKET, STATE };

static const struct {
	const char *name;
	const char *service, *file; /* the variable of systemd, and the file in that folder */
	const char *system;
	const char *xdg, *own; /* the variable, and the path below it */
	const char *home;      /* the path below HOME; NULL: none */
	const char *advice;
} places[] = {
	[CONFIG] = {"config", "CONFIGURATION_DIRECTORY", "/gpt2d.conf", "/etc/gpt2d/gpt2d.conf",
		"XDG_CONFIG_HOME", "/gpt2d/gpt2d.conf", "/.config/gpt2d/gpt2d.conf", ""},
	[SOCKET] = {"socket", "RUNTIME_DIRECTORY", "/gpt2d.sock", "/run/gpt2d/gpt2d.sock",
		"XDG_RUNTIME_DIR", "/gpt2d/gpt2d.sock", NULL,
		"give --socket, or set GPT2D_SOCKET or XDG_RUNTIME_DIR"},
	[STATE] = {"state_dir", "STATE_DIRECTORY", "", "/var/lib/gpt2d", "XDG_STATE_HOME", "/gpt2d",
		"/.local/state/gpt2d", "give --state-dir, or set XDG_STATE_HOME or HOME"},
};

/* An absolute path of the environment; the XDG rules require to ignore others. */
static const char *folder(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] == '/' ? value : NULL;
}

bool paths_are_system(void)
{
	return geteuid() == 0 || folder("STATE_DIRECTORY") != NULL;
}

/* The standard path: whether there is one. */
static bool find(enum place p, char *out, size_t out_bytes)
{
	const char *service = folder(places[p].service), *xdg = folder(places[p].xdg);
	const char *home = folder("HOME");

	if (service != NULL) /* systemd separates several folders by colons; gpt2d uses the first */
		snprintf(out, out_bytes, "%.*s%s", (int)strcspn(service, ":"), service,
			places[p].file);
	else if (paths_are_system())
		snprintf(out, out_bytes, "%s", places[p].system);
	else if (xdg != NULL)
		snprintf(out, out_bytes, "%s%s", xdg, places[p].own);
	else if (home != NULL && places[p].home != NULL)
		snprintf(out, out_bytes, "%s%s", home, places[p].home);
	else
		return false;
	return true;
}

static int choose(enum place p, const char *asked, char *out, size_t out_bytes, char *error,
	size_t error_bytes)
{
	const char *value = getenv(places[p].xdg);
	char path[PATH_MAX];
	int n;

	if (asked != NULL)
		return paths_absolute(asked, places[p].name, out, out_bytes, error, error_bytes);
	if (find(p, path, sizeof(path)))
		return paths_absolute(path, places[p].name, out, out_bytes, error, error_bytes);
	n = snprintf(
		error, error_bytes, "%s: no default path: %s", places[p].name, places[p].advice);
	if (value != NULL && value[0] != '\0' && n >= 0 && (size_t)n < error_bytes)
		snprintf(error + n, error_bytes - (size_t)n,
			"; %s is \"%.64s\", an absolute path is expected", places[p].xdg, value);
	return -EINVAL;
}

bool paths_config(char *out, size_t out_bytes)
{
	return find(CONFIG, out, out_bytes);
}

int paths_socket(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	const size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path);

	return choose(
		SOCKET, asked, out, out_bytes < longest ? out_bytes : longest, error, error_bytes);
}

int paths_state_dir(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	return choose(STATE, asked, out, out_bytes, error, error_bytes);
}
