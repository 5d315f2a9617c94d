#include "ctl/copy_target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* Why the folder name in dir cannot be entered, as a negative errno: a link is -ELOOP. */
static int why_not(int dir, const char *name, int error)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		error = S_ISLNK(st.st_mode) ? ELOOP : S_ISDIR(st.st_mode) ? error : ENOTDIR;
	return -error;
}

int copy_target_enter(int dir, const char *path, bool make, size_t *bad)
{
	char name[NAME_MAX + 1];
	const char *rest = path;
	int fd = dup(dir), next, rc = fd < 0 ? -errno : 0;

	*bad = 0;
	while (rc == 0 && strchr(rest, '/') != NULL) {
		const size_t n = strcspn(rest, "/");

		memcpy(name, rest, n);
		name[n] = '\0';
		*bad = (size_t)(rest - path) + n;
		rest += n + 1;
		next = -1;
		if (!make || mkdirat(fd, name, 0777) == 0 || errno == EEXIST)
			next = openat(fd, name, DIR_FLAGS);
		if (next < 0)
			rc = why_not(fd, name, errno);
		close(fd);
		fd = next;
	}
	return rc < 0 ? rc : fd;
}

const char *copy_target_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int copy_target_digest(int fd, struct digest *digest, int64_t n)
{
	char bytes[65536];

	while (n > 0) {
		const ssize_t k = read(fd, bytes, n < 65536 ? (size_t)n : sizeof(bytes));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -ENODATA;
		if (digest_add(digest, bytes, (size_t)k) < 0)
			return -EIO;
		n -= k;
	}
	return 0;
}

bool copy_target_has(int folder, const char *name, int64_t bytes, const char *wanted)
{
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct digest *digest = digest_create();
	char sha256[65] = "";
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == bytes &&
		digest && copy_target_digest(fd, digest, bytes) == 0)
		digest_finish(digest, sha256);
	digest_destroy(digest);
	if (fd >= 0)
		close(fd);
	return strcmp(sha256, wanted) == 0;
}
