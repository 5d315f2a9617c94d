#include "ctl/data/documents.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ctl/data/input.h"
#include "proto/host/memory.h"

struct documents {
	const char *const *names;
	size_t n;
	bool all_lines;
	int64_t limit;
	const struct tokenizer_kind *kind;
	const char *refused[2];
	struct input *in; /* NULL: open the next one */
	size_t at;        /* its number */
	bool in_ended, lines, begun;
	int64_t line;        /* of the next part */
	unsigned char *rest; /* bytes after the last part */
	size_t n_rest, rest_room;
	int64_t count;
	int64_t bytes_done, bytes_all;
	int64_t *text_bytes;
};

struct documents *documents_open(const char *const *names, size_t n, bool lines, int64_t limit,
	const struct tokenizer_kind *kind)
{
	struct documents *d = memory_zeroed(1, sizeof(*d));
	struct stat st;

	d->names = names;
	d->n = n;
	d->all_lines = lines;
	d->limit = limit > 0 ? limit : INT64_MAX;
	d->kind = kind;
	d->text_bytes = memory_zeroed(n, sizeof(*d->text_bytes));
	for (size_t i = 0; i < n && d->bytes_all >= 0; i++) {
		if (strcmp(names[i], "-") != 0 && stat(names[i], &st) == 0 && S_ISREG(st.st_mode))
			d->bytes_all += st.st_size;
		else
			d->bytes_all = -1;
	}
	return d;
}

void documents_close(struct documents *d)
{
	if (!d)
		return;
	input_close(d->in);
	free(d->rest);
	free(d->text_bytes);
	free(d);
}

void documents_refuse(struct documents *d, const char *first, const char *second)
{
	d->refused[0] = first;
	d->refused[1] = second;
}

int64_t documents_bytes_read(const struct documents *d)
{
	return d->bytes_done + (d->in ? input_bytes_read(d->in) : 0);
}

int64_t documents_bytes_all(const struct documents *d)
{
	return d->bytes_all;
}

int64_t documents_text_bytes(const struct documents *d, size_t input)
{
	return d->text_bytes[input];
}

int64_t documents_count(const struct documents *d)
{
	return d->count;
}

static bool ends_with(const char *name, size_t n, const char *end)
{
	const size_t k = strlen(end);

	return n >= k && memcmp(name + n - k, end, k) == 0;
}

static bool is_lines(const char *name)
{
	size_t n = strlen(name);

	if (ends_with(name, n, ".gz"))
		n -= 3;
	else if (ends_with(name, n, ".zst"))
		n -= 4;
	return ends_with(name, n, ".jsonl") || ends_with(name, n, ".ndjson");
}

static bool same_file(int fd, const char *path)
{
	struct stat a, b;

	return path && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
		a.st_ino == b.st_ino && S_ISREG(a.st_mode);
}

static int open_next(struct documents *d, struct ctl_error *e)
{
	const char *name = d->names[d->at];

	if (input_open(&d->in, name, e) != 0)
		return e->exit;
	for (int i = 0; i < 2; i++) {
		if (same_file(input_fd(d->in), d->refused[i]))
			return ctl_error_set(e, CTL_USAGE,
				"%.800s: is also the output; choose another --output", name);
	}
	d->in_ended = false;
	d->begun = false;
	d->lines = d->all_lines || is_lines(name);
	d->line = 1;
	return 0;
}

static void close_input(struct documents *d)
{
	d->bytes_done += input_bytes_read(d->in);
	input_close(d->in);
	d->in = NULL;
	d->n_rest = 0;
	d->at++;
}

static void reserve(unsigned char **bytes, size_t *room, size_t needed)
{
	if (*room >= needed)
		return;
	*room = needed;
	*bytes = memory_resized(*bytes, needed);
}

/* Fills the part until it has n bytes or the input ends. */
static int fill(struct documents *d, struct documents_part *part, size_t n, struct ctl_error *e)
{
	reserve(&part->bytes, &part->room, n);
	while (part->n < n && !d->in_ended) {
		size_t k;

		if (input_read(d->in, part->bytes + part->n, n - part->n, &k, e) != 0)
			return e->exit;
		d->in_ended = k == 0;
		d->text_bytes[d->at] += (int64_t)k;
		part->n += k;
	}
	return 0;
}

static size_t cut(const struct documents *d, const struct documents_part *part)
{
	const unsigned char *newline;

	if (d->in_ended)
		return part->n;
	if (!d->lines)
		return d->kind->cut(part->bytes, part->n);
	newline = memrchr(part->bytes, '\n', part->n);
	return newline ? (size_t)(newline - part->bytes) + 1 : 0;
}

bool documents_is_empty(const unsigned char *line, size_t n)
{
	size_t i = 0;

	while (i < n && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r'))
		i++;
	return i == n;
}

/* A byte order mark before JSON is ignored (RFC 8259, section 8.1). */
static void drop_mark(struct documents_part *part)
{
	if (part->n < 3 || memcmp(part->bytes, "\xef\xbb\xbf", 3) != 0)
		return;
	part->n -= 3;
	memmove(part->bytes, part->bytes + 3, part->n);
}

/* Counts documents and lines of a part, and cuts off everything after the last allowed document. */
static void count_lines(struct documents *d, struct documents_part *part)
{
	const unsigned char *at = part->bytes, *end = at + part->n;

	while (at < end && d->count < d->limit) {
		const unsigned char *stop = memchr(at, '\n', (size_t)(end - at));

		if (!documents_is_empty(at, (size_t)((stop ? stop : end) - at))) {
			part->documents++;
			d->count++;
		}
		d->line++;
		at = stop ? stop + 1 : end;
	}
	part->n = (size_t)(at - part->bytes);
}

static int too_long(const struct documents *d, struct ctl_error *e)
{
	if (d->lines)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s:%lld: a line of over %d MiB; is it JSON Lines?", input_name(d->in),
			(long long)d->line, DOCUMENTS_PART_BYTES_MAX >> 20);
	return ctl_error_set(e, CTL_USAGE,
		"%.800s: over %d MiB of text without a blank or line end", input_name(d->in),
		DOCUMENTS_PART_BYTES_MAX >> 20);
}

/* The bytes up to a cut; the others stay for the next part. */
static int take(struct documents *d, struct documents_part *part, struct ctl_error *e)
{
	size_t n = DOCUMENTS_PART_BYTES, k;

	reserve(&part->bytes, &part->room, d->n_rest);
	if (d->n_rest > 0)
		memcpy(part->bytes, d->rest, d->n_rest);
	part->n = d->n_rest;
	for (;; n *= 2) {
		if (fill(d, part, n, e) != 0)
			return e->exit;
		k = cut(d, part);
		if (k > 0 || d->in_ended)
			break;
		if (n >= DOCUMENTS_PART_BYTES_MAX)
			return too_long(d, e);
	}
	d->n_rest = part->n - k;
	reserve(&d->rest, &d->rest_room, d->n_rest);
	if (d->n_rest > 0)
		memcpy(d->rest, part->bytes + k, d->n_rest);
	part->n = k;
	return 0;
}

int documents_next(struct documents *d, struct documents_part *part, struct ctl_error *e)
{
	if (!d->in && (d->at == d->n || d->count >= d->limit))
		return 0;
	if (!d->in && open_next(d, e) != 0)
		return -e->exit;
	if (take(d, part, e) != 0)
		return -e->exit;
	part->input = d->at;
	part->name = strcmp(d->names[d->at], "-") == 0 ? "stdin" : d->names[d->at];
	part->lines = d->lines;
	part->line = d->line;
	part->before = d->count;
	part->documents = 0;
	part->begins = part->ends = false;
	if (d->lines) {
		if (!d->begun)
			drop_mark(part);
		count_lines(d, part);
	} else {
		part->begins = !d->begun;
		part->ends = d->in_ended;
		part->documents = part->begins;
		d->count += part->begins;
	}
	d->begun = true;
	if (d->in_ended || (d->lines && d->count >= d->limit))
		close_input(d);
	return 1;
}
