/* Socket and state directory: rights, room, who has them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/store/database.h"
#include "daemon/store/database_lock.h"
#include "daemon/store/database_look.h"
#include "daemon/config/diagnosis.h"
#include "daemon/store/failure.h"
#include "proto/host/filesystem.h"
#include "daemon/store/lock_holders.h"
#include "daemon/config/paths.h"
#include "daemon/config/place.h"
#include "daemon/config/preflight.h"
#include "daemon/config/reserve.h"
#include "daemon/config/scratch.h"
#include "proto/state_files.h"
#include "daemon/store/store.h"
#include "daemon/store/wal_index.h"

enum { QUEUE_LOOK_MS = 10000 };
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

/* Of the socket and of the database; where one of them has no place, that is told elsewhere. */
static bool lock_places(
	const struct settings *s, char socket[PATH_MAX], char database[PATH_MAX + 16])
{
	char state[PATH_MAX], error[512];

	if (paths_socket(s->socket, socket, PATH_MAX, error, sizeof(error)) < 0 ||
		paths_state_dir(s->state_dir, state, sizeof(state), error, sizeof(error)) < 0)
		return false;
	snprintf(database, PATH_MAX + 16, "%s/" STATE_DATABASE, state);
	return true;
}

/* One gpt2d may have both: where it has only one of them, another cannot start with these two. */
static void check_lock(struct diagnosis *d, bool of_socket)
{
	char socket[PATH_MAX], database[PATH_MAX + 16], error[2 * PATH_MAX + 512], owner[32] = "";
	const char *what = of_socket ? "socket" : "state directory";
	const char *path = of_socket ? socket : database;
	char advice[80];
	long pid;

	if (!lock_places(d->settings, socket, database))
		return;
	pid = holder(path);
	if (pid < 0) {
		diagnosis_add(d, "lock", VERDICT_OK, NULL, "no gpt2d uses the %s", what);
		return;
	}
	if (pid == holder(of_socket ? database : socket)) {
		diagnosis_add(d, "lock", VERDICT_OK, NULL, "the %s is used by gpt2d, process %ld",
			what, pid);
		return;
	}
	if (pid > 0)
		snprintf(owner, sizeof(owner), "%ld", pid);
	place_say_locked(path, owner, error, sizeof(error));
	snprintf(advice, sizeof(advice), "use or end that gpt2d, or set %s to another path",
		of_socket ? "socket" : "state_dir");
	diagnosis_add(d, "lock", VERDICT_FAIL, advice, "%s", error);
}

/* A line to paste. */
static void advise_group(const char *group, const char *setting, char *out, size_t out_bytes)
{
	const struct passwd *own = getpwuid(geteuid());

	if (own != NULL)
		snprintf(out, out_bytes, "as root: usermod -aG %.64s %.64s; or set %s", group,
			own->pw_name, setting);
	else
		snprintf(out, out_bytes,
			"as root: usermod -aG %.64s NAME, once uid %u has a name; or set %s",
			group, (unsigned)geteuid(), setting);
}

/* What the start would say; whether it would go on. */
static bool check_preflight(
	struct diagnosis *d, const char *check, enum preflight what, const char *setting)
{
	char error[2 * PATH_MAX + 512], advice[256];
	int rc = preflight_try(what, d->settings, error, sizeof(error));

	if (rc == 0)
		return true;
	if (what == PREFLIGHT_GROUP)
		advise_group(d->settings->socket_group.name, setting, advice, sizeof(advice));
	else if (what == PREFLIGHT_LOG && strcmp(d->settings->log_file, "journal") == 0)
		snprintf(advice, sizeof(advice), "set %s to \"stderr\" or to a path", setting);
	else if (rc == -EROFS)
		snprintf(advice, sizeof(advice), "mount it for writing, or set %s", setting);
	else if (rc == -EACCES)
		snprintf(advice, sizeof(advice), "run gpt2d as whom it belongs to, or set %s",
			setting);
	else if (rc == -EPERM && what == PREFLIGHT_SOCKET)
		snprintf(advice, sizeof(advice), "chmod o-w that folder, or set %s", setting);
	else if (rc == -ENOENT)
		snprintf(advice, sizeof(advice), "make its folder, or set %s", setting);
	else if (rc == -EINVAL && !preflight_is_set(what, d->settings))
		snprintf(advice, sizeof(advice), "set %s to a path", setting);
	else
		snprintf(advice, sizeof(advice), "set %s to another path%s", setting,
			rc == -ENAMETOOLONG && what == PREFLIGHT_SOCKET ? " (at most 107 bytes)"
									: "");
	diagnosis_add(d, check, VERDICT_FAIL, advice, "%s", error);
	return false;
}

void diagnosis_socket(struct diagnosis *d)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)], folder[PATH_MAX], error[512];
	struct stat st;

	if (!check_preflight(d, "socket", PREFLIGHT_SOCKET, "socket") ||
		!check_preflight(d, "socket", PREFLIGHT_GROUP, "socket_group") ||
		paths_socket(d->settings->socket, path, sizeof(path), error, sizeof(error)) < 0)
		return;
	snprintf(folder, sizeof(folder), "%s", path);
	*strrchr(folder, '/') = '\0';
	existing_folder(folder);
	if (stat(folder, &st) == 0)
		diagnosis_add(d, "socket", VERDICT_OK, NULL,
			"%s (%zu of %zu bytes), %s mode %04o of uid %u", path, strlen(path),
			sizeof(path) - 1, folder, (unsigned)st.st_mode & 07777,
			(unsigned)st.st_uid);
	check_lock(d, true);
}

/* ---- log, data, metrics ---- */

static void add_warning(const char *text, void *arg)
{
	struct diagnosis *d = arg;
	const char *colon = strchr(text, ':');
	char check[32];

	/* the setting's name is the check's */
	snprintf(check, sizeof(check), "%.*s", (int)strcspn(text, "_"), text);
	diagnosis_add(d, check, VERDICT_WARN, "see it in gpt2d.conf(5)", "%s",
		colon ? text : "nothing told");
	d->warned |= check[0] == 'd' ? DIAGNOSIS_DATA : check[0] == 'm' ? DIAGNOSIS_METRICS : 0;
}

void diagnosis_files(struct diagnosis *d)
{
	const struct settings *s = d->settings;

	if (check_preflight(d, "log", PREFLIGHT_LOG, "log_file"))
		diagnosis_add(d, "log", VERDICT_OK, NULL, "%s",
			s->log_file ? s->log_file : "standard error");
	d->warned = 0;
	preflight_warn_files(s, add_warning, d);
	if ((d->warned & DIAGNOSIS_DATA) == 0)
		diagnosis_add(d, "data", VERDICT_OK, NULL, "data_roots: %s%s",
			s->data_roots.n > 0 ? s->data_roots.path[0] : "anywhere",
			s->data_roots.n > 1 ? ", ..." : "");
	if (check_preflight(d, "metrics", PREFLIGHT_METRICS, "metrics_file") &&
		(d->warned & DIAGNOSIS_METRICS) == 0)
		diagnosis_add(d, "metrics", VERDICT_OK, NULL, "%s",
			s->metrics_file ? s->metrics_file : "in no file");
}

/* ---- state ---- */

/* What is to be done where a file could not be made or written. */
static const char *advice_for(int rc, const char *otherwise)
{
	if (rc == -EFBIG)
		return failure_too_large;
	if (failure_is_full(rc))
		return "make room there, gpt2ctl prune removes old runs, or set state_dir";
	return otherwise;
}

static int run_sql(sqlite3 *db, const char *sql)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* A database as gpt2d keeps it, in a folder of its own that goes again. */
static void check_database(struct diagnosis *d, const char *folder)
{
	char path[PATH_MAX + 16];
	struct wal_index *index = NULL;
	struct scratch scratch;
	sqlite3 *db = NULL;
	int rc = scratch_make(&scratch, folder);

	if (rc < 0) {
		diagnosis_add(d, "database", VERDICT_FAIL,
			advice_for(rc,
				"run gpt2d as whom the state directory belongs to, or set"
				" state_dir"),
			"%s: %s", folder, strerror(-rc));
		return;
	}
	snprintf(path, sizeof(path), "%s/" SCRATCH_DATABASE, scratch.path);
	rc = sqlite3_open(path, &db);
	if (rc == SQLITE_OK && wal_index_guard(db, &index) < 0)
		rc = SQLITE_NOMEM;
	if (rc == SQLITE_OK)
		rc = run_sql(db,
			"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
			"CREATE TABLE t (a); INSERT INTO t VALUES (1);");
	snprintf(path, sizeof(path), "%s/" SCRATCH_DATABASE "-wal", scratch.path);
	if (rc != SQLITE_OK)
		diagnosis_add(d, "database", VERDICT_FAIL,
			advice_for(store_errno(db, rc),
				"set state_dir to a folder on a disk of this machine"),
			"%s: SQLite: %s", folder, sqlite3_errmsg(db));
	else if (access(path, F_OK) < 0)
		diagnosis_add(d, "database", VERDICT_FAIL,
			"set state_dir to a folder on a disk of this machine",
			"%s: SQLite keeps no write-ahead log on this file system", folder);
	else
		diagnosis_add(d, "database", VERDICT_OK, NULL,
			"SQLite writes through a write-ahead log in %s", folder);
	sqlite3_close(db);
	wal_index_destroy(index);
	scratch_remove(&scratch);
}

/* Once gpt2d was there. */
static bool lacks_reserve(const char *state)
{
	char path[PATH_MAX + sizeof("/" STATE_DATABASE) + sizeof("/" STATE_RESERVE)];
	struct stat st;

	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, state);
	if (stat(path, &st) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/" STATE_RESERVE, state);
	return lstat(path, &st) < 0 || st.st_size != RESERVE_BYTES;
}

static void check_room(struct diagnosis *d, const char *state, const char *folder)
{
	char system[PATH_MAX];
	struct statvfs fs;
	bool little;
	int64_t room;

	filesystem_describe(folder, system, sizeof(system));
	if (statvfs(folder, &fs) < 0) {
		diagnosis_add(d, "state", VERDICT_FAIL, "set state_dir", "%s: %s", folder,
			strerror(errno));
		return;
	}
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	little = room < 1 << 20;
	if (strstr(system, "(nfs") != NULL || strstr(system, "(cifs)") != NULL)
		diagnosis_add(d, "state", VERDICT_WARN,
			"set state_dir to a disk of this machine: over the network locks and "
			"commits are slow, and on some servers not safe",
			"%s on %s", state, system);
	else if (room < ROOM_BYTES)
		diagnosis_add(d, "state", VERDICT_WARN, "gpt2ctl prune, or another state_dir",
			"%s on %s, %lld %s free%s", state, system,
			(long long)(little ? room >> 10 : room >> 20), little ? "KiB" : "MiB",
			lacks_reserve(state) ? ", its reserve is given up" : "");
	else
		diagnosis_add(d, "state", VERDICT_OK, NULL, "%s on %s, %lld MiB free%s", state,
			system, (long long)(room >> 20),
			strcmp(state, folder) == 0 ? "" : ", to be made");
}

/* That gpt2d tells all but damage, and who keeps it from writing. */
static void check_open_queue(struct diagnosis *d, const char *path, long pid)
{
	char advice[LOCK_HOLDERS_BYTES];

	if (!database_lock_stays(path, DATABASE_BUSY_MS)) {
		diagnosis_add(d, "queue", VERDICT_OK, NULL,
			"%s is open in gpt2d, process %ld: gpt2ctl status", path, pid);
		return;
	}
	lock_holders_advise(path, advice, sizeof(advice));
	diagnosis_add(d, "queue", VERDICT_FAIL, advice,
		"%s is open in gpt2d, process %ld, and another process has it locked", path, pid);
}

/* What is in it already. */
static void check_queue(struct diagnosis *d, const char *path)
{
	struct database_look look;
	char error[512], advice[LOCK_HOLDERS_BYTES];
	long pid = holder(path);
	int rc;

	rc = database_look(path, pid >= 0, QUEUE_LOOK_MS, &look, error, sizeof(error));
	if (pid >= 0 && rc != -EBADMSG) {
		check_open_queue(d, path, pid);
		return;
	}
	if (rc == -ENOENT) {
		diagnosis_add(d, "queue", VERDICT_OK, NULL, "%s is to be made", path);
	} else if (rc == -EBADMSG) {
		diagnosis_add(d, "queue", VERDICT_FAIL,
			STORE_DAMAGED_SECTION " says what to do", "%s: %s", path, error);
	} else if (rc < 0) {
		diagnosis_add(d, "queue", VERDICT_FAIL,
			rc == -EPROTO ? "install the gpt2d that wrote it, or set state_dir"
				      : "see gpt2d.db in gpt2d(8), or set state_dir",
			"%s: %s", path, error);
	} else if (database_lock_stays(path, DATABASE_BUSY_MS)) {
		lock_holders_advise(path, advice, sizeof(advice));
		diagnosis_add(d, "queue", VERDICT_FAIL, advice, "%s: %s", path,
			store_error_text(-EBUSY));
	} else {
		diagnosis_add(d, "queue", VERDICT_OK, NULL, "%s: %lld runs, schema %d, %s", path,
			(long long)look.runs, look.schema,
			look.complete ? "nothing is wrong with it"
				      : "too large to be looked at to the end");
	}
}

void diagnosis_state_dir(struct diagnosis *d)
{
	char state[PATH_MAX], folder[PATH_MAX], database[PATH_MAX + 16], error[512];

	if (!check_preflight(d, "state", PREFLIGHT_STATE, "state_dir") ||
		paths_state_dir(
			d->settings->state_dir, state, sizeof(state), error, sizeof(error)) < 0)
		return;
	snprintf(folder, sizeof(folder), "%s", state);
	existing_folder(folder);
	check_room(d, state, folder);
	check_database(d, folder);
	snprintf(database, sizeof(database), "%s/" STATE_DATABASE, state);
	check_lock(d, false);
	check_queue(d, database);
}
