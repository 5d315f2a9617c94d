#include "ctl/data/token_reader.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/data/token_file.h"
#include "ctl/link/interrupt.h"
#include "proto/digest.h"
#include "proto/file_kind.h"
#include "proto/host/file.h"
#include "proto/host/memory.h"

enum { CHUNK_BYTES = 1 << 18 };

static int read_at(
	const struct token_reader *r, void *out, size_t n, int64_t offset, struct ctl_error *e)
{
	const int rc = file_read_at(r->fd, out, n, offset);

	return rc == 0
		? 0
		: ctl_error_set(e, CTL_USAGE, "%.800s: %s", r->path,
			  rc == -ENODATA ? "it became shorter while it was read" : strerror(-rc));
}

static int read_header(struct token_reader *r, struct ctl_error *e)
{
	uint32_t header[3];
	int64_t count;

	if (r->bytes < TOKEN_FILE_HEADER_BYTES)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: %lld bytes, cut off within its header of %d bytes", r->path,
			(long long)r->bytes, TOKEN_FILE_HEADER_BYTES);
	if (read_at(r, header, sizeof(header), 0, e) != 0)
		return e->exit;
	if (le32toh(header[1]) != 1)
		return ctl_error_set(e, CTL_USAGE, "%.800s: format version %u (expected 1)",
			r->path, (unsigned)le32toh(header[1]));
	count = (int32_t)le32toh(header[2]);
	r->headed = true;
	r->n_tokens = (r->bytes - TOKEN_FILE_HEADER_BYTES) / 2;
	if (count < 0 || r->bytes != TOKEN_FILE_HEADER_BYTES + 2 * count)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: %lld bytes, but its header has %lld tokens (expected %lld bytes)",
			r->path, (long long)r->bytes, (long long)count,
			(long long)(TOKEN_FILE_HEADER_BYTES + 2 * count));
	return 0;
}

static int read_format(struct token_reader *r, struct ctl_error *e)
{
	unsigned char first[4096];
	const size_t n = r->bytes < 4096 ? (size_t)r->bytes : 4096;
	enum file_kind kind;

	if (read_at(r, first, n, 0, e) != 0)
		return e->exit;
	kind = file_kind(first, n);
	if (kind == FILE_KIND_TOKENS)
		return read_header(r, e);
	if (file_kind_name(kind))
		return ctl_error_set(e, CTL_USAGE, "%.800s: %s, not tokens%s", r->path,
			file_kind_name(kind),
			kind == FILE_KIND_TEXT ? "; gpt2ctl data prepare makes tokens of it" : "");
	if (r->bytes % 2 != 0)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: %lld bytes, an odd number (tokens have 2 bytes)", r->path,
			(long long)r->bytes);
	r->headed = false;
	r->n_tokens = r->bytes / 2;
	return 0;
}

int token_reader_open(struct token_reader *r, const char *path, struct ctl_error *e)
{
	struct stat st;

	*r = (struct token_reader){.path = path};
	r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (r->fd < 0 || fstat(r->fd, &st) != 0)
		ctl_error_set(e, CTL_USAGE, "%.800s: %s", *path ? path : "\"\"", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		ctl_error_set(e, CTL_USAGE, "%.800s: not a regular file", path);
	else {
		r->bytes = st.st_size;
		if (read_format(r, e) == 0)
			return 0;
	}
	token_reader_close(r);
	return e->exit;
}

void token_reader_close(struct token_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

int token_reader_read(
	const struct token_reader *r, int64_t first, size_t n, uint16_t *out, struct ctl_error *e)
{
	const int64_t offset = (r->headed ? TOKEN_FILE_HEADER_BYTES : 0) + 2 * first;

	if (read_at(r, out, n * 2, offset, e) != 0)
		return e->exit;
	for (size_t i = 0; i < n; i++)
		out[i] = le16toh(out[i]);
	return 0;
}

static void count(struct token_summary *s, const unsigned char *bytes, size_t n, int64_t first)
{
	for (size_t i = 0; i + 1 < n; i += 2) {
		const uint16_t id = (uint16_t)(bytes[i] | bytes[i + 1] << 8);

		if (id > s->largest) {
			s->largest = id;
			s->largest_at = first + (int64_t)i / 2;
		}
		s->counts[id]++;
	}
}

static int summarize(const struct token_reader *r, struct token_summary *s, unsigned char *chunk,
	struct digest *digest, struct ctl_error *e)
{
	const int64_t begin = r->headed ? TOKEN_FILE_HEADER_BYTES : 0;

	for (int64_t at = 0, n; at < r->bytes; at += n) {
		/* the header is one chunk */
		const int64_t end = at < begin ? begin : r->bytes;

		n = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
		if (interrupt_seen())
			return ctl_error_set(e, CTL_CANCELLED, "interrupted");
		if (read_at(r, chunk, (size_t)n, at, e) != 0)
			return e->exit;
		if (digest_add(digest, chunk, (size_t)n) != 0)
			break;
		if (at >= begin)
			count(s, chunk, (size_t)n, (at - begin) / 2);
	}
	if (digest_finish(digest, s->sha256) != 0)
		return ctl_error_set(e, CTL_TRANSPORT, "%.800s: libcrypto failed", r->path);
	return 0;
}

int token_reader_summarize(
	const struct token_reader *r, struct token_summary *s, struct ctl_error *e)
{
	unsigned char *chunk = memory_resized(NULL, CHUNK_BYTES);
	struct digest *digest = digest_create();
	int exit;

	memset(s, 0, sizeof(*s));
	s->largest = -1;
	s->largest_at = -1;
	if (digest)
		exit = summarize(r, s, chunk, digest, e);
	else
		exit = ctl_error_set(e, CTL_TRANSPORT, "libcrypto has no SHA-256");
	for (size_t id = 0; id < 65536; id++)
		s->distinct += s->counts[id] > 0;
	digest_destroy(digest);
	free(chunk);
	return exit;
}
