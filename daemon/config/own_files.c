#include "daemon/config/own_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "daemon/config/paths.h"
#include "proto/state_files.h"

/* Absolute, and without links as far as it is there; false where it does not fit. */
static bool resolve(const char *path, char out[PATH_MAX])
{
	char full[PATH_MAX], prefix[PATH_MAX], error[256];
	size_t n, used;

	if (paths_absolute(path, "", full, sizeof(full), error, sizeof(error)) < 0)
		return false;
	n = strlen(full);
	for (;;) {
		snprintf(prefix, sizeof(prefix), "%.*s", n > 0 ? (int)n : 1, full);
		if (realpath(prefix, out) != NULL)
			break;
		if (n == 0)
			return false;
		do
			n--;
		while (n > 0 && full[n] != '/');
	}
	if (full[n] == '\0')
		return true;
	used = strcmp(out, "/") == 0 ? 0 : strlen(out);
	return snprintf(out + used, PATH_MAX - used, "%s", full + n) < (int)(PATH_MAX - used);
}

bool own_files_same(const char *a, const char *b)
{
	char real_a[PATH_MAX], real_b[PATH_MAX];
	struct stat st_a, st_b;

	if (stat(a, &st_a) == 0 && stat(b, &st_b) == 0 && S_ISREG(st_a.st_mode))
		return st_a.st_dev == st_b.st_dev && st_a.st_ino == st_b.st_ino;
	return resolve(a, real_a) && resolve(b, real_b) && strcmp(real_a, real_b) == 0;
}

static bool is_below(const char *path, const char *folder)
{
	char real_path[PATH_MAX], real_folder[PATH_MAX];
	size_t n;

	if (!resolve(path, real_path) || !resolve(folder, real_folder))
		return false;
	n = strlen(real_folder);
	return strncmp(real_path, real_folder, n) == 0 &&
		(real_path[n] == '\0' || real_path[n] == '/');
}

static const char *find_in_state(const char *state, const char *path)
{
	static const struct {
		const char *name, *what;
		bool folder;
	} own[] = {
		{STATE_DATABASE, "the queue", false},
		{STATE_DATABASE "-wal", "the queue's log", false},
		{STATE_DATABASE "-shm", "the queue's index", false},
		{STATE_DATABASE "-journal", "the queue's journal", false},
		{STATE_DATABASE ".lock", "the queue's lock", false},
		{STATE_RESERVE, "the reserve", false},
		{STATE_RUNS, "the folder of runs", true},
		{STATE_TUNING, "the folder of tuning", true},
	};
	char full[PATH_MAX + 32];

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		snprintf(full, sizeof(full), "%s/%s", state, own[i].name);
		if (own[i].folder ? is_below(path, full) : own_files_same(path, full))
			return own[i].what;
	}
	return is_below(state, path) ? "the state directory" : NULL;
}

const char *own_files_find_state(const struct settings *s, const char *path)
{
	char state[PATH_MAX], error[512];

	if (paths_state_dir(s->state_dir, state, sizeof(state), error, sizeof(error)) < 0)
		return NULL;
	return find_in_state(state, path);
}

/* /dev/null, with which no file is read. */
static bool is_device(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

const char *own_files_find(const struct settings *s, const char *path)
{
	char socket[sizeof(((struct sockaddr_un *)0)->sun_path)], error[512];
	char lock[sizeof(socket) + 8];

	if (s->config_file != NULL && !is_device(s->config_file) &&
		own_files_same(path, s->config_file))
		return "the settings";
	if (paths_socket(s->socket, socket, sizeof(socket), error, sizeof(error)) == 0) {
		snprintf(lock, sizeof(lock), "%s.lock", socket);
		if (own_files_same(path, socket))
			return "the socket";
		if (own_files_same(path, lock))
			return "the socket's lock";
	}
	return own_files_find_state(s, path);
}
