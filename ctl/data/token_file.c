#include "ctl/data/token_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/file_kind.h"
#include "proto/host/file.h"
#include "proto/host/filesystem.h"
#include "proto/host/memory.h"

enum {
	FORMAT_VERSION = 1,
	CHUNK_TOKENS = 32768,
};

static int io_error(struct ctl_error *e, const char *path, int error)
{
	return ctl_error_set(e, CTL_TRANSPORT, "%s: %s", path, strerror(error));
}

static off_t token_offset(const struct token_file *f, int64_t token)
{
	return (f->headed ? TOKEN_FILE_HEADER_BYTES : 0) + (off_t)token * 2;
}

static int creation_error(const struct token_file *f, int error, struct ctl_error *e)
{
	char *copy = memory_text(f->path);

	if (error == ENOENT)
		ctl_error_set(e, CTL_USAGE,
			"%s: parent directory does not exist\nmake it: mkdir -p %s", f->path,
			dirname(copy));
	else if (error == ENOTDIR)
		ctl_error_set(e, CTL_USAGE, "%s: %s: %s", f->path, dirname(copy), strerror(error));
	else /* the temporary file itself may be the problem */
		io_error(e, access(f->tmp_path, F_OK) == 0 ? f->tmp_path : f->path, error);
	free(copy);
	return e->exit;
}

static const char *file_type(mode_t mode)
{
	return S_ISDIR(mode)                     ? "directory"
		: S_ISLNK(mode)                  ? "symbolic link to nothing"
		: S_ISCHR(mode) || S_ISBLK(mode) ? "device"
		: S_ISSOCK(mode)                 ? "socket"
						 : "pipe";
}

/*
 * The file that the rename will replace: a regular file, or none. A symbolic link stays and its
 * target is replaced.
 */
static int final_path(const char *path, char **out, struct ctl_error *e)
{
	struct stat named, meant;
	bool there = lstat(path, &named) == 0;

	if (there && stat(path, &meant) != 0)
		meant = named;
	if (there && !S_ISREG(meant.st_mode))
		return ctl_error_set(e, CTL_USAGE, "%s: a %s (expected a regular file, or none)",
			path, file_type(meant.st_mode));
	*out = there && S_ISLNK(named.st_mode) ? realpath(path, NULL) : memory_text(path);
	return *out ? 0 : io_error(e, path, errno);
}

/* Whether path is still the open file fd. */
static bool is_named(int fd, const char *path)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
		opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/*
 * Opens the temporary file, empty and locked against a second writer; a leftover of a killed writer
 * is used again. 0 or a negative errno.
 */
static int open_tmp(struct token_file *f)
{
	int error = 0;

	do {
		if (f->fd >= 0)
			close(f->fd); /* the other writer has renamed it meanwhile */
		f->fd = open(f->tmp_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
		if (f->fd < 0)
			return -errno;
		if (flock(f->fd, LOCK_EX | LOCK_NB) != 0)
			error = -errno;
	} while (!error && !is_named(f->fd, f->tmp_path));
	if (!error && ftruncate(f->fd, 0) != 0)
		error = -errno;
	if (error) {
		close(f->fd);
		f->fd = -1;
	}
	return error;
}

int token_file_create(struct token_file *f, const char *path, bool headed, struct ctl_error *e)
{
	int error;

	*f = (struct token_file){.fd = -1, .headed = headed};
	if (final_path(path, &f->path, e) != 0)
		return e->exit;
	f->tmp_path = memory_printed("%s.tmp", f->path);
	error = open_tmp(f);
	if (error) {
		if (error == -EWOULDBLOCK)
			ctl_error_set(e, CTL_TRANSPORT,
				"%s: another gpt2ctl is writing it; wait, or name another file",
				f->path);
		else
			creation_error(f, -error, e);
		free(f->tmp_path);
		f->tmp_path = NULL; /* not ours to remove */
		token_file_abandon(f);
		return e->exit;
	}
	return 0;
}

int token_file_append(struct token_file *f, const uint16_t *tokens, size_t n, struct ctl_error *e)
{
	uint16_t little[CHUNK_TOKENS];

	while (n > 0) {
		const size_t k = n < CHUNK_TOKENS ? n : CHUNK_TOKENS;
		int error;

		for (size_t i = 0; i < k; i++)
			little[i] = htole16(tokens[i]);
		error = file_write_at(f->fd, little, k * 2, token_offset(f, f->n_tokens));
		if (error)
			return io_error(e, f->path, -error);
		f->n_tokens += (int64_t)k;
		tokens += k;
		n -= k;
	}
	return 0;
}

int token_file_move_tail(
	struct token_file *from, int64_t n, struct token_file *to, struct ctl_error *e)
{
	const int64_t first = from->n_tokens - n;
	uint16_t little[CHUNK_TOKENS];

	for (int64_t done = 0; done < n;) {
		const int64_t k = n - done < CHUNK_TOKENS ? n - done : CHUNK_TOKENS;
		int error = file_read_at(
			from->fd, little, (size_t)k * 2, token_offset(from, first + done));

		if (error)
			return io_error(e, from->path, -error);
		error = file_write_at(
			to->fd, little, (size_t)k * 2, token_offset(to, to->n_tokens));
		if (error)
			return io_error(e, to->path, -error);
		to->n_tokens += k;
		done += k;
	}
	if (ftruncate(from->fd, token_offset(from, first)) != 0)
		return io_error(e, from->path, errno);
	from->n_tokens = first;
	return 0;
}

static int write_header(struct token_file *f, struct ctl_error *e)
{
	uint32_t header[TOKEN_FILE_HEADER_BYTES / 4] = {
		htole32(FILE_KIND_MAGIC), htole32(FORMAT_VERSION)};
	int error;

	if (f->n_tokens > INT32_MAX)
		return ctl_error_set(e, CTL_USAGE,
			"%s: %lld tokens, at most %d fit the headed format; use --format raw",
			f->path, (long long)f->n_tokens, INT32_MAX);
	header[2] = htole32((uint32_t)f->n_tokens);
	error = file_write_at(f->fd, header, sizeof(header), 0);
	return error ? io_error(e, f->path, -error) : 0;
}

static int sync_folder(const char *path)
{
	char *copy = memory_text(path);
	const int rc = filesystem_sync(dirname(copy));

	free(copy);
	return rc;
}

int token_file_commit(struct token_file *f, struct ctl_error *e)
{
	int error = 0;

	if (f->headed && write_header(f, e) != 0)
		goto out;
	if (fsync(f->fd) != 0)
		error = errno;
	/* locked until it has its final name */
	if (!error && rename(f->tmp_path, f->path) != 0)
		error = errno;
	if (error) {
		io_error(e, f->path, error);
		goto out;
	}
	free(f->tmp_path);
	f->tmp_path = NULL;
	error = sync_folder(f->path);
	if (error) {
		io_error(e, f->path, -error);
		goto out;
	}
	token_file_abandon(f);
	return 0;
out:
	token_file_abandon(f);
	return e->exit;
}

void token_file_abandon(struct token_file *f)
{
	if (f->tmp_path)
		unlink(f->tmp_path); /* before the lock is released */
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	free(f->tmp_path);
	*f = (struct token_file){.fd = -1};
}
