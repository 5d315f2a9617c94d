#include "engine/data/dataset.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/shuffle.h"
#include "proto/host/clock.h"
#include "proto/file_kind.h"
#include "proto/host/memory.h"
#include "proto/utf8.h"

enum {
	HEADER_BYTES = 1024,
	HEADER_VERSION = 1,
	SNIFF_TOKENS = 512, /* bytes checked to distinguish token data from other files */
	SCAN_BYTES = 1 << 20,
	SYNTHETIC_IDS = 256,
};

static int fail(char *error, size_t error_bytes, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail(char *error, size_t error_bytes, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, error_bytes, format, args);
	va_end(args);
	return code;
}

/* n bytes at offset: n, fewer at the end of the file, or a negative errno. */
static int64_t read_at(int fd, void *out, int64_t n, int64_t offset)
{
	int64_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, (char *)out + done, (size_t)(n - done), offset + done);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (got == 0)
			break;
		done += got;
	}
	return done;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* ---- formats ---- */

static int check_headed(struct dataset *d, const int32_t *header, int64_t header_bytes, char *error,
	size_t error_bytes)
{
	int32_t version, count;
	int64_t expected;

	if (header_bytes < HEADER_BYTES)
		return fail(error, error_bytes, -EINVAL,
			"%s: header of %d bytes expected, %" PRId64 " found", d->path, HEADER_BYTES,
			header_bytes);
	version = (int32_t)le32toh((uint32_t)header[1]);
	if (version != HEADER_VERSION)
		return fail(error, error_bytes, -EINVAL,
			"%s: version %d of the token format expected, %" PRId32 " found", d->path,
			HEADER_VERSION, version);
	count = (int32_t)le32toh((uint32_t)header[2]);
	if (count < 0)
		return fail(error, error_bytes, -EINVAL,
			"%s: header says %" PRId32 " tokens, 0 to %" PRId32 " expected", d->path,
			count, INT32_MAX);
	expected = HEADER_BYTES + 2 * (int64_t)count;
	if (d->file_bytes != expected)
		return fail(error, error_bytes, -EINVAL,
			"%s: %" PRId64 " bytes, %" PRId64 " expected (%d header + 2 x %" PRId32
			" tokens)",
			d->path, d->file_bytes, expected, HEADER_BYTES, count);
	d->format = DATASET_HEADED;
	d->tokens_first = HEADER_BYTES;
	d->n_tokens = count;
	return 0;
}

/*
 * A header of 256 numbers with another magic: of another program or version, or damaged. Its token
 * count matches the size, or it has a few numbers and then zeros, or its first half word is not a
 * token.
 */
static bool looks_headed(const struct dataset *d, const int32_t *header, int64_t n)
{
	uint32_t magic = le32toh((uint32_t)header[0]);
	int64_t count = (int32_t)le32toh((uint32_t)header[2]);
	bool empty = true;
	size_t i;

	if (n < HEADER_BYTES || magic == 0 || header[1] == 0)
		return false;
	for (i = 8; i < HEADER_BYTES / 4; i++)
		empty = empty && header[i] == 0;
	return empty || (count > 0 && HEADER_BYTES + 2 * count == d->file_bytes) ||
		(magic / 10000 == FILE_KIND_MAGIC / 10000 &&
			(magic & 0xffff) >= (uint64_t)d->vocab);
}

/* The format if the first bytes are certainly not uint16 tokens; NULL if they may be. */
static const char *foreign_content(const uint8_t *bytes, int64_t n)
{
	bool narrow = true;
	int kinds = 0;
	uint8_t seen[256] = {0};
	int64_t i;

	if (file_kind_name(file_kind(bytes, (size_t)n)))
		return file_kind_name(file_kind(bytes, (size_t)n));
	for (i = 0; i < n; i++) {
		if (i % 4 >= 2)
			narrow = narrow && bytes[i] == 0;
		else if (i % 4 == 0)
			kinds += seen[bytes[i]]++ == 0;
	}
	return n >= 64 && narrow && kinds > 8 ? "32-bit numbers" : NULL;
}

static int check_raw(
	struct dataset *d, const uint8_t *bytes, int64_t n, char *error, size_t error_bytes)
{
	const char *foreign = foreign_content(bytes, n);

	if (foreign != NULL)
		return fail(error, error_bytes, -EINVAL,
			"%s: uint16 tokens, raw or with magic %d, expected, %s found%s", d->path,
			FILE_KIND_MAGIC, foreign,
			strcmp(foreign, "text") == 0 ? "; gpt2ctl data prepare makes tokens of it"
						     : "");
	if (d->file_bytes % 2 != 0)
		return fail(error, error_bytes, -EINVAL,
			"%s: %" PRId64 " bytes, an even number expected (uint16 tokens)", d->path,
			d->file_bytes);
	d->format = DATASET_RAW;
	d->tokens_first = 0;
	d->n_tokens = d->file_bytes / 2;
	return 0;
}

static int check_format(struct dataset *d, char *error, size_t error_bytes)
{
	union {
		int32_t header[HEADER_BYTES / 4];
		uint8_t bytes[2 * SNIFF_TOKENS];
	} start = {{0}};
	int64_t n = read_at(d->fd, &start, sizeof(start), 0);

	static_assert(sizeof(start) == HEADER_BYTES, "one read serves both formats");
	if (n < 0)
		return fail(error, error_bytes, (int)n, "%s: %s", d->path, strerror((int)-n));
	if (n >= 4 && le32toh((uint32_t)start.header[0]) == FILE_KIND_MAGIC)
		return check_headed(d, start.header, n, error, error_bytes);
	if (looks_headed(d, start.header, n))
		return fail(error, error_bytes, -EINVAL, "%s: magic %d expected, %" PRIu32 " found",
			d->path, FILE_KIND_MAGIC, le32toh((uint32_t)start.header[0]));
	return check_raw(d, start.bytes, n, error, error_bytes);
}

/* ---- open and close ---- */

int64_t dataset_tokens_needed(const struct spec_config *config)
{
	int64_t n;

	if (__builtin_mul_overflow(config->gpus, config->micro_batch, &n) ||
		__builtin_mul_overflow(n, config->seq_len, &n) || n == INT64_MAX)
		return INT64_MAX;
	return n + 1;
}

/* number: errno of an open that failed. */
static int fail_open(const struct dataset *d, int number, char *error, size_t error_bytes)
{
	if (number == EACCES)
		return fail(error, error_bytes, -number, "%s: %s (gpt2d runs as uid %u)", d->path,
			strerror(number), (unsigned)geteuid());
	if (number == ENXIO) /* a socket */
		return fail(error, error_bytes, -EINVAL, "%s: a regular file expected", d->path);
	return fail(error, error_bytes, -number, "%s: %s", d->path, strerror(number));
}

/* The name is resolved once, so the file that is read is the one that was checked. */
static int open_below(
	struct dataset *d, const struct data_roots *roots, char *error, size_t error_bytes)
{
	int place = data_roots_open(roots, d->path, error, error_bytes), rc = 0;
	char name[64];

	if (place < 0)
		return -EACCES;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", place);
	d->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (d->fd < 0)
		rc = fail_open(d, errno, error, error_bytes);
	close(place);
	return rc;
}

static int open_file(
	struct dataset *d, const struct data_roots *roots, char *error, size_t error_bytes)
{
	struct stat st;
	int rc;

	/*
	 * non-blocking: a FIFO with this name must not block the rank; no effect on a regular file
	 */
	if (roots->n > 0) {
		rc = open_below(d, roots, error, error_bytes);
		if (rc < 0)
			return rc;
	} else {
		d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	}
	if (d->fd < 0)
		return fail_open(d, errno, error, error_bytes);
	if (fstat(d->fd, &st) < 0)
		return fail(error, error_bytes, -errno, "%s: %s", d->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(error, error_bytes, -EINVAL, "%s: a regular file expected", d->path);
	d->file_bytes = st.st_size;
	d->modified = st.st_mtim;
	d->changed = st.st_ctim;
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	return check_format(d, error, error_bytes);
}

int dataset_open(struct dataset *d, const struct spec_config *config, bool validation, char *error,
	size_t error_bytes)
{
	static const struct data_roots anywhere = {.n = 0};

	return dataset_open_below(d, config, validation, &anywhere, error, error_bytes);
}

int dataset_open_below(struct dataset *d, const struct spec_config *config, bool validation,
	const struct data_roots *roots, char *error, size_t error_bytes)
{
	struct dataset made = {
		.fd = -1,
		.seq_len = config->seq_len,
		.seed = (uint64_t)config->seed,
		.shuffled = !validation,
		.vocab = config->model.vocab_size,
	};
	const char *path = validation ? config->data_val : config->data_train;
	int rc = 0;

	if (config->data_kind == SPEC_DATA_SYNTHETIC) {
		made.format = DATASET_SYNTHETIC;
		made.n_tokens = config->data_synthetic_tokens;
		made.seed = shuffle_mix(made.seed + (validation ? 1 : 0));
		path = "synthetic";
	}
	snprintf(made.path, sizeof(made.path), "%s", path);
	if (made.format != DATASET_SYNTHETIC)
		rc = open_file(&made, roots, error, error_bytes);
	if (rc < 0)
		goto failed;
	if (made.n_tokens < dataset_tokens_needed(config)) {
		rc = fail(error, error_bytes, -EINVAL,
			"%s: %" PRId64 " tokens, %" PRId64 " needed (%" PRId64 " rank%s x %" PRId64
			" x %" PRId64 " + 1)",
			made.path, made.n_tokens, dataset_tokens_needed(config), config->gpus,
			config->gpus == 1 ? "" : "s", config->micro_batch, config->seq_len);
		goto failed;
	}
	made.n_sequences = (made.n_tokens - 1) / made.seq_len;
	made.row = memory_zeroed((size_t)(made.seq_len + 1), sizeof(*made.row));
	*d = made;
	return 0;
failed:
	if (made.fd >= 0)
		close(made.fd);
	return rc;
}

void dataset_close(struct dataset *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	free(d->row);
	d->row = NULL;
}

/* ---- reading ---- */

/* Whether the file is unchanged since it was opened. */
static int check_unchanged(const struct dataset *d, char *error, size_t error_bytes)
{
	struct stat st;

	if (fstat(d->fd, &st) < 0)
		return fail(error, error_bytes, -EIO, "%s: %s", d->path, strerror(errno));
	if (st.st_size != d->file_bytes)
		return fail(error, error_bytes, -EIO,
			"%s: changed since it was opened: %" PRId64 " bytes then, %" PRId64 " now",
			d->path, d->file_bytes, (int64_t)st.st_size);
	if (!same_time(st.st_mtim, d->modified))
		return fail(
			error, error_bytes, -EIO, "%s: written to since it was opened", d->path);
	return 0;
}

/* count tokens from token first on, as in the file. */
static int read_tokens(const struct dataset *d, uint16_t *out, int64_t first, int64_t count,
	char *error, size_t error_bytes)
{
	int64_t n = read_at(d->fd, out, 2 * count, d->tokens_first + 2 * first);

	if (n < 0)
		return fail(error, error_bytes, -EIO, "%s: %s", d->path, strerror((int)-n));
	if (n != 2 * count) {
		int rc = check_unchanged(d, error, error_bytes);

		return rc < 0 ? rc
			      : fail(error, error_bytes, -EIO, "%s: short read at token %" PRId64,
					d->path, first);
	}
	return 0;
}

static int token_refused(
	const struct dataset *d, int64_t offset, int64_t id, char *error, size_t error_bytes)
{
	return fail(error, error_bytes, -ERANGE,
		"%s: token %" PRId64 " is %" PRId64 ", ids below %" PRId64
		" expected: its tokenizer does not fit model.vocab_size",
		d->path, offset, id, d->vocab);
}

/* Whether s is about the file of d, and a vocabulary that is not larger. */
static bool holds_for(const struct dataset_scanned *s, const struct dataset *d)
{
	return s->dev == d->dev && s->ino == d->ino && s->file_bytes == d->file_bytes &&
		same_time(s->modified, d->modified) && same_time(s->changed, d->changed) &&
		s->vocab <= d->vocab;
}

static bool cache_has(const struct dataset_cache *cache, const struct dataset *d)
{
	size_t i;

	for (i = 0; i < cache->n && i < DATASET_CACHE_FILES; i++)
		if (holds_for(&cache->file[i], d))
			return true;
	return false;
}

static struct dataset_scanned describe_scan(const struct dataset *d)
{
	return (struct dataset_scanned){
		.dev = d->dev,
		.ino = d->ino,
		.file_bytes = d->file_bytes,
		.modified = d->modified,
		.changed = d->changed,
		.vocab = d->vocab,
	};
}

static int scan_file(const struct dataset *d, uint16_t *buffer, char *error, size_t error_bytes)
{
	int64_t first, count, i;
	uint16_t largest;
	int rc;

	posix_fadvise(d->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (first = 0; first < d->n_tokens; first += count) {
		count = d->n_tokens - first < SCAN_BYTES / 2 ? d->n_tokens - first : SCAN_BYTES / 2;
		rc = read_tokens(d, buffer, first, count, error, error_bytes);
		if (rc < 0)
			return rc;
		for (i = 0, largest = 0; i < count; i++)
			largest = le16toh(buffer[i]) > largest ? le16toh(buffer[i]) : largest;
		if (largest >= d->vocab) {
			for (i = 0; le16toh(buffer[i]) < d->vocab; i++)
				;
			return token_refused(d, first + i, le16toh(buffer[i]), error, error_bytes);
		}
	}
	posix_fadvise(d->fd, 0, 0, POSIX_FADV_NORMAL);
	return check_unchanged(d, error, error_bytes);
}

int dataset_scan(
	const struct dataset *d, struct dataset_cache *cache, char *error, size_t error_bytes)
{
	uint16_t *buffer;
	int rc;

	if (d->format == DATASET_SYNTHETIC || (cache != NULL && cache_has(cache, d)))
		return 0;
	buffer = memory_resized(NULL, SCAN_BYTES);
	rc = scan_file(d, buffer, error, error_bytes);
	if (rc == 0 && cache != NULL)
		cache->file[cache->n++ % DATASET_CACHE_FILES] = describe_scan(d);
	free(buffer);
	return rc;
}

int64_t dataset_sequence(const struct dataset *d, int64_t sample)
{
	int64_t i = sample % d->n_sequences;

	assert(sample >= 0);
	if (!d->shuffled)
		return i;
	return shuffle_index(d->seed, (uint64_t)(sample / d->n_sequences), i, d->n_sequences);
}

/* seq_len + 1 tokens of one sequence, which is independent: its first token is drawn. */
static void synthetic_row(const struct dataset *d, int64_t sequence, uint16_t *row)
{
	uint64_t key = shuffle_mix(d->seed ^ shuffle_mix((uint64_t)sequence));
	int64_t vocab = d->vocab < UINT16_MAX ? d->vocab : UINT16_MAX;
	int64_t ids = vocab < SYNTHETIC_IDS ? vocab : SYNTHETIC_IDS;
	int64_t stride = vocab / ids;
	int64_t id = 0;
	int64_t i;

	for (i = 0; i <= d->seq_len; i++) {
		uint64_t draw = shuffle_mix(key + (uint64_t)i);

		if (i == 0 || draw % 8 == 0)
			id = (int64_t)((draw >> 3) % (uint64_t)ids);
		else
			id = shuffle_index(0, 0, id, ids);
		row[i] = (uint16_t)(id * stride);
	}
}

static int read_row(const struct dataset *d, int64_t sequence, int32_t *inputs, int32_t *targets,
	char *error, size_t error_bytes)
{
	int64_t first = sequence * d->seq_len;
	int64_t i;
	int rc;

	if (d->format == DATASET_SYNTHETIC) {
		synthetic_row(d, sequence, d->row);
	} else {
		rc = read_tokens(d, d->row, first, d->seq_len + 1, error, error_bytes);
		if (rc < 0)
			return rc;
		for (i = 0; i <= d->seq_len; i++) {
			d->row[i] = le16toh(d->row[i]);
			if (d->row[i] >= d->vocab)
				return token_refused(d, first + i, d->row[i], error, error_bytes);
		}
	}
	for (i = 0; i < d->seq_len; i++) {
		inputs[i] = d->row[i];
		targets[i] = d->row[i + 1];
	}
	return 0;
}

int dataset_read(const struct dataset *d, int64_t first, int64_t rows, int32_t *inputs,
	int32_t *targets, char *error, size_t error_bytes)
{
	int64_t r;
	int rc;

	for (r = 0; r < rows; r++) {
		rc = read_row(d, dataset_sequence(d, first + r), inputs + r * d->seq_len,
			targets + r * d->seq_len, error, error_bytes);
		if (rc < 0)
			return rc;
	}
	/* after the reads, so that a change between a check and a read is noticed */
	return d->format == DATASET_SYNTHETIC ? 0 : check_unchanged(d, error, error_bytes);
}

/* ---- identity ---- */

struct file {
	json_int_t dev, ino, bytes, modified_ns, changed_ns;
};

static struct file file_of(const struct dataset *d)
{
	return (struct file){.dev = (json_int_t)d->dev,
		.ino = (json_int_t)d->ino,
		.bytes = (json_int_t)d->file_bytes,
		.modified_ns = (json_int_t)d->modified.tv_sec * CLOCK_S_NS + d->modified.tv_nsec,
		.changed_ns = (json_int_t)d->changed.tv_sec * CLOCK_S_NS + d->changed.tv_nsec};
}

void dataset_identity_add(json_t *identity, const struct dataset *d)
{
	struct file f = file_of(d);

	if (d->format != DATASET_SYNTHETIC)
		json_object_set_new(identity, d->path,
			json_pack("{sI sI sI sI sI}", "dev", f.dev, "ino", f.ino, "bytes", f.bytes,
				"modified_ns", f.modified_ns, "changed_ns", f.changed_ns));
}

static void describe_time(int64_t ns, char out[64])
{
	time_t s = (time_t)(ns / CLOCK_S_NS);
	char at[32] = "?";
	struct tm utc;

	if (gmtime_r(&s, &utc) != NULL)
		strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(out, 64, "%s.%09" PRId64 "Z", at, (int64_t)(ns % CLOCK_S_NS));
}

/* "5400 bytes, of 2026-01-08T19:50:57.123456789Z, changed 2026-..., inode 12" */
static void describe_file(const struct file *f, char *out, size_t out_bytes)
{
	char modified[64], changed[64];

	describe_time(f->modified_ns, modified);
	describe_time(f->changed_ns, changed);
	snprintf(out, out_bytes, "%" PRId64 " bytes, of %s, changed %s, inode %" PRIu64,
		(int64_t)f->bytes, modified, changed, (uint64_t)f->ino);
}

int dataset_identity_check(
	const json_t *known, const struct dataset *d, char *error, size_t error_bytes)
{
	json_t *entry = json_object_get(known, d->path);
	struct file then, now = file_of(d);
	char was[256], is[256];

	if (d->format == DATASET_SYNTHETIC || entry == NULL)
		return 0;
	if (json_unpack(entry, "{sI sI sI sI sI}", "dev", &then.dev, "ino", &then.ino, "bytes",
		    &then.bytes, "modified_ns", &then.modified_ns, "changed_ns",
		    &then.changed_ns) < 0) {
		snprintf(error, error_bytes,
			"%s: segment.start has no {dev, ino, bytes, modified_ns, changed_ns} of it",
			d->path);
		return -EINVAL;
	}
	if (then.dev == now.dev && then.ino == now.ino && then.bytes == now.bytes &&
		then.modified_ns == now.modified_ns && then.changed_ns == now.changed_ns)
		return 0;
	describe_file(&then, was, sizeof(was));
	describe_file(&now, is, sizeof(is));
	snprintf(error, error_bytes,
		"%s: not the file of the run's first segments: %s then; %s now;"
		" leave it alone until the run has ended, and submit the run again",
		d->path, was, is);
	return -ESTALE;
}
