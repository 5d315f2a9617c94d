#include "proto/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/digest.h"
#include "proto/host/file.h"

static bool name_is_plain(const char *name)
{
	return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
}

static int open_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* *written: number of bytes. */
static int write_parts(int fd, struct artifact_source *source, int64_t *written)
{
	const char *bytes;
	size_t n;
	int rc;

	for (*written = 0; (rc = source->next(source, &bytes, &n)) == 0 && n > 0;) {
		rc = file_write(fd, bytes, n);
		if (rc < 0)
			break;
		*written += (int64_t)n;
	}
	return rc;
}

/* A file with these bytes, durable under its temporary name. On failure it is removed. */
static int write_tmp(
	int dir_fd, const char *tmp, struct artifact_source *source, mode_t mode, int64_t *written)
{
	int rc;
	int fd;

	/* a link with this name is replaced, never written through */
	if (unlinkat(dir_fd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = write_parts(fd, source, written);
	if (rc == 0 && mode != 0 && fchmod(fd, mode) < 0)
		rc = -errno;
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc < 0)
		unlinkat(dir_fd, tmp, 0);
	return rc;
}

int artifact_write_from(const char *dir, const char *name, struct artifact_source *source,
	mode_t mode, int64_t *written)
{
	char tmp[NAME_MAX + 1];
	int dir_fd;
	int rc;
	int length;

	if (!name_is_plain(name))
		return -EINVAL;
	length = snprintf(tmp, sizeof(tmp), ".%s.tmp", name);
	if (length < 0 || (size_t)length >= sizeof(tmp))
		return -ENAMETOOLONG;
	dir_fd = open_dir(dir);
	if (dir_fd < 0)
		return dir_fd;

	rc = write_tmp(dir_fd, tmp, source, mode, written);
	if (rc < 0)
		goto out;
	if (renameat(dir_fd, tmp, dir_fd, name) < 0) {
		rc = -errno;
		unlinkat(dir_fd, tmp, 0);
		goto out;
	}
	if (fsync(dir_fd) < 0)
		rc = -errno;
out:
	close(dir_fd);
	return rc;
}

/* Content that is complete in memory. */
struct whole {
	struct artifact_source source;
	const char *bytes;
	size_t n;
};

static int take_whole(struct artifact_source *source, const char **bytes, size_t *n)
{
	struct whole *w = (struct whole *)source;

	*bytes = w->bytes;
	*n = w->n;
	w->n = 0;
	return 0;
}

int artifact_write_mode(const char *dir, const char *name, const void *bytes, size_t n, mode_t mode)
{
	struct whole w = {.source = {.next = take_whole}, .bytes = bytes, .n = n};
	int64_t written;

	return artifact_write_from(dir, name, &w.source, mode, &written);
}

int artifact_write(const char *dir, const char *name, const void *bytes, size_t n)
{
	return artifact_write_mode(dir, name, bytes, n, 0);
}

int artifact_remove(const char *dir, const char *name)
{
	int dir_fd;
	int rc = 0;

	if (!name_is_plain(name))
		return -EINVAL;
	dir_fd = open_dir(dir);
	if (dir_fd < 0)
		return dir_fd;
	if (unlinkat(dir_fd, name, 0) < 0)
		rc = errno == ENOENT ? 0 : -errno;
	else if (fsync(dir_fd) < 0)
		rc = -errno;
	close(dir_fd);
	return rc;
}

static bool part_valid(const char *name, size_t n)
{
	if (n == 0 || n > NAME_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] <= 0x20 || (unsigned char)name[i] >= 0x7f)
			return false;
	return true;
}

bool artifact_path_valid(const char *path)
{
	if (strlen(path) >= PATH_MAX)
		return false;
	for (int depth = 1; depth <= ARTIFACT_DEPTH; depth++) {
		const size_t n = strcspn(path, "/");

		if (!part_valid(path, n))
			return false;
		if (path[n] == '\0')
			return true;
		path += n + 1;
	}
	return false;
}

int artifact_sha256(const void *bytes, size_t n, char out[65])
{
	struct digest *digest = digest_create();
	int rc = digest ? digest_add(digest, bytes, n) : -EIO;

	if (rc == 0)
		rc = digest_finish(digest, out);
	digest_destroy(digest);
	return rc;
}

const char *artifact_failure_code(int rc)
{
	switch (-rc) {
	case ENOSPC:
	case EDQUOT:
		return "enospc";
	case EROFS:
	case EIO:
	case ENOENT:
	case ESTALE:
		return "io";
	default:
		return "artifacts";
	}
}
