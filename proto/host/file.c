#include "proto/host/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/memory.h"

int file_read_at(int fd, void *out, size_t n, int64_t offset)
{
	char *to = out;

	while (n > 0) {
		const ssize_t k = pread(fd, to, n, offset);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -ENODATA;
		to += k;
		offset += k;
		n -= (size_t)k;
	}
	return 0;
}

int file_write(int fd, const void *bytes, size_t n)
{
	const char *from = bytes;

	while (n > 0) {
		const ssize_t k = write(fd, from, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		from += k;
		n -= (size_t)k;
	}
	return 0;
}

int file_write_at(int fd, const void *bytes, size_t n, int64_t offset)
{
	const char *from = bytes;

	while (n > 0) {
		const ssize_t k = pwrite(fd, from, n, offset);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		from += k;
		offset += k;
		n -= (size_t)k;
	}
	return 0;
}

int file_read_all(int fd, size_t max, char **text, size_t *n)
{
	char *bytes = NULL;
	size_t room = 0, used = 0;
	ssize_t k;

	do {
		if (used + 1 >= room) {
			room = room ? 2 * room : 65536;
			bytes = memory_resized(bytes, room);
		}
		k = read(fd, bytes + used, room - used - 1);
		used += k > 0 ? (size_t)k : 0;
	} while ((k > 0 && used <= max) || (k < 0 && errno == EINTR));
	if (k < 0 || used > max) {
		const int rc = k < 0 ? -errno : -EFBIG;

		free(bytes);
		return rc;
	}
	bytes[used] = '\0';
	*text = bytes;
	*n = used;
	return 0;
}

int file_read(const char *path, size_t max, char **text, size_t *n)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat st;
	int rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;

	if (rc == 0)
		rc = S_ISREG(st.st_mode) ? file_read_all(fd, max, text, n) : -EBADMSG;
	if (fd >= 0)
		close(fd);
	return rc;
}
