#include "ctl/data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "ctl/link/interrupt.h"
#include "proto/file_kind.h"
#include "proto/host/memory.h"

enum {
	PACKED_BYTES = 1 << 18,
	KIND_BYTES = 8, /* bytes for file_kind */
};

enum packing { PACKING_UNKNOWN, PACKING_NONE, PACKING_GZIP, PACKING_ZSTD };

struct input {
	char *name;
	int fd;
	enum packing packing;
	unsigned char *packed; /* bytes at..n were read from the file and not used yet */
	size_t at, n;
	bool file_ended;
	bool open_member; /* a packed stream has begun and not ended */
	int64_t bytes_read;
	z_stream zlib;
	ZSTD_DStream *zstd;
};

int input_open(struct input **out, const char *name, struct ctl_error *e)
{
	const bool is_stdin = strcmp(name, "-") == 0;
	/* without O_NONBLOCK, a signal could not end the open of a pipe without a writer */
	const int fd = is_stdin ? STDIN_FILENO : open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct input *in;

	if (fd < 0)
		return ctl_error_set(
			e, CTL_USAGE, "%.800s: %s", *name ? name : "\"\"", strerror(errno));
	in = memory_zeroed(1, sizeof(*in));
	in->name = memory_text(is_stdin ? "stdin" : name);
	in->fd = fd;
	in->packed = memory_resized(NULL, PACKED_BYTES);
	*out = in;
	return 0;
}

void input_close(struct input *in)
{
	if (!in)
		return;
	if (in->packing == PACKING_GZIP)
		inflateEnd(&in->zlib);
	ZSTD_freeDStream(in->zstd);
	if (in->fd != STDIN_FILENO)
		close(in->fd);
	free(in->packed);
	free(in->name);
	free(in);
}

const char *input_name(const struct input *in)
{
	return in->name;
}

int input_fd(const struct input *in)
{
	return in->fd;
}

int64_t input_bytes_read(const struct input *in)
{
	return in->bytes_read;
}

/* Bytes of the file itself: *n, 0 at its end. */
static int read_file(
	struct input *in, unsigned char *out, size_t room, size_t *n, struct ctl_error *e)
{
	for (;;) {
		struct pollfd ready = {in->fd, POLLIN, 0};
		ssize_t k;

		if (interrupt_seen() || (interrupt_poll(&ready, 1, -1) < 0 && errno == EINTR))
			return ctl_error_set(e, CTL_CANCELLED, "interrupted");
		k = read(in->fd, out, room);
		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k < 0)
			return ctl_error_set(e, CTL_USAGE, "%.800s: %s", in->name, strerror(errno));
		in->file_ended = k == 0;
		in->bytes_read += k;
		*n = (size_t)k;
		return 0;
	}
}

/* What to do with a file that is not text. */
static const char *const advice[] = {[FILE_KIND_ZIP] = "; unpack it first",
	[FILE_KIND_XZ] = "; unpack it first: xz -dc FILE | gpt2ctl data prepare -o OUT -",
	[FILE_KIND_BZIP2] = "; unpack it first: bzip2 -dc FILE | gpt2ctl data prepare -o OUT -",
	[FILE_KIND_NUMPY] = ", not text",
	[FILE_KIND_TOKENS] = "already a token file; name it in data.train of a run spec"};

/* Reads the first bytes and sets the packing. */
static int begin(struct input *in, struct ctl_error *e)
{
	enum file_kind kind;
	size_t k;

	while (in->n < KIND_BYTES && !in->file_ended) {
		if (read_file(in, in->packed + in->n, PACKED_BYTES - in->n, &k, e) != 0)
			return e->exit;
		in->n += k;
	}
	kind = file_kind(in->packed, in->n);
	if (advice[kind])
		return ctl_error_set(e, CTL_USAGE, "%.800s: %s%s", in->name,
			file_kind_name(kind) ? file_kind_name(kind) : "", advice[kind]);
	switch (kind) {
	case FILE_KIND_GZIP:
		if (inflateInit2(&in->zlib, 15 + 16) != Z_OK) /* 16: gzip, not zlib's own */
			memory_exhausted();
		in->packing = PACKING_GZIP;
		break;
	case FILE_KIND_ZSTD:
		in->zstd = ZSTD_createDStream();
		if (!in->zstd)
			memory_exhausted();
		/* also for files of zstd --long; memory is allocated only as a frame needs it */
		ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax,
			ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
		in->packing = PACKING_ZSTD;
		break;
	default:
		in->packing = PACKING_NONE;
	}
	return 0;
}

/* One call of zlib: bytes written, and whether a member has ended. */
static const char *unpack_gzip(struct input *in, unsigned char *out, size_t room, size_t *n)
{
	int rc;

	if (!in->open_member)
		inflateReset(&in->zlib);
	in->zlib.next_in = in->packed + in->at;
	in->zlib.avail_in = (uInt)(in->n - in->at);
	in->zlib.next_out = out;
	in->zlib.avail_out = (uInt)room;
	rc = inflate(&in->zlib, Z_NO_FLUSH);
	in->at = in->n - in->zlib.avail_in;
	*n = room - in->zlib.avail_out;
	in->open_member = rc != Z_STREAM_END;
	if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)
		return NULL;
	return in->zlib.msg ? in->zlib.msg : "invalid data";
}

static const char *unpack_zstd(struct input *in, unsigned char *out, size_t room, size_t *n)
{
	ZSTD_inBuffer from = {in->packed, in->n, in->at};
	ZSTD_outBuffer to = {out, room, 0};
	const size_t rc = ZSTD_decompressStream(in->zstd, &to, &from);

	in->at = from.pos;
	*n = to.pos;
	in->open_member = rc != 0;
	return ZSTD_isError(rc) ? ZSTD_getErrorName(rc) : NULL;
}

static int unpack(struct input *in, unsigned char *out, size_t room, size_t *n, struct ctl_error *e)
{
	const bool gzip = in->packing == PACKING_GZIP;
	const size_t most = room < (1u << 30) ? room : 1u << 30; /* zlib counts in 32 bits */
	const char *error;

	for (*n = 0; *n == 0;) {
		if (in->at == in->n && !in->file_ended) {
			in->at = 0;
			if (read_file(in, in->packed, PACKED_BYTES, &in->n, e) != 0)
				return e->exit;
		}
		if (in->file_ended && in->at == in->n && !in->open_member)
			return 0;
		error = gzip ? unpack_gzip(in, out, most, n) : unpack_zstd(in, out, most, n);
		if (error)
			return ctl_error_set(e, CTL_USAGE, "%.800s: %s: %s", in->name,
				gzip ? "gzip" : "zstd", error);
		if (*n == 0 && in->open_member && in->file_ended && in->at == in->n)
			return ctl_error_set(e, CTL_USAGE, "%.800s: %s: the file is cut off",
				in->name, gzip ? "gzip" : "zstd");
	}
	return 0;
}

int input_read(struct input *in, unsigned char *out, size_t room, size_t *n, struct ctl_error *e)
{
	if (in->packing == PACKING_UNKNOWN && begin(in, e) != 0)
		return e->exit;
	if (in->packing != PACKING_NONE)
		return unpack(in, out, room, n, e);
	if (in->at < in->n) {
		*n = in->n - in->at < room ? in->n - in->at : room;
		memcpy(out, in->packed + in->at, *n);
		in->at += *n;
		return 0;
	}
	*n = 0;
	return in->file_ended ? 0 : read_file(in, out, room, n, e);
}
