#include "daemon/config/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/openmetrics.h"
#include "daemon/config/own_files.h"
#include "daemon/config/paths.h"
#include "daemon/config/place.h"
#include "proto/state_files.h"

/* ---- files and folders ---- */

/* With the rights that gpt2d will have. */
static int may(const char *path, int how)
{
	return faccessat(AT_FDCWD, path, how, AT_EACCESS) < 0 ? -errno : 0;
}

static const char *text_of(int rc)
{
	return rc == -EOPNOTSUPP ? "a file system of the kernel" : strerror(-rc);
}

static int refuse(int rc, const char *what, const char *path, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "%s: %s: %s", what, path, text_of(rc));
	return rc;
}

/* The folder that path is in: out has PATH_MAX bytes, path is shorter. */
static void folder_of(const char *path, char *out)
{
	char *slash;

	snprintf(out, PATH_MAX, "%s", path);
	slash = strrchr(out, '/');
	if (slash == NULL)
		strcpy(out, ".");
	else
		slash[slash == out] = '\0';
}

/* Whether its folders are the kernel's, whatever their modes let one do. */
static bool is_of_kernel(const char *folder)
{
	static const long types[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
		CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC,
		DEVPTS_SUPER_MAGIC};
	struct statfs fs;

	if (statfs(folder, &fs) < 0)
		return false;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if ((long)fs.f_type == types[i])
			return true;
	return false;
}

static int may_make_in(const char *folder)
{
	int rc = may(folder, W_OK | X_OK);

	return rc == 0 && is_of_kernel(folder) ? -EOPNOTSUPP : rc;
}

/* at: what is there of path, or stands in its way. */
static int refuse_folder(
	int rc, const char *what, const char *path, const char *at, char *error, size_t error_bytes)
{
	const bool itself = strcmp(path, at) == 0;

	snprintf(error, error_bytes,
		"%s: %s: %s%s%s%s; a folder that can be written to is needed, or a path where one "
		"can be made",
		what, path, itself ? "" : "cannot be made: ", itself ? "" : at, itself ? "" : ": ",
		text_of(rc));
	return rc;
}

/* A folder that is there, to write in, or one that can be made. */
static int try_folder(const char *what, const char *path, char *error, size_t error_bytes)
{
	char at[PATH_MAX];
	struct stat st;
	int rc = 0;

	if (strlen(path) >= sizeof(at))
		return refuse(-ENAMETOOLONG, what, path, error, error_bytes);
	strcpy(at, path);
	/* up to the nearest that is there; a file in the way is ENOTDIR until it is reached */
	while (stat(at, &st) < 0) {
		rc = -errno;
		if ((rc != -ENOENT && rc != -ENOTDIR) || strrchr(at, '/') == NULL)
			return refuse_folder(rc, what, path, at, error, error_bytes);
		if (lstat(at, &st) == 0) /* a link that leads nowhere: no folder is made there */
			return refuse_folder(rc, what, path, at, error, error_bytes);
		*strrchr(at, '/') = '\0';
		if (at[0] == '\0')
			strcpy(at, "/");
	}
	rc = S_ISDIR(st.st_mode) ? may_make_in(at) : -ENOTDIR;
	return rc < 0 ? refuse_folder(rc, what, path, at, error, error_bytes) : 0;
}

/* A file that is not there yet cannot be made where it is to be. */
static int refuse_folder_of(int rc, const char *what, const char *path, const char *folder,
	char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "%s: %s: cannot be made in %s: %s%s", what, path, folder,
		text_of(rc), rc == -ENOENT ? "; gpt2d makes no folder for it" : "");
	return rc;
}

/* A file that is there, to write to, or one that can be made in its folder. */
static int try_file(const char *what, const char *path, char *error, size_t error_bytes)
{
	char folder[PATH_MAX];
	struct stat st;
	int rc;

	if (strlen(path) >= sizeof(folder))
		return refuse(-ENAMETOOLONG, what, path, error, error_bytes);
	rc = stat(path, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : may(path, W_OK);
	if (rc == -ENOENT && lstat(path, &st) < 0) {
		folder_of(path, folder);
		rc = may_make_in(folder);
		if (rc < 0)
			return refuse_folder_of(rc, what, path, folder, error, error_bytes);
	}
	return rc < 0 ? refuse(rc, what, path, error, error_bytes) : 0;
}

/* gpt2d holds the lock of a file beside what it owns, and follows no link there. */
static int try_lock(const char *what, const char *path, char *error, size_t error_bytes)
{
	char lock[PATH_MAX];
	struct stat st;

	if (snprintf(lock, sizeof(lock), "%s.lock", path) >= (int)sizeof(lock))
		return refuse(-ENAMETOOLONG, what, path, error, error_bytes);
	if (lstat(lock, &st) == 0 && S_ISLNK(st.st_mode)) {
		snprintf(error, error_bytes,
			"%s: %s: a link, and gpt2d follows none here; remove it", what, lock);
		return -ELOOP;
	}
	return try_file(what, lock, error, error_bytes);
}

/* ---- each ---- */

/* No name that gpt2d has for another file: own is what that is, or NULL. */
static int try_own(
	const char *own, const char *what, const char *path, char *error, size_t error_bytes)
{
	if (own == NULL)
		return 0;
	snprintf(error, error_bytes,
		"%s: %s: is in the place of a file of gpt2d's own (%s); another name is needed",
		what, path, own);
	return -EINVAL;
}

static int try_log(const struct settings *s, char *error, size_t error_bytes)
{
	int rc;

	rc = log_check(s->log_file, error, error_bytes);
	if (rc < 0 || s->log_file == NULL || strcmp(s->log_file, "stderr") == 0 ||
		strcmp(s->log_file, "journal") == 0)
		return rc;
	rc = try_own(own_files_find(s, s->log_file), "log_file", s->log_file, error, error_bytes);
	return rc < 0 ? rc : try_file("log_file", s->log_file, error, error_bytes);
}

static bool is_log(const struct settings *s, const char *path)
{
	return s->log_file != NULL && strcmp(s->log_file, "stderr") != 0 &&
		strcmp(s->log_file, "journal") != 0 && own_files_same(s->log_file, path);
}

/* That it cannot be written now is a warning: it is tried again in each period. */
static int try_metrics(const struct settings *s, char *error, size_t error_bytes)
{
	const char *why = NULL;
	struct stat st;
	int rc;

	if (s->metrics_file == NULL)
		return 0;
	if (!openmetrics_can_be(s->metrics_file)) {
		snprintf(error, error_bytes, "metrics_file: %s: a file's name is needed",
			s->metrics_file);
		return -EINVAL;
	}
	rc = try_own(own_files_find(s, s->metrics_file), "metrics_file", s->metrics_file, error,
		error_bytes);
	if (rc < 0)
		return rc;
	if (is_log(s, s->metrics_file))
		why = "is log_file too";
	else if (openmetrics_is_ours(s->metrics_file))
		return 0;
	else if (stat(s->metrics_file, &st) == 0 && S_ISDIR(st.st_mode))
		return refuse(-EISDIR, "metrics_file", s->metrics_file, error, error_bytes);
	else if (lstat(s->metrics_file, &st) == 0 && S_ISREG(st.st_mode))
		why = "has something else in it";
	else
		why = "a device, a pipe, a socket or a link";
	snprintf(error, error_bytes,
		"metrics_file: %s: %s, which would be replaced; the name of a file of figures is "
		"needed, or of none that is there",
		s->metrics_file, why);
	return -EINVAL;
}

/* SQLite has names of its own for what it keeps beside a database, and a limit for all of them. */
static int try_length(const char *state, char *error, size_t error_bytes)
{
	const sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	const size_t more = strlen("/" STATE_DATABASE) + strlen("-journal");
	const size_t max = vfs ? (size_t)vfs->mxPathname - more : PATH_MAX - 1 - more;

	if (strlen(state) <= max)
		return 0;
	snprintf(error, error_bytes,
		"state_dir: %s: %zu bytes, SQLite keeps databases in folders of at most %zu", state,
		strlen(state), max);
	return -ENAMETOOLONG;
}

static int try_state(const struct settings *s, char *error, size_t error_bytes)
{
	char state[PATH_MAX], path[PATH_MAX + 16];
	struct stat st;
	int rc = paths_state_dir(s->state_dir, state, sizeof(state), error, error_bytes);

	if (rc == 0)
		rc = try_length(state, error, error_bytes);
	if (rc == 0)
		rc = try_folder("state_dir", state, error, error_bytes);
	snprintf(path, sizeof(path), "%s/" STATE_RUNS, state);
	if (rc == 0)
		rc = try_folder("state_dir", path, error, error_bytes);
	snprintf(path, sizeof(path), "%s/" STATE_TRASH, state);
	if (rc == 0 && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		rc = refuse_folder(-ENOTDIR, "state_dir", path, path, error, error_bytes);
	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, state);
	if (rc < 0 || stat(state, &st) < 0)
		return rc;
	rc = try_lock("state_dir", path, error, error_bytes);
	return rc < 0 ? rc : try_file("state_dir", path, error, error_bytes);
}

static bool may_give_any_group(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	return syscall(SYS_capget, &header, data) == 0 &&
		(data[CAP_TO_INDEX(CAP_CHOWN)].effective & CAP_TO_MASK(CAP_CHOWN)) != 0;
}

/* 1, 0, or -ENOMEM. */
static int is_member(gid_t group)
{
	int n = getgroups(0, NULL), is = group == getegid();
	gid_t *groups = n > 0 ? malloc((size_t)n * sizeof(*groups)) : NULL;

	if (n > 0 && groups == NULL)
		return -ENOMEM;
	n = n > 0 ? getgroups(n, groups) : 0;
	for (int i = 0; i < n && !is; i++)
		is = groups[i] == group;
	free(groups);
	return is;
}

/* -EACCES: whom gpt2d runs as may be in it. */
static int try_group(const struct settings *s, char *error, size_t error_bytes)
{
	const struct settings_group *g = &s->socket_group;
	int member;

	if (g->name == NULL || may_give_any_group())
		return 0;
	member = is_member(g->gid);
	if (member < 0)
		snprintf(error, error_bytes, "out of memory");
	if (member != 0)
		return member < 0 ? member : 0;
	snprintf(error, error_bytes,
		"socket_group: %s: uid %u is not in that group (gid %u) and may not give it the "
		"socket; a group that it is in is needed, or none",
		g->name, (unsigned)geteuid(), (unsigned)g->gid);
	return -EACCES;
}

static int try_socket(const struct settings *s, char *error, size_t error_bytes)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)], folder[PATH_MAX];
	struct stat st;
	int rc = paths_socket(s->socket, path, sizeof(path), error, error_bytes);

	if (rc == 0)
		rc = try_own(own_files_find_state(s, path), "socket", path, error, error_bytes);
	if (rc < 0)
		return rc;
	folder_of(path, folder);
	rc = try_folder("socket", folder, error, error_bytes);
	if (rc < 0 || stat(folder, &st) < 0)
		return rc;
	rc = place_check_socket(path, error, error_bytes);
	if (rc == -EEXIST)
		snprintf(error, error_bytes,
			"socket: %s: is there and is no socket; remove it, or set socket to "
			"another path",
			path);
	return rc < 0 ? rc : try_lock("socket", path, error, error_bytes);
}

int preflight_try(enum preflight what, const struct settings *s, char *error, size_t error_bytes)
{
	static int (*const tries[PREFLIGHTS])(
		const struct settings *s, char *error, size_t error_bytes) = {
		[PREFLIGHT_LOG] = try_log,
		[PREFLIGHT_METRICS] = try_metrics,
		[PREFLIGHT_STATE] = try_state,
		[PREFLIGHT_GROUP] = try_group,
		[PREFLIGHT_SOCKET] = try_socket,
	};

	return tries[what](s, error, error_bytes);
}

const char *preflight_setting(enum preflight what)
{
	static const char *const names[PREFLIGHTS] = {
		[PREFLIGHT_LOG] = "log_file",
		[PREFLIGHT_METRICS] = "metrics_file",
		[PREFLIGHT_STATE] = "state_dir",
		[PREFLIGHT_GROUP] = "socket_group",
		[PREFLIGHT_SOCKET] = "socket",
	};

	return names[what];
}

bool preflight_is_set(enum preflight what, const struct settings *s)
{
	const char *const values[PREFLIGHTS] = {
		[PREFLIGHT_LOG] = s->log_file,
		[PREFLIGHT_METRICS] = s->metrics_file,
		[PREFLIGHT_STATE] = s->state_dir,
		[PREFLIGHT_GROUP] = s->socket_group.name,
		[PREFLIGHT_SOCKET] = s->socket,
	};

	return values[what] != NULL;
}

/* ---- warnings ---- */

static void warn_of_data(
	const struct settings *s, void (*warn)(const char *text, void *arg), void *arg)
{
	char text[PATH_MAX + 256];
	struct stat st;
	int rc;

	if ((place_access(s).mode & 0066) != 0 && s->data_roots.n == 0)
		warn("data_roots: not set, and others than the user that gpt2d runs as may "
		     "connect: their runs read no files; data_roots = DIR ... lets them read "
		     "below those folders",
			arg);
	for (size_t i = 0; i < s->data_roots.n; i++) {
		rc = stat(s->data_roots.path[i], &st) < 0 ? -errno
			: S_ISDIR(st.st_mode)             ? may(s->data_roots.path[i], X_OK)
							  : -ENOTDIR;
		snprintf(text, sizeof(text), "data_roots: %.*s: %s: runs read nothing below it",
			PATH_MAX, s->data_roots.path[i], strerror(-rc));
		if (rc < 0)
			warn(text, arg);
	}
}

/* Settings can be good where nothing says what stands in for those that are not given. */
static void warn_of_places(
	const struct settings *s, void (*warn)(const char *text, void *arg), void *arg)
{
	char path[PATH_MAX], error[PATH_MAX + 256];

	if (s->socket == NULL && paths_socket(NULL, path, sizeof(path), error, sizeof(error)) < 0)
		warn(error, arg);
	if (s->state_dir == NULL &&
		paths_state_dir(NULL, path, sizeof(path), error, sizeof(error)) < 0)
		warn(error, arg);
}

void preflight_warn_files(
	const struct settings *s, void (*warn)(const char *text, void *arg), void *arg)
{
	char error[PATH_MAX + 256], folder[PATH_MAX];
	int rc;

	warn_of_data(s, warn, arg);
	if (s->metrics_file == NULL || strlen(s->metrics_file) >= sizeof(folder))
		return;
	folder_of(s->metrics_file, folder); /* written beside it, then renamed */
	rc = may_make_in(folder);
	snprintf(error, sizeof(error), "metrics_file: %s: %s: it is tried again in each period",
		s->metrics_file, text_of(rc));
	if (rc < 0)
		warn(error, arg);
}

void preflight_warn(const struct settings *s, void (*warn)(const char *text, void *arg), void *arg)
{
	warn_of_places(s, warn, arg);
	preflight_warn_files(s, warn, arg);
}
