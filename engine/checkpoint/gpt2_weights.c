#include "engine/checkpoint/gpt2_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/memory.h"

enum { NAME_BYTES = 64, CHUNK_ELEMS = 1 << 20 };

static const char prefixed[] = "transformer.";

/* ---- names ---- */

static bool is_conv1d(enum arena_tensor tensor)
{
	return tensor == ARENA_QKV_W || tensor == ARENA_PROJ_W || tensor == ARENA_FC_W ||
		tensor == ARENA_FCPROJ_W;
}

static void name_of(const struct gpt2_weights *w, const struct arena_entry *e, char out[NAME_BYTES])
{
	const char *name = arena_tensor_name(e->tensor);

	if (e->tensor < ARENA_PER_BLOCK)
		snprintf(out, NAME_BYTES, "%sh.%" PRId64 ".%s", w->prefix, e->layer, name);
	else
		snprintf(out, NAME_BYTES, "%s%s", e->tensor == ARENA_HEAD ? "" : w->prefix, name);
}

/* The file's tensor for e; NULL: it has none. */
static const struct safetensors_tensor *find(
	const struct gpt2_weights *w, const struct arena_entry *e)
{
	const struct arena_entry wte = {.tensor = ARENA_WTE};
	const struct safetensors_tensor *t;
	char name[NAME_BYTES];

	name_of(w, e, name);
	t = safetensors_find(&w->file, name);
	return !t && e->tensor == ARENA_HEAD ? find(w, &wte) : t;
}

/* In models saved by transformers before 4.30. */
static bool is_mask(const char *name)
{
	const char *end = strstr(name, ".attn.");

	return end && (strcmp(end, ".attn.bias") == 0 || strcmp(end, ".attn.masked_bias") == 0);
}

/* ---- check ---- */

static int check_entry(const struct gpt2_weights *w, const struct arena_entry *e,
	const struct safetensors_tensor *t, char *error, size_t error_bytes)
{
	const bool over_vocab = e->tensor == ARENA_WTE || e->tensor == ARENA_HEAD;
	const int64_t rows = over_vocab ? w->arena->vocab : e->rows;
	const bool vector = e->rows == 1 && e->tensor != ARENA_WPE;
	struct safetensors_tensor expected = {.n_dims = 2, .dim = {rows, e->cols}};
	char found[SAFETENSORS_SHAPE_BYTES], wanted[SAFETENSORS_SHAPE_BYTES];

	if (vector)
		expected = (struct safetensors_tensor){.n_dims = 1, .dim = {e->cols}};
	else if (is_conv1d(e->tensor))
		expected = (struct safetensors_tensor){.n_dims = 2, .dim = {e->cols, e->rows}};
	if (t->n_dims != expected.n_dims || memcmp(t->dim, expected.dim, sizeof(t->dim)) != 0) {
		snprintf(error, error_bytes, "%s: tensor %s: shape %s, the spec's model needs %s",
			w->file.path, t->name, safetensors_shape(t, found),
			safetensors_shape(&expected, wanted));
		return -EINVAL;
	}
	if (t->dtype == SAFETENSORS_OTHER) {
		snprintf(error, error_bytes,
			"%s: tensor %s: %s is not supported (expected F32, F16 or BF16)",
			w->file.path, t->name, t->dtype_name);
		return -EINVAL;
	}
	return 0;
}

/* A tensor without an entry: of a deeper model, say. */
static int check_rest(
	const struct gpt2_weights *w, const bool *taken, char *error, size_t error_bytes)
{
	for (size_t i = 0; i < w->file.n; i++) {
		const char *name = w->file.tensor[i].name;

		if (taken[i] || is_mask(name) || strcmp(name, "lm_head.weight") == 0)
			continue;
		snprintf(error, error_bytes,
			"%s: tensor %.128s: the spec's model (n_layer %" PRId64
			") has no such tensor",
			w->file.path, name, w->arena->n_layer);
		return -EINVAL;
	}
	return 0;
}

/* For a tied model. */
static int compare_head(const struct gpt2_weights *w, char *error, size_t error_bytes)
{
	const struct arena_entry wte = {.tensor = ARENA_WTE};
	const struct safetensors_tensor *a = find(w, &wte);
	const struct safetensors_tensor *b = safetensors_find(&w->file, "lm_head.weight");
	float *x, *y;
	int rc = 0;

	if (!b)
		return 0;
	rc = check_entry(w, arena_find(w->arena, ARENA_WTE, 0), b, error, error_bytes);
	if (rc)
		return rc;
	x = memory_zeroed(2 * CHUNK_ELEMS, sizeof(*x));
	y = x + CHUNK_ELEMS;
	for (int64_t i = 0; i < a->elems && !rc; i += CHUNK_ELEMS) {
		const int64_t n = a->elems - i < CHUNK_ELEMS ? a->elems - i : CHUNK_ELEMS;

		rc = safetensors_read(&w->file, a, i, n, x, error, error_bytes);
		if (!rc)
			rc = safetensors_read(&w->file, b, i, n, y, error, error_bytes);
		if (!rc && memcmp(x, y, (size_t)n * sizeof(*x)) != 0) {
			snprintf(error, error_bytes,
				"%s: lm_head.weight differs from wte.weight: set "
				"model.tied_head to false in the spec",
				w->file.path);
			rc = -EINVAL;
		}
	}
	free(x);
	return rc;
}

static int check_tensors(const struct gpt2_weights *w, char *error, size_t error_bytes)
{
	const struct arena *a = w->arena;
	bool *taken = memory_zeroed(w->file.n + 1, sizeof(*taken));
	char name[NAME_BYTES];
	int rc = 0;

	for (int64_t i = 0; i < a->n_entries && !rc; i++) {
		const struct safetensors_tensor *t = find(w, &a->entries[i]);

		if (t) {
			taken[t - w->file.tensor] = true;
			rc = check_entry(w, &a->entries[i], t, error, error_bytes);
			continue;
		}
		name_of(w, &a->entries[i], name);
		snprintf(error, error_bytes, "%s: tensor %s is missing", w->file.path, name);
		rc = -EINVAL;
	}
	if (!rc)
		rc = check_rest(w, taken, error, error_bytes);
	free(taken);
	return rc || !a->tied ? rc : compare_head(w, error, error_bytes);
}

/* ---- open ---- */

static int open_below(
	const struct data_roots *roots, const char *path, char *error, size_t error_bytes)
{
	char place[64];
	int found = -1, fd, code;

	if (roots->n > 0) {
		found = data_roots_open(roots, path, error, error_bytes);
		if (found < 0)
			return -EACCES;
		snprintf(place, sizeof(place), "/proc/self/fd/%d", found);
	}
	/* a FIFO without a writer must not block the open */
	fd = open(found >= 0 ? place : path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	code = errno;
	if (found >= 0)
		close(found);
	if (fd >= 0)
		return fd;
	snprintf(error, error_bytes, "%s: %s", path, strerror(code));
	return -code;
}

static int identify(struct gpt2_weights *w)
{
	struct dataset *d = &w->identity;
	struct stat st;

	if (fstat(w->file.fd, &st) < 0)
		return -errno;
	*d = (struct dataset){
		.fd = w->file.fd,
		.file_bytes = st.st_size,
		.modified = st.st_mtim,
		.changed = st.st_ctim,
		.dev = st.st_dev,
		.ino = st.st_ino,
	};
	snprintf(d->path, sizeof(d->path), "%s", w->file.path);
	return 0;
}

int gpt2_weights_open(struct gpt2_weights *w, const struct arena *arena, const char *path,
	const struct data_roots *roots, char *error, size_t error_bytes)
{
	int fd = open_below(roots, path, error, error_bytes), rc;

	if (fd < 0)
		return fd;
	*w = (struct gpt2_weights){.arena = arena, .prefix = ""};
	rc = safetensors_open(&w->file, fd, path, error, error_bytes);
	if (rc)
		return rc;
	if (safetensors_find(&w->file, "transformer.wte.weight"))
		w->prefix = prefixed;
	rc = identify(w);
	if (rc)
		snprintf(error, error_bytes, "%s: %s", path, strerror(-rc));
	else
		rc = check_tensors(w, error, error_bytes);
	if (rc)
		safetensors_close(&w->file);
	return rc;
}

void gpt2_weights_close(struct gpt2_weights *w)
{
	safetensors_close(&w->file);
}

/* ---- load ---- */

static int put(const struct gpt2_weights_target *to, int64_t first, const float *values, int64_t n,
	char *error, size_t error_bytes)
{
	if (to->put(to->arg, first, values, n) == 0)
		return 0;
	snprintf(error, error_bytes, "the device failed while weights were loaded");
	return -ENOTRECOVERABLE;
}

static int load_conv1d(const struct gpt2_weights *w, const struct gpt2_weights_target *to,
	const struct arena_entry *e, char *error, size_t error_bytes)
{
	const int64_t n = e->rows * e->cols;
	float *in = memory_zeroed(2 * (size_t)n, sizeof(*in)), *out = in + n;
	int rc = safetensors_read(&w->file, find(w, e), 0, n, in, error, error_bytes);

	if (!rc) {
		safetensors_transpose(out, in, e->cols, e->rows);
		rc = put(to, e->first, out, n, error, error_bytes);
	}
	free(in);
	return rc;
}

static int load_plain(const struct gpt2_weights *w, const struct gpt2_weights_target *to,
	const struct arena_entry *e, float *chunk, char *error, size_t error_bytes)
{
	const struct safetensors_tensor *t = find(w, e);
	int rc = 0;

	for (int64_t i = 0; i < t->elems && !rc; i += CHUNK_ELEMS) {
		const int64_t n = t->elems - i < CHUNK_ELEMS ? t->elems - i : CHUNK_ELEMS;

		rc = safetensors_read(&w->file, t, i, n, chunk, error, error_bytes);
		if (!rc)
			rc = put(to, e->first + i, chunk, n, error, error_bytes);
	}
	return rc;
}

int gpt2_weights_load(const struct gpt2_weights *w, const struct gpt2_weights_target *to,
	char *error, size_t error_bytes)
{
	float *chunk = memory_zeroed(CHUNK_ELEMS, sizeof(*chunk));
	int rc = 0;

	for (int64_t i = 0; i < w->arena->n_entries && !rc; i++) {
		const struct arena_entry *e = &w->arena->entries[i];

		rc = is_conv1d(e->tensor) ? load_conv1d(w, to, e, error, error_bytes)
					  : load_plain(w, to, e, chunk, error, error_bytes);
	}
	free(chunk);
	return rc;
}
