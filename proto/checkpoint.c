#include "proto/checkpoint.h"

#include <assert.h>
#include <dirent.h>
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

#include "proto/artifact.h"
#include "proto/digest.h"
#include "proto/host/file.h"
#include "proto/host/memory.h"

static_assert(sizeof(float) == CHECKPOINT_ELEM_BYTES, "elements are fp32");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

enum {
	PIECE_ELEMS = 1 << 20,
	MANIFEST_BYTES_MAX = 256 << 20,
	SHARDS_MAX = 4096,
	RANGES_MAX = 1 << 20, /* of a shard */
	TENSORS_MAX = 1 << 17,
};
/* So that products of sizes fit into 64 bits. */
#define ELEMS_MAX (INT64_C(1) << 50)

static const char *const section_names[] = {"master", "m", "v"};

const char *checkpoint_section_name(enum checkpoint_section section)
{
	return section_names[section];
}

/* ---- folders ---- */

/* The number in step-N; -1 for another name. */
static int64_t step_of(const char *name)
{
	char again[64];
	long long step;

	if (sscanf(name, CHECKPOINT_STEP "%lld", &step) != 1 || step < 0)
		return -1;
	snprintf(again, sizeof(again), CHECKPOINT_STEP "%lld", step);
	return strcmp(again, name) == 0 ? step : -1;
}

static int newest_first(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

int checkpoint_list(const char *folder, int64_t **steps)
{
	const struct dirent *entry;
	char manifest[NAME_MAX + sizeof("/" CHECKPOINT_MANIFEST)];
	DIR *stream = opendir(folder);
	int64_t *found = NULL, step;
	size_t n = 0;

	if (stream == NULL)
		return -errno;
	while ((entry = readdir(stream)) != NULL) {
		step = step_of(entry->d_name);
		snprintf(manifest, sizeof(manifest), "%s/" CHECKPOINT_MANIFEST, entry->d_name);
		if (step < 0 || faccessat(dirfd(stream), manifest, F_OK, 0) < 0)
			continue;
		found = memory_resized(found, (n + 1) * sizeof(*found));
		found[n++] = step;
	}
	closedir(stream);
	if (n > 0)
		qsort(found, n, sizeof(*found), newest_first);
	*steps = found;
	return (int)n;
}

/* ---- the manifest ---- */

/* Reads members of a manifest; error describes the first invalid one. */
struct reading {
	const struct checkpoint *c;
	char *error;
	size_t error_bytes;
	bool wrong;
};

__attribute__((format(printf, 2, 3))) static void refuse(struct reading *r, const char *format, ...)
{
	char what[256];
	va_list args;

	if (r->wrong)
		return;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	snprintf(r->error, r->error_bytes, "%s/" CHECKPOINT_MANIFEST ": %s", r->c->dir, what);
	r->wrong = true;
}

static int64_t read_count(struct reading *r, const json_t *object, const char *key, int64_t max)
{
	const json_t *value = json_object_get(object, key);
	const int64_t n = json_integer_value(value);

	if (!json_is_integer(value) || n < 0 || n > max)
		refuse(r, "%s: a whole number of 0 to %" PRId64 " expected", key, max);
	return n;
}

static void read_text(
	struct reading *r, const json_t *object, const char *key, char *out, size_t bytes)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (text == NULL || strlen(text) >= bytes)
		refuse(r, "%s: a text of at most %zu bytes expected", key, bytes - 1);
	else
		snprintf(out, bytes, "%s", text);
}

static void read_state(struct reading *r, const json_t *state, struct checkpoint_state *out)
{
	const json_t *scale = json_object_get(state, "loss_scale");
	const json_t *overflow = json_object_get(scale, "last_overflow");

	out->attempted = read_count(r, state, "attempted", ELEMS_MAX);
	out->applied = read_count(r, state, "applied", ELEMS_MAX);
	out->samples = read_count(r, state, "samples", INT64_MAX);
	out->loss_scale = json_number_value(json_object_get(scale, "scale"));
	out->scale_it = read_count(r, scale, "it", ELEMS_MAX);
	out->last_overflow = json_integer_value(overflow);
	out->hysteresis_left = read_count(r, scale, "hysteresis_left", ELEMS_MAX);
	out->skips_in_place = read_count(r, scale, "skips_in_place", ELEMS_MAX);
	if (!json_is_integer(overflow) || out->last_overflow < -1)
		refuse(r, "last_overflow: a whole number from -1 expected");
	if (!(out->loss_scale > 0 && out->loss_scale <= 1e30))
		refuse(r, "scale: a number above 0 expected");
	if (out->applied > out->attempted)
		refuse(r, "applied: more than attempted");
}

static void read_tensors(struct reading *r, struct checkpoint *c)
{
	const json_t *list = json_object_get(c->manifest, "tensors"), *row;
	const size_t n = json_array_size(list);
	size_t i;

	if (n == 0 || n > TENSORS_MAX) {
		refuse(r, "tensors: an array of 1 to %d expected", TENSORS_MAX);
		return;
	}
	c->tensors = memory_zeroed(n, sizeof(*c->tensors));
	json_array_foreach(list, i, row) {
		struct checkpoint_tensor *t = &c->tensors[c->n_tensors++];

		read_text(r, row, "name", t->name, sizeof(t->name));
		t->first = read_count(r, row, "first", c->param_elems);
		t->rows = read_count(r, row, "rows", INT32_MAX);
		t->cols = read_count(r, row, "cols", INT32_MAX);
		if (!r->wrong && t->rows * t->cols > c->param_elems - t->first)
			refuse(r, "tensors: %s ends behind the last of %" PRId64 " elements",
				t->name, c->param_elems);
	}
}

static void read_ranges(struct reading *r, const json_t *list, struct checkpoint_shard *s)
{
	const size_t n = json_array_size(list);
	const json_t *row;
	int64_t end = 0;
	size_t i;

	if (!json_is_array(list) || n > RANGES_MAX) {
		refuse(r, "ranges: an array of at most %d expected", RANGES_MAX);
		return;
	}
	s->ranges = memory_zeroed(n ? n : 1, sizeof(*s->ranges));
	json_array_foreach(list, i, row) {
		struct checkpoint_range *range = &s->ranges[s->n_ranges++];

		range->first = json_integer_value(json_array_get(row, 0));
		range->n = json_integer_value(json_array_get(row, 1));
		if (json_array_size(row) != 2 || range->first < end || range->n < 1 ||
			range->first > r->c->param_elems ||
			range->n > r->c->param_elems - range->first) {
			refuse(r, "ranges: %s: [first, n] in ascending order expected", s->file);
			return;
		}
		end = range->first + range->n;
		s->elems += range->n;
	}
}

/* A name below dir, and nothing else. */
static bool plain(const char *name)
{
	return artifact_path_valid(name) && strchr(name, '/') == NULL;
}

static void read_shard(struct reading *r, const json_t *row, struct checkpoint_shard *s)
{
	const json_t *sha256 = json_object_get(row, "sha256");
	int64_t bytes;

	read_text(r, row, "file", s->file, sizeof(s->file));
	if (!r->wrong && !plain(s->file))
		refuse(r, "file: a plain name expected");
	for (int i = 0; i < CHECKPOINT_SECTIONS; i++)
		read_text(r, sha256, section_names[i], s->sha256[i], sizeof(s->sha256[i]));
	read_ranges(r, json_object_get(row, "ranges"), s);
	bytes = read_count(r, row, "bytes", INT64_MAX);
	if (!r->wrong && bytes != s->elems * CHECKPOINT_ELEM_BYTES * CHECKPOINT_SECTIONS)
		refuse(r, "%s: bytes: %" PRId64 " do not fit its %" PRId64 " elements", s->file,
			bytes, s->elems);
}

static int by_first(const void *a, const void *b)
{
	const struct checkpoint_range *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/* Checks that each element of the arena is in exactly one shard. */
static void check_cover(struct reading *r, const struct checkpoint *c)
{
	struct checkpoint_range *all;
	size_t total = 0, n = 0;
	int64_t end = 0;
	size_t i = 0;

	for (int64_t k = 0; k < c->n_shards; k++)
		total += (size_t)c->shards[k].n_ranges;
	all = memory_zeroed(total ? total : 1, sizeof(*all));
	for (int64_t k = 0; k < c->n_shards; k++)
		for (int64_t j = 0; j < c->shards[k].n_ranges; j++)
			all[n++] = c->shards[k].ranges[j];
	qsort(all, n, sizeof(*all), by_first);
	for (; i < n && all[i].first == end; i++)
		end += all[i].n;
	if (end != c->param_elems || i < n)
		refuse(r,
			"shards: their ranges do not cover %" PRId64 " elements once, see %" PRId64,
			c->param_elems, end);
	free(all);
}

static void read_shards(struct reading *r, struct checkpoint *c)
{
	const json_t *list = json_object_get(c->manifest, "shards"), *row;
	const size_t n = json_array_size(list);
	size_t i;

	if (n == 0 || n > SHARDS_MAX) {
		refuse(r, "shards: an array of 1 to %d expected", SHARDS_MAX);
		return;
	}
	c->shards = memory_zeroed(n, sizeof(*c->shards));
	json_array_foreach(list, i, row)
		read_shard(r, row, &c->shards[c->n_shards++]);
	if (!r->wrong)
		check_cover(r, c);
}

int checkpoint_parse(const char *dir, const char *text, size_t n, struct checkpoint **out,
	char *error, size_t error_bytes)
{
	struct checkpoint *c = memory_zeroed(1, sizeof(*c));
	struct reading r = {.c = c, .error = error, .error_bytes = error_bytes};
	const char *version;
	json_error_t why;

	snprintf(c->dir, sizeof(c->dir), "%s", dir);
	c->manifest = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (c->manifest == NULL)
		refuse(&r, "line %d: %s", why.line, why.text);
	else if (!json_is_object(c->manifest))
		refuse(&r, "an object expected");
	if (artifact_sha256(text, n, c->sha256) < 0)
		refuse(&r, "no SHA-256 of it");
	version = json_string_value(json_object_get(c->manifest, "schema_version"));
	if (!version || strncmp(version, CHECKPOINT_SCHEMA, strlen("1.")) != 0)
		refuse(&r,
			"schema_version: \"%.16s\" is not supported (expected " CHECKPOINT_SCHEMA
			")",
			version ? version : "");
	c->step = read_count(&r, c->manifest, "step", ELEMS_MAX);
	c->param_elems = read_count(&r, c->manifest, "param_elems", ELEMS_MAX);
	if (!r.wrong)
		read_state(&r, json_object_get(c->manifest, "state"), &c->state);
	if (!r.wrong)
		read_tensors(&r, c);
	if (!r.wrong)
		read_shards(&r, c);
	if (!r.wrong) {
		*out = c;
		return 0;
	}
	checkpoint_close(c);
	return -EBADMSG;
}

/* ---- shards ---- */

/* The file, or a negative errno with error. */
static int open_shard(const struct checkpoint *c, const struct checkpoint_shard *s, char *error,
	size_t error_bytes)
{
	const int64_t expected = s->elems * CHECKPOINT_ELEM_BYTES * CHECKPOINT_SECTIONS;
	char path[sizeof(c->dir) + sizeof(s->file)];
	struct stat st;
	int fd, rc;

	snprintf(path, sizeof(path), "%s/%s", c->dir, s->file);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0 && S_ISREG(st.st_mode) && st.st_size == expected)
		return fd;
	if (rc < 0)
		snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
	else
		snprintf(error, error_bytes,
			"%s: damaged: %" PRId64 " bytes expected, found %" PRId64, path, expected,
			(int64_t)st.st_size);
	if (fd >= 0)
		close(fd);
	return rc < 0 ? rc : -EBADMSG;
}

static int read_at(int fd, const struct checkpoint *c, const struct checkpoint_shard *s,
	int64_t elem, float *out, int64_t n, char *error, size_t error_bytes)
{
	const int rc = file_read_at(
		fd, out, (size_t)(n * CHECKPOINT_ELEM_BYTES), elem * CHECKPOINT_ELEM_BYTES);

	if (rc < 0)
		snprintf(error, error_bytes, "%s/%s: %s", c->dir, s->file,
			rc == -ENODATA ? "damaged: it ends too early" : strerror(-rc));
	return rc == -ENODATA ? -EBADMSG : rc;
}

int checkpoint_open(const char *dir, struct checkpoint **out, char *error, size_t error_bytes)
{
	char path[sizeof(((struct checkpoint *)NULL)->dir)];
	struct checkpoint *c = NULL;
	size_t n = 0;
	int rc, fd;
	char *text;

	if ((size_t)snprintf(path, sizeof(path), "%s/" CHECKPOINT_MANIFEST, dir) >= sizeof(path)) {
		snprintf(error, error_bytes, "%.200s...: path too long", dir);
		return -ENAMETOOLONG;
	}
	rc = file_read(path, MANIFEST_BYTES_MAX, &text, &n);
	if (rc < 0) {
		snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
		return rc;
	}
	rc = checkpoint_parse(dir, text, n, &c, error, error_bytes);
	free(text);
	for (int64_t i = 0; rc == 0 && i < c->n_shards; i++) {
		fd = open_shard(c, &c->shards[i], error, error_bytes);
		if (fd < 0)
			rc = fd;
		else
			close(fd);
	}
	if (rc < 0) {
		checkpoint_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

int checkpoint_find(const char *path, char **dir, char *error, size_t error_bytes)
{
	char *manifest = memory_printed("%s/" CHECKPOINT_MANIFEST, path);
	char *below = memory_printed("%s/" CHECKPOINT_FOLDER, path);
	int64_t *steps = NULL;
	int n = 0;

	if (access(manifest, F_OK) == 0) {
		*dir = memory_text(path);
	} else if ((n = checkpoint_list(path, &steps)) > 0) {
		*dir = memory_printed("%s/" CHECKPOINT_STEP "%" PRId64, path, steps[0]);
	} else if (n == 0 && checkpoint_list(below, &steps) > 0) {
		*dir = memory_printed("%s/" CHECKPOINT_STEP "%" PRId64, below, steps[0]);
	} else {
		snprintf(error, error_bytes, "%s: %s", path,
			n < 0 ? strerror(-n)
			      : "no checkpoint found (expected " CHECKPOINT_MANIFEST
				", " CHECKPOINT_STEP "N or " CHECKPOINT_FOLDER "/" CHECKPOINT_STEP
				"N)");
		n = n < 0 ? n : -ENODATA;
	}
	free(steps);
	free(manifest);
	free(below);
	return n < 0 ? n : 0;
}

void checkpoint_close(struct checkpoint *c)
{
	if (c == NULL)
		return;
	for (int64_t i = 0; i < c->n_shards; i++)
		free(c->shards[i].ranges);
	free(c->shards);
	free(c->tensors);
	json_decref(c->manifest);
	free(c);
}

const struct checkpoint_tensor *checkpoint_tensor(const struct checkpoint *c, const char *name)
{
	for (int64_t i = 0; i < c->n_tensors; i++)
		if (strcmp(c->tensors[i].name, name) == 0)
			return &c->tensors[i];
	return NULL;
}

/* The intersection of [first, first + n) and the shard. */
static int read_common(const struct checkpoint *c, const struct checkpoint_shard *s,
	enum checkpoint_section section, int64_t first, int64_t n, float *out, char *error,
	size_t error_bytes)
{
	int64_t before = s->elems * (int64_t)section;
	int fd = -1, rc = 0;

	for (int64_t i = 0; i < s->n_ranges && rc == 0; i++) {
		const struct checkpoint_range *r = &s->ranges[i];
		const int64_t from = r->first > first ? r->first : first;
		const int64_t to = r->first + r->n < first + n ? r->first + r->n : first + n;

		if (from < to && fd < 0) {
			fd = open_shard(c, s, error, error_bytes);
			if (fd < 0)
				return fd;
		}
		if (from < to)
			rc = read_at(fd, c, s, before + from - r->first, out + (from - first),
				to - from, error, error_bytes);
		before += r->n;
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

int checkpoint_read(const struct checkpoint *c, enum checkpoint_section section, int64_t first,
	int64_t n, float *out, char *error, size_t error_bytes)
{
	int rc = 0;

	if (first < 0 || n < 0 || first > c->param_elems || n > c->param_elems - first) {
		snprintf(error, error_bytes, "%s: no such elements", c->dir);
		return -ERANGE;
	}
	for (int64_t i = 0; i < c->n_shards && rc == 0; i++)
		rc = read_common(c, &c->shards[i], section, first, n, out, error, error_bytes);
	return rc;
}

int checkpoint_stream(const struct checkpoint *c, int64_t shard, enum checkpoint_section section,
	void (*take)(void *arg, int64_t first, int64_t n, const float *values), void *arg,
	char *error, size_t error_bytes)
{
	const struct checkpoint_shard *s = &c->shards[shard];
	float *piece = memory_zeroed(PIECE_ELEMS, sizeof(*piece));
	struct digest *digest = digest_create();
	int64_t at = s->elems * (int64_t)section;
	int fd = open_shard(c, s, error, error_bytes), rc = fd < 0 ? fd : 0;
	char sha256[65] = "";

	for (int64_t i = 0; i < s->n_ranges && rc == 0; i++) {
		const struct checkpoint_range *r = &s->ranges[i];

		for (int64_t done = 0, n; done < r->n && rc == 0; done += n) {
			n = r->n - done < PIECE_ELEMS ? r->n - done : PIECE_ELEMS;
			rc = read_at(fd, c, s, at + done, piece, n, error, error_bytes);
			if (rc == 0 && digest != NULL)
				digest_add(digest, piece, (size_t)n * sizeof(*piece));
			if (rc == 0 && take != NULL)
				take(arg, r->first + done, n, piece);
		}
		at += r->n;
	}
	if (rc == 0 &&
		(digest == NULL || digest_finish(digest, sha256) < 0 ||
			strcmp(sha256, s->sha256[section]) != 0)) {
		snprintf(error, error_bytes,
			"%s/%s: damaged: section %s has SHA-256 %.12s, the manifest says %.12s",
			c->dir, s->file, section_names[section], sha256, s->sha256[section]);
		rc = -EBADMSG;
	}
	digest_destroy(digest);
	free(piece);
	if (fd >= 0)
		close(fd);
	return rc;
}

int checkpoint_verify(const struct checkpoint *c, enum checkpoint_section section, char *error,
	size_t error_bytes)
{
	int rc = 0;

	for (int64_t i = 0; i < c->n_shards && rc == 0; i++)
		rc = checkpoint_stream(c, i, section, NULL, NULL, error, error_bytes);
	return rc;
}
