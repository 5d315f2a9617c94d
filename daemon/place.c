#include "daemon/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 20, LOCK_PAUSE_MS = 25 };

static int absolute(const char *path, const char *what, char *out, size_t out_bytes, char *error,
	size_t error_bytes)
{
	char here[PATH_MAX] = "";
	int n;

	if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
		n = -errno;
		snprintf(error, error_bytes, "%s: %s: %s", what, path, strerror(errno));
		return n;
	}
	n = snprintf(out, out_bytes, "%s%s%s", here, here[0] ? "/" : "", path);
	if (n >= 0 && (size_t)n < out_bytes)
		return 0;
	snprintf(error, error_bytes, "%s: %s: longer than %zu bytes", what, path, out_bytes - 1);
	return -ENAMETOOLONG;
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

int place_socket_path(
	const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	const char *runtime = environment("XDG_RUNTIME_DIR");
	char path[PATH_MAX];
	size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path);

	if (out_bytes > longest)
		out_bytes = longest;
	if (asked == NULL)
		asked = environment("GPT2D_SOCKET");
	if (asked == NULL && runtime != NULL) {
		snprintf(path, sizeof(path), "%s/gpt2d/gpt2d.sock", runtime);
		asked = path;
	}
	if (asked == NULL && geteuid() == 0)
		asked = "/run/gpt2d/gpt2d.sock";
	if (asked == NULL) {
		snprintf(error, error_bytes,
			"socket: no place for it: give --socket, or set GPT2D_SOCKET or"
			" XDG_RUNTIME_DIR");
		return -EINVAL;
	}
	return absolute(asked, "socket", out, out_bytes, error, error_bytes);
}

int place_state_dir(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	const char *state = environment("XDG_STATE_HOME"), *home = environment("HOME");
	char path[PATH_MAX];

	if (asked == NULL && state != NULL) {
		snprintf(path, sizeof(path), "%s/gpt2d", state);
		asked = path;
	}
	if (asked == NULL && geteuid() == 0)
		asked = "/var/lib/gpt2d";
	if (asked == NULL && home != NULL) {
		snprintf(path, sizeof(path), "%s/.local/state/gpt2d", home);
		asked = path;
	}
	if (asked == NULL) {
		snprintf(error, error_bytes,
			"state-dir: no place for it: give --state-dir, or set XDG_STATE_HOME or "
			"HOME");
		return -EINVAL;
	}
	return absolute(asked, "state-dir", out, out_bytes, error, error_bytes);
}

int place_engine(const char *asked, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	/* beside gpt2d: installed, libexec, and the build tree */
	static const char *const places[] = {
		"gpt2-engine-cpu",
		"../libexec/gpt2d/gpt2-engine-cpu",
		"../engine/gpt2-engine-cpu",
	};
	char own[PATH_MAX], *slash;
	ssize_t n;

	if (asked != NULL) {
		int rc = absolute(asked, "engine", out, out_bytes, error, error_bytes);

		if (rc == 0 && access(out, X_OK) < 0) {
			rc = -errno;
			snprintf(error, error_bytes, "engine: %s: %s", out, strerror(errno));
		}
		return rc;
	}
	n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	own[n < 0 ? 0 : n] = '\0';
	slash = strrchr(own, '/');
	for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
		int length =
			snprintf(out, out_bytes, "%.*s/%s", (int)(slash - own), own, places[i]);

		if (length > 0 && (size_t)length < out_bytes && access(out, X_OK) == 0) {
			/* for those who read it in status: without "..", if it can be told */
			if (realpath(out, own) != NULL && strlen(own) < out_bytes)
				strcpy(out, own);
			return 0;
		}
	}
	snprintf(error, error_bytes, "engine: no gpt2-engine-cpu beside %s: give --engine", own);
	return -ENOENT;
}

int place_make_dirs(const char *dir, char *error, size_t error_bytes)
{
	char path[PATH_MAX];
	size_t n = strlen(dir);

	if (n >= sizeof(path)) {
		snprintf(error, error_bytes, "%s: too long", dir);
		return -ENAMETOOLONG;
	}
	memcpy(path, dir, n + 1);
	for (char *c = path + 1; c <= path + n; c++) {
		char kept = *c;

		if (kept != '/' && kept != '\0')
			continue;
		*c = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST && access(path, F_OK) < 0) {
			int rc = -errno;

			snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
			return rc;
		}
		*c = kept;
	}
	return 0;
}

static void write_owner(int fd)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) < 0)
		return; /* it is only for the message to a second one */
}

/*
 * A gpt2d that was killed while it started an engine has left a child that holds the lock until it
 * calls exec or notices that its parent is gone.
 */
static int lock_with_patience(int fd)
{
	static const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
	int rc = flock(fd, LOCK_EX | LOCK_NB);

	for (int i = 0; i < LOCK_TRIES && rc < 0 && errno == EWOULDBLOCK; i++) {
		nanosleep(&pause, NULL);
		rc = flock(fd, LOCK_EX | LOCK_NB);
	}
	return rc;
}

int place_lock(const char *path, int *fd, char *error, size_t error_bytes)
{
	char lock[PATH_MAX], owner[32] = "";
	int f, rc;

	if (snprintf(lock, sizeof(lock), "%s.lock", path) >= (int)sizeof(lock)) {
		snprintf(error, error_bytes, "%s: too long", path);
		return -ENAMETOOLONG;
	}
	f = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (f < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "%s: %s", lock, strerror(-rc));
		return rc;
	}
	if (lock_with_patience(f) < 0) {
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
		if (pread(f, owner, sizeof(owner) - 1, 0) > 0)
			owner[strcspn(owner, "\n")] = '\0';
		if (rc == -EBUSY)
			snprintf(error, error_bytes,
				"%s: in use by another gpt2d (process %s), which holds %s", path,
				owner[0] ? owner : "unknown", lock);
		else
			snprintf(error, error_bytes, "%s: %s", lock, strerror(-rc));
		close(f);
		return rc;
	}
	write_owner(f);
	*fd = f;
	return 0;
}

int place_bind(const char *path, int *fd, struct place_mark *mark, char *error, size_t error_bytes)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	mode_t mask;
	int f, rc = 0;

	if (strlen(path) >= sizeof(address.sun_path)) {
		snprintf(error, error_bytes, "%s: longer than a socket's name may be", path);
		return -ENAMETOOLONG;
	}
	strcpy(address.sun_path, path);
	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
		snprintf(error, error_bytes, "%s: is there and is no socket", path);
		return -EEXIST;
	}
	f = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (f < 0 || (unlink(path) < 0 && errno != ENOENT))
		rc = -errno;
	mask = umask(0177);
	if (rc == 0 && bind(f, (struct sockaddr *)&address, sizeof(address)) < 0)
		rc = -errno;
	umask(mask);
	if (rc == 0 && lstat(path, &st) < 0)
		rc = -errno;
	if (rc < 0) {
		snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
		if (f >= 0)
			close(f);
		return rc;
	}
	*fd = f;
	*mark = (struct place_mark){st.st_dev, st.st_ino};
	return 0;
}

void place_unlink(const char *path, const struct place_mark *mark)
{
	struct stat st;

	if (lstat(path, &st) == 0 && st.st_dev == mark->device && st.st_ino == mark->inode)
		unlink(path);
}
