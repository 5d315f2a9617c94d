#include "daemon/config/place.h"

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

#include "proto/host/filesystem.h"
#include "daemon/config/log.h"

enum { LOCK_TRIES = 20, LOCK_PAUSE_MS = 25 };

/* The name of path, which was made just now, is on disk. */
static int sync_name(const char *path)
{
	char parent[PATH_MAX], *slash;
	int rc;

	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash == NULL)
		strcpy(parent, ".");
	else
		slash[slash == parent] = '\0';
	rc = filesystem_sync(parent);
	if (rc != -EACCES)
		return rc;
	log_write(LOG_WARNING, "%s: cannot be read, so that the name of %s may be lost with power",
		parent, path);
	return 0;
}

int place_make_dirs(const char *dir, char *error, size_t error_bytes)
{
	char path[PATH_MAX];
	size_t n = strlen(dir);
	int rc;

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
		if (mkdir(path, 0700) == 0)
			rc = sync_name(path);
		else
			rc = errno == EEXIST || access(path, F_OK) == 0 ? 0 : -errno;
		if (rc < 0) {
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
static int lock_with_patience(int fd, int tries)
{
	static const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
	int rc = flock(fd, LOCK_EX | LOCK_NB);

	for (int i = 0; i < tries && rc < 0 && errno == EWOULDBLOCK; i++) {
		nanosleep(&pause, NULL);
		rc = flock(fd, LOCK_EX | LOCK_NB);
	}
	return rc;
}

void place_say_locked(const char *path, const char *owner, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes,
		"%s: in use by another gpt2d (process %s), which holds %s.lock", path,
		owner[0] ? owner : "unknown", path);
}

static int lock_file(const char *path, int tries, int *fd, char *error, size_t error_bytes)
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
	if (lock_with_patience(f, tries) < 0) {
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
		if (pread(f, owner, sizeof(owner) - 1, 0) > 0)
			owner[strcspn(owner, "\n")] = '\0';
		if (rc == -EBUSY)
			place_say_locked(path, owner, error, error_bytes);
		else
			snprintf(error, error_bytes, "%s: %s", lock, strerror(-rc));
		close(f);
		return rc;
	}
	write_owner(f);
	*fd = f;
	return 0;
}

int place_lock(const char *path, int *fd, char *error, size_t error_bytes)
{
	return lock_file(path, LOCK_TRIES, fd, error, error_bytes);
}

int place_lock_now(const char *path, int *fd, char *error, size_t error_bytes)
{
	return lock_file(path, 0, fd, error, error_bytes);
}

int place_lock_dir(const char *dir, int *fd, char *error, size_t error_bytes)
{
	int f = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (f >= 0 && lock_with_patience(f, LOCK_TRIES) == 0) {
		*fd = f;
		return 0;
	}
	rc = f < 0 || errno != EWOULDBLOCK ? -errno : -EBUSY;
	if (rc == -EBUSY)
		snprintf(error, error_bytes,
			"%s: in use by another gpt2d, whose lock file in it was removed", dir);
	else
		snprintf(error, error_bytes, "%s: %s", dir, strerror(-rc));
	if (f >= 0)
		close(f);
	return rc;
}

bool place_lock_stands(const char *path, int fd)
{
	struct stat ours, there;
	char lock[PATH_MAX];

	if (snprintf(lock, sizeof(lock), "%s.lock", path) >= (int)sizeof(lock))
		return false;
	return fstat(fd, &ours) == 0 && lstat(lock, &there) == 0 && ours.st_dev == there.st_dev &&
		ours.st_ino == there.st_ino;
}

int place_make_socket_dir(
	const char *dir, const struct place_access *access, char *error, size_t error_bytes)
{
	bool group = (access->mode & 0060) != 0, others = (access->mode & 0006) != 0;
	mode_t mode = 0700 | (group ? 0010 : 0) | (others ? 0001 : 0);
	struct stat st;
	int rc;

	if (stat(dir, &st) == 0) {
		if ((mode & 0011 & ~st.st_mode) != 0)
			log_write(LOG_WARNING,
				"socket: %s: those who may connect cannot enter it (mode %04o)",
				dir, (unsigned)st.st_mode & 07777);
		return 0;
	}
	rc = place_make_dirs(dir, error, error_bytes);
	if (rc < 0 || mode == 0700)
		return rc;
	if (access->group != (gid_t)-1 && chown(dir, (uid_t)-1, access->group) < 0)
		rc = -errno;
	if (rc == 0 && chmod(dir, mode) < 0)
		rc = -errno;
	if (rc < 0)
		snprintf(error, error_bytes, "%s: mode %04o for gid %d: %s", dir, (unsigned)mode,
			(int)access->group, strerror(-rc));
	return rc;
}

/* Whoever can rename in a folder can put a socket of his own where clients look for gpt2d. */
static int check_folder(const char *path, char *error, size_t error_bytes)
{
	char dir[PATH_MAX];
	struct stat st;

	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = '\0';
	if (stat(dir[0] ? dir : "/", &st) < 0) {
		int rc = -errno;

		snprintf(error, error_bytes, "%s: %s", dir, strerror(-rc));
		return rc;
	}
	if ((st.st_mode & S_IWOTH) == 0 || (st.st_mode & S_ISVTX) != 0)
		return 0;
	snprintf(error, error_bytes,
		"socket: %s: everybody can write to its folder (mode %04o): chmod o-w %s", path,
		(unsigned)st.st_mode & 07777, dir);
	return -EPERM;
}

/*
 * 0600 from its first moment, then for whom it is; nobody can connect before it listens. The mode
 * of a socket becomes that of its name; a umask would be that of other threads as well.
 */
static int bind_for(int fd, const struct sockaddr_un *address, const struct place_access *access,
	char *error, size_t error_bytes)
{
	int rc = 0;

	if (fchmod(fd, 0600) < 0 ||
		bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		rc = -errno;
	if (rc < 0) {
		snprintf(error, error_bytes, "%s: %s", address->sun_path, strerror(-rc));
		return rc;
	}
	if (access->group != (gid_t)-1 && lchown(address->sun_path, (uid_t)-1, access->group) < 0)
		rc = -errno;
	if (rc == 0 && access->mode != 0600 && chmod(address->sun_path, access->mode) < 0)
		rc = -errno;
	if (rc < 0) {
		snprintf(error, error_bytes, "socket: %s: mode %04o for gid %d: %s",
			address->sun_path, (unsigned)access->mode, (int)access->group,
			strerror(-rc));
		unlink(address->sun_path);
	}
	return rc;
}

int place_check_socket(const char *path, char *error, size_t error_bytes)
{
	struct stat st;
	int rc;

	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		snprintf(error, error_bytes, "%s: longer than a socket's name may be", path);
		return -ENAMETOOLONG;
	}
	rc = check_folder(path, error, error_bytes);
	if (rc == 0 && lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
		snprintf(error, error_bytes, "%s: is there and is no socket", path);
		rc = -EEXIST;
	}
	return rc;
}

int place_bind(const char *path, const struct place_access *access, int *fd,
	struct place_mark *mark, char *error, size_t error_bytes)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	int f, rc = place_check_socket(path, error, error_bytes);

	if (rc < 0)
		return rc;
	strcpy(address.sun_path, path);
	f = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (f < 0 || (unlink(path) < 0 && errno != ENOENT))
		rc = -errno;
	if (rc < 0)
		snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
	else
		rc = bind_for(f, &address, access, error, error_bytes);
	if (rc == 0 && lstat(path, &st) < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
	}
	if (rc < 0) {
		if (f >= 0)
			close(f);
		return rc;
	}
	*fd = f;
	*mark = (struct place_mark){st.st_dev, st.st_ino};
	return 0;
}

bool place_stands(const char *path, const struct place_mark *mark)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == mark->device && st.st_ino == mark->inode;
}

bool place_answers(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	bool answers = false;
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return false;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	/* EAGAIN: as many as it takes wait already */
	answers = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ||
		errno == EAGAIN;
	close(fd);
	return answers;
}

void place_unlink(const char *path, const struct place_mark *mark)
{
	if (place_stands(path, mark))
		unlink(path);
}
