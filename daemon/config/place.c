#include "daemon/config/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "proto/host/filesystem.h"

enum { LOCK_TRIES = 20, LOCK_PAUSE_MS = 25 };

static int fail(int rc, const char *path, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
	return rc;
}

struct place_access place_access(const struct settings *s)
{
	return (struct place_access){settings_socket_mode(s),
		s->socket_group.name != NULL ? s->socket_group.gid : (gid_t)-1};
}

/* ---- folders ---- */

/* Makes the name of path durable. A parent that cannot be opened cannot be synced. */
static int sync_name(const char *path)
{
	char parent[PATH_MAX];
	int rc = filesystem_sync(filesystem_folder(path, parent));

	return rc == -EACCES ? 0 : rc;
}

int place_make_dirs(const char *dir, char *error, size_t error_bytes)
{
	char path[PATH_MAX];
	const size_t n = strlen(dir);
	int rc;

	if (n >= sizeof(path))
		return fail(-ENAMETOOLONG, dir, error, error_bytes);
	memcpy(path, dir, n + 1);
	for (char *c = path + 1; c <= path + n; c++) {
		const char kept = *c;

		if (kept != '/' && kept != '\0')
			continue;
		*c = '\0';
		if (mkdir(path, 0700) == 0)
			rc = sync_name(path);
		else
			rc = errno == EEXIST || access(path, F_OK) == 0 ? 0 : -errno;
		if (rc < 0)
			return fail(rc, path, error, error_bytes);
		*c = kept;
	}
	return 0;
}

int place_make_socket_dir(
	const char *socket, const struct place_access *access, char *error, size_t error_bytes)
{
	const bool group = (access->mode & 0060) != 0, others = (access->mode & 0006) != 0;
	const mode_t mode = 0700 | (group ? 0010 : 0) | (others ? 0001 : 0);
	char folder[PATH_MAX];
	const char *dir = filesystem_folder(socket, folder);
	struct stat st;
	int rc;

	if (stat(dir, &st) == 0) {
		if ((mode & 0011 & ~st.st_mode) != 0)
			log_write(LOG_WARNING,
				"socket: %s: users who may connect cannot enter this folder (mode "
				"%04o)",
				dir, (unsigned)st.st_mode & 07777);
		return 0;
	}
	rc = place_make_dirs(dir, error, error_bytes);
	if (rc < 0 || mode == 0700)
		return rc;
	if ((access->group != (gid_t)-1 && chown(dir, (uid_t)-1, access->group) < 0) ||
		chmod(dir, mode) < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "%s: mode %04o for gid %d: %s", dir, (unsigned)mode,
			(int)access->group, strerror(-rc));
	}
	return rc;
}

/* ---- locks ---- */

/*
 * A gpt2d that was killed while it started an engine leaves a child that holds the lock until the
 * child calls exec or notices that its parent is gone.
 */
static int lock(int fd)
{
	static const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
	int rc = flock(fd, LOCK_EX | LOCK_NB);

	for (int i = 0; i < LOCK_TRIES && rc < 0 && errno == EWOULDBLOCK; i++) {
		nanosleep(&pause, NULL);
		rc = flock(fd, LOCK_EX | LOCK_NB);
	}
	if (rc < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return 0;
}

int place_lock(const char *path, int *fd, char *error, size_t error_bytes)
{
	char name[PATH_MAX], owner[32] = "";
	int f, n, rc;

	if (snprintf(name, sizeof(name), "%s.lock", path) >= (int)sizeof(name))
		return fail(-ENAMETOOLONG, path, error, error_bytes);
	f = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (f < 0)
		return fail(-errno, name, error, error_bytes);
	rc = lock(f);
	if (rc < 0) {
		if (rc == -EBUSY && pread(f, owner, sizeof(owner) - 1, 0) >= 0) {
			owner[strcspn(owner, "\n")] = '\0';
			snprintf(error, error_bytes,
				"%s: in use by another gpt2d (process %s), which holds %s.lock",
				path, owner[0] ? owner : "unknown", path);
		} else {
			fail(rc, name, error, error_bytes);
		}
		close(f);
		return rc;
	}
	n = snprintf(owner, sizeof(owner), "%ld\n", (long)getpid());
	if (ftruncate(f, 0) < 0 || pwrite(f, owner, (size_t)n, 0) < 0)
		log_write(
			LOG_WARNING, "%s: %s", name, strerror(errno)); /* only for the text above */
	*fd = f;
	return 0;
}

int place_lock_dir(const char *dir, int *fd, char *error, size_t error_bytes)
{
	int f = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (f < 0)
		return fail(-errno, dir, error, error_bytes);
	rc = lock(f);
	if (rc == 0) {
		*fd = f;
		return 0;
	}
	fail(rc, dir, error, error_bytes);
	if (rc == -EBUSY)
		snprintf(error, error_bytes,
			"%s: in use by another gpt2d, whose lock file in it was removed", dir);
	close(f);
	return rc;
}

/* ---- the socket ---- */

/* A user who can rename in a folder can put another socket where clients look for gpt2d. */
static int check_folder(const char *path, char *error, size_t error_bytes)
{
	char folder[PATH_MAX];
	const char *dir = filesystem_folder(path, folder);
	struct stat st;

	if (stat(dir, &st) < 0)
		return fail(-errno, dir, error, error_bytes);
	if ((st.st_mode & S_IWOTH) == 0 || (st.st_mode & S_ISVTX) != 0)
		return 0;
	snprintf(error, error_bytes,
		"socket: %s: everybody can write to its folder (mode %04o): chmod o-w %s", path,
		(unsigned)st.st_mode & 07777, dir);
	return -EPERM;
}

int place_check_socket(const char *path, char *error, size_t error_bytes)
{
	struct stat st;
	int rc;

	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		snprintf(error, error_bytes, "%s: too long for the path of a socket", path);
		return -ENAMETOOLONG;
	}
	rc = check_folder(path, error, error_bytes);
	if (rc == 0 && lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
		snprintf(error, error_bytes, "%s: exists and is not a socket", path);
		rc = -EEXIST;
	}
	return rc;
}

/* The kernel answers connect(), so a stopped process is live too; EAGAIN: its queue is full. */
static bool is_live(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool live = fd >= 0 &&
		(connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
			errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return live;
}

/*
 * The mode of the descriptor becomes the mode of the name: 0600 from the start, without a umask,
 * which other threads share. Clients cannot connect before it listens.
 */
static int bind_as(int fd, const struct sockaddr_un *address, const struct place_access *access,
	char *error, size_t error_bytes)
{
	const char *path = address->sun_path;
	int rc = 0;

	if (fchmod(fd, 0600) < 0 ||
		bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return fail(-errno, path, error, error_bytes);
	if ((access->group != (gid_t)-1 && lchown(path, (uid_t)-1, access->group) < 0) ||
		(access->mode != 0600 && chmod(path, access->mode) < 0)) {
		rc = -errno;
		snprintf(error, error_bytes, "socket: %s: mode %04o for gid %d: %s", path,
			(unsigned)access->mode, (int)access->group, strerror(-rc));
		unlink(path);
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
	if (is_live(&address)) {
		snprintf(error, error_bytes, "%s: another program listens there", path);
		return -EBUSY;
	}
	f = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (f < 0)
		return fail(-errno, path, error, error_bytes);
	if (unlink(path) < 0 && errno != ENOENT)
		rc = fail(-errno, path, error, error_bytes);
	if (rc == 0)
		rc = bind_as(f, &address, access, error, error_bytes);
	if (rc == 0 && lstat(path, &st) < 0)
		rc = fail(-errno, path, error, error_bytes);
	if (rc < 0) {
		close(f);
		return rc;
	}
	*fd = f;
	*mark = (struct place_mark){st.st_dev, st.st_ino};
	return 0;
}

bool place_unchanged(const char *path, const struct place_mark *mark)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == mark->device && st.st_ino == mark->inode;
}

void place_unlink(const char *path, const struct place_mark *mark)
{
	if (place_unchanged(path, mark))
		unlink(path);
}
