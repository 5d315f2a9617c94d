/* Socket and state directory: rights, room, who has them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/diagnosis.h"
#include "daemon/filesystem.h"
#include "daemon/paths.h"

static const int64_t ROOM_BYTES = INT64_C(1) << 30; /* a queue is small, artifacts are not */

/* The nearest folder on the way to path that is there: path has PATH_MAX bytes. */
static void existing_folder(char *path)
{
	struct stat st;

	while (path[0] != '\0' && stat(path, &st) < 0) {
		char *slash = strrchr(path, '/');

		if (slash == NULL)
			break;
		*slash = '\0';
	}
	if (path[0] == '\0')
		strcpy(path, "/");
}

/*
 * Whoever holds the lock beside path: its process (0: not told), or -1 when nobody does, or there
 * is no such file.
 */
static long holder(const char *path)
{
	char lock[PATH_MAX], text[32] = "";
	long pid = -1;
	int fd;

	if (snprintf(lock, sizeof(lock), "%s.lock", path) >= (int)sizeof(lock))
		return -1;
	fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		pid = read(fd, text, sizeof(text) - 1) > 0 ? atol(text) : 0;
	close(fd);
	return pid;
}

static void check_lock(struct diagnosis *d, const char *what, const char *path)
{
	long pid = holder(path);

	if (pid < 0)
		diagnosis_add(d, "lock", VERDICT_OK, NULL, "no gpt2d uses the %s", what);
	else
		diagnosis_add(d, "lock", VERDICT_OK, NULL, "the %s is used by gpt2d, process %ld",
			what, pid);
}

void diagnosis_socket(struct diagnosis *d)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)], folder[PATH_MAX], error[512];
	struct stat st;

	if (paths_socket(d->settings->socket, path, sizeof(path), error, sizeof(error)) < 0) {
		diagnosis_add(d, "socket", VERDICT_FAIL,
			"set socket to a path of at most 107 bytes, or GPT2D_SOCKET", "%s", error);
		return;
	}
	snprintf(folder, sizeof(folder), "%s", path);
	*strrchr(folder, '/') = '\0';
	existing_folder(folder);
	if (stat(folder, &st) < 0 || access(folder, W_OK | X_OK) < 0)
		diagnosis_add(d, "socket", VERDICT_FAIL,
			"run gpt2d as whom the folder belongs to, or set socket",
			"%s: %s: no right to write there", path, folder);
	else if ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0)
		diagnosis_add(d, "socket", VERDICT_FAIL, "chmod o-w that folder",
			"%s: everybody can write to %s (mode %04o)", path, folder,
			(unsigned)st.st_mode & 07777);
	else
		diagnosis_add(d, "socket", VERDICT_OK, NULL,
			"%s (%zu of %zu bytes), %s mode %04o of uid %u", path, strlen(path),
			sizeof(path) - 1, folder, (unsigned)st.st_mode & 07777,
			(unsigned)st.st_uid);
	check_lock(d, "socket", path);
}

/* ---- state ---- */

static int run_sql(sqlite3 *db, const char *sql)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* A database as gpt2d keeps it, in a folder of its own that goes again. */
static void check_database(struct diagnosis *d, const char *folder)
{
	static const char *const files[] = {"/t.db", "/t.db-wal", "/t.db-shm", ""};
	char own[PATH_MAX], path[PATH_MAX + 16];
	sqlite3 *db = NULL;
	int rc;

	if (snprintf(own, sizeof(own), "%s/.check-XXXXXX", folder) >= (int)sizeof(own) ||
		mkdtemp(own) == NULL) {
		diagnosis_add(d, "database", VERDICT_FAIL,
			"run gpt2d as whom the state directory belongs to, or set state_dir",
			"%s: %s", folder, strerror(errno));
		return;
	}
	snprintf(path, sizeof(path), "%s/t.db", own);
	rc = sqlite3_open(path, &db);
	if (rc == SQLITE_OK)
		rc = run_sql(db,
			"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
			"CREATE TABLE t (a); INSERT INTO t VALUES (1);");
	snprintf(path, sizeof(path), "%s/t.db-wal", own);
	if (rc != SQLITE_OK)
		diagnosis_add(d, "database", VERDICT_FAIL,
			"set state_dir to a folder on a disk of this machine", "%s: SQLite: %s",
			folder, sqlite3_errmsg(db));
	else if (access(path, F_OK) < 0)
		diagnosis_add(d, "database", VERDICT_FAIL,
			"set state_dir to a folder on a disk of this machine",
			"%s: SQLite keeps no write-ahead log on this file system", folder);
	else
		diagnosis_add(d, "database", VERDICT_OK, NULL,
			"SQLite writes through a write-ahead log in %s", folder);
	sqlite3_close(db);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", own, files[i]);
		remove(path);
	}
}

static void check_room(struct diagnosis *d, const char *state, const char *folder)
{
	char system[PATH_MAX];
	struct statvfs fs;
	int64_t room;

	filesystem_describe(folder, system, sizeof(system));
	if (statvfs(folder, &fs) < 0) {
		diagnosis_add(d, "state", VERDICT_FAIL, "set state_dir", "%s: %s", folder,
			strerror(errno));
		return;
	}
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	if (access(folder, W_OK | X_OK) < 0)
		diagnosis_add(d, "state", VERDICT_FAIL,
			"run gpt2d as whom it belongs to, or set state_dir", "%s: %s: %s", state,
			folder, strerror(errno));
	else if (strstr(system, "(nfs") != NULL || strstr(system, "(cifs)") != NULL)
		diagnosis_add(d, "state", VERDICT_WARN,
			"set state_dir to a disk of this machine: over the network locks and "
			"commits are slow, and on some servers not safe",
			"%s on %s", state, system);
	else if (room < ROOM_BYTES)
		diagnosis_add(d, "state", VERDICT_WARN, "gpt2ctl prune, or another state_dir",
			"%s on %s, %lld MiB free", state, system, (long long)(room >> 20));
	else
		diagnosis_add(d, "state", VERDICT_OK, NULL, "%s on %s, %lld MiB free%s", state,
			system, (long long)(room >> 20),
			strcmp(state, folder) == 0 ? "" : ", to be made");
}

void diagnosis_state_dir(struct diagnosis *d)
{
	char state[PATH_MAX], folder[PATH_MAX], database[PATH_MAX + 16], error[512];

	if (paths_state_dir(d->settings->state_dir, state, sizeof(state), error, sizeof(error)) <
		0) {
		diagnosis_add(d, "state", VERDICT_FAIL, "set state_dir", "%s", error);
		return;
	}
	snprintf(folder, sizeof(folder), "%s", state);
	existing_folder(folder);
	check_room(d, state, folder);
	check_database(d, folder);
	snprintf(database, sizeof(database), "%s/gpt2d.db", state);
	check_lock(d, "state directory", database);
}
