#include "ctl/results/copy_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
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

enum { HASH_CHARS = 16 };
static const char part_end[] = ".part";

int copy_target_part(const char *name, const char *sha256, char out[COPY_TARGET_PART_BYTES])
{
	int n = snprintf(out, COPY_TARGET_PART_BYTES, ".%s.%.*s%s", name, HASH_CHARS, sha256,
		part_end);

	return n >= 0 && n < COPY_TARGET_PART_BYTES ? 0 : -ENAMETOOLONG;
}

/* .NAME.HASH.part: NAME is put into name. */
static bool is_part(const char *entry, char name[NAME_MAX + 1])
{
	const size_t n = strlen(entry), end = HASH_CHARS + strlen(part_end);
	const char *hash;

	if (entry[0] != '.' || n < end + 3 || n - end - 2 > NAME_MAX)
		return false;
	hash = entry + n - end;
	if (hash[-1] != '.' || strspn(hash, "0123456789abcdef") != HASH_CHARS ||
		strcmp(hash + HASH_CHARS, part_end) != 0)
		return false;
	memcpy(name, entry + 1, n - end - 2);
	name[n - end - 2] = '\0';
	return true;
}

void copy_target_remove_parts(
	int folder, bool (*is_there)(const char *name, const void *arg), const void *arg)
{
	const int fd = openat(folder, ".", DIR_FLAGS);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	char name[NAME_MAX + 1];
	struct stat st;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (is_part(entry->d_name, name) && is_there(name, arg) &&
			fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(st.st_mode))
			unlinkat(folder, entry->d_name, 0);
	if (dir != NULL)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}
