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
