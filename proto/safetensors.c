#include "proto/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/half.h"
#include "proto/host/file.h"
#include "proto/host/memory.h"

enum { READ_ELEMS = 1 << 16, HEADER_ALIGN = 8 };

static const struct {
	const char *name;
	int64_t bytes;
	enum safetensors_dtype dtype;
} dtypes[] = {
	{"F32", 4, SAFETENSORS_F32},
	{"F16", 2, SAFETENSORS_F16},
	{"BF16", 2, SAFETENSORS_BF16},
	{"BOOL", 1, SAFETENSORS_OTHER},
	{"U8", 1, SAFETENSORS_OTHER},
	{"I8", 1, SAFETENSORS_OTHER},
	{"F8_E5M2", 1, SAFETENSORS_OTHER},
	{"F8_E4M3", 1, SAFETENSORS_OTHER},
	{"I16", 2, SAFETENSORS_OTHER},
	{"U16", 2, SAFETENSORS_OTHER},
	{"I32", 4, SAFETENSORS_OTHER},
	{"U32", 4, SAFETENSORS_OTHER},
	{"I64", 8, SAFETENSORS_OTHER},
	{"U64", 8, SAFETENSORS_OTHER},
	{"F64", 8, SAFETENSORS_OTHER},
};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

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

/* ---- the header ---- */

/* The destination of messages, and their tensor. */
struct parsing {
	const char *name;
	char *error;
	size_t error_bytes;
};

static int refuse(const struct parsing *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(const struct parsing *p, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return fail(p->error, p->error_bytes, -EINVAL, "tensor %.128s: %s", p->name, text);
}

static int parse_shape(const struct parsing *p, const json_t *shape, int64_t elem_bytes,
	struct safetensors_tensor *t)
{
	const json_t *dim;
	size_t i;

	if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMS_MAX)
		return refuse(
			p, "shape: an array of at most %d sizes expected", SAFETENSORS_DIMS_MAX);
	t->n_dims = (int)json_array_size(shape);
	t->elems = 1;
	json_array_foreach(shape, i, dim) {
		t->dim[i] = json_integer_value(dim);
		if (!json_is_integer(dim) || t->dim[i] < 0)
			return refuse(p, "shape: a size is no whole number from 0");
		if (__builtin_mul_overflow(t->elems, t->dim[i], &t->elems))
			return refuse(p, "shape: more than 2^63 elements");
	}
	if (__builtin_mul_overflow(t->elems, elem_bytes, &t->bytes))
		return refuse(p, "shape: more than 2^63 bytes");
	return 0;
}

static int parse_offsets(const struct parsing *p, const json_t *offsets, int64_t data_bytes,
	struct safetensors_tensor *t)
{
	const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
	int64_t first = json_integer_value(begin), last = json_integer_value(end);

	if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
		return refuse(p, "data_offsets: an array of two whole numbers expected");
	if (first < 0 || last < first || last > data_bytes)
		return refuse(p,
			"data_offsets: [%" PRId64 ", %" PRId64 "] is not within the %" PRId64
			" bytes after the header: the file is truncated or damaged",
			first, last, data_bytes);
	if (last - first != t->bytes)
		return refuse(p,
			"data_offsets: %" PRId64 " bytes, its shape and type take %" PRId64,
			last - first, t->bytes);
	t->first = first;
	return 0;
}

static int parse_tensor(const struct parsing *p, const json_t *value, int64_t data_bytes,
	struct safetensors_tensor *t)
{
	const char *dtype = json_string_value(json_object_get(value, "dtype"));
	size_t i;
	int rc;

	*t = (struct safetensors_tensor){.name = p->name};
	if (!dtype)
		return refuse(p, "an object with dtype, shape and data_offsets expected");
	for (i = 0; i < DTYPES && strcmp(dtypes[i].name, dtype) != 0;)
		i++;
	if (i == DTYPES)
		return refuse(p, "dtype \"%.32s\" is unknown", dtype);
	t->dtype = dtypes[i].dtype;
	t->dtype_name = dtypes[i].name;
	rc = parse_shape(p, json_object_get(value, "shape"), dtypes[i].bytes, t);
	return rc ? rc : parse_offsets(p, json_object_get(value, "data_offsets"), data_bytes, t);
}

/* Tensors without bytes come first: they lie between two others. */
static int by_place(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that each byte belongs to exactly one tensor. */
static int check_places(
	const struct safetensors *f, int64_t data_bytes, char *error, size_t error_bytes)
{
	int64_t end = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct safetensors_tensor *t = &f->tensor[i];

		if (t->first != end)
			return fail(error, error_bytes, -EINVAL,
				"tensor %.128s: begins at byte %" PRId64
				" after the header, %s%.128s ends at %" PRId64,
				t->name, t->first, i > 0 ? "tensor " : "the header",
				i > 0 ? f->tensor[i - 1].name : "", end);
		end += t->bytes;
	}
	if (end != data_bytes)
		return fail(error, error_bytes, -EINVAL,
			"%" PRId64 " bytes after the header, the tensors take %" PRId64, data_bytes,
			end);
	return 0;
}

int safetensors_parse(struct safetensors *out, const char *text, size_t n, int64_t data_bytes,
	char *error, size_t error_bytes)
{
	struct safetensors f = *out;
	struct parsing p = {.error = error, .error_bytes = error_bytes};
	json_error_t why;
	json_t *value;
	int rc = 0;

	f.header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!json_is_object(f.header)) {
		json_decref(f.header);
		return fail(error, error_bytes, -EINVAL, "header: %s",
			f.header ? "a JSON object expected" : why.text);
	}
	f.n = 0;
	f.tensor = memory_zeroed(json_object_size(f.header) + 1, sizeof(*f.tensor));
	json_object_foreach(f.header, p.name, value) {
		if (strcmp(p.name, "__metadata__") == 0)
			continue;
		rc = parse_tensor(&p, value, data_bytes, &f.tensor[f.n++]);
		if (rc)
			goto fail;
	}
	qsort(f.tensor, f.n, sizeof(*f.tensor), by_place);
	rc = check_places(&f, data_bytes, error, error_bytes);
	if (rc)
		goto fail;
	*out = f;
	return 0;

fail:
	free(f.tensor);
	json_decref(f.header);
	return rc;
}

/* ---- files ---- */

/* The format of a file that users confuse with safetensors; NULL: another one. */
static const char *foreign_kind(const void *start)
{
	static const struct {
		const char *start, *what;
	} kinds[] = {
		{"PK\003\004",
			"a PyTorch file (expected safetensors, which save_pretrained of "
			"transformers writes)"},
		{"\200\002",
			"a Python pickle (expected safetensors, which save_pretrained of "
			"transformers writes)"},
		{"version ", "a Git LFS pointer (git lfs pull fetches the file itself)"},
		{"{", "a JSON file (expected safetensors)"},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (memcmp(start, kinds[i].start, strlen(kinds[i].start)) == 0)
			return kinds[i].what;
	return NULL;
}

static int read_header(struct safetensors *f, int64_t file_bytes, char *error, size_t error_bytes)
{
	char why[512] = "";
	const char *kind;
	uint64_t length;
	bool wrong;
	char *text;
	int rc;

	if (file_bytes < SAFETENSORS_LENGTH_BYTES)
		return fail(error, error_bytes, -EINVAL,
			"%s: %" PRId64 " bytes are no safetensors file", f->path, file_bytes);
	rc = file_read_at(f->fd, &length, sizeof(length), 0);
	if (rc)
		return fail(error, error_bytes, rc, "%s: %s", f->path, strerror(-rc));
	kind = foreign_kind(&length);
	length = le64toh(length);
	wrong = length > SAFETENSORS_HEADER_MAX ||
		(int64_t)length > file_bytes - SAFETENSORS_LENGTH_BYTES;
	if (wrong && kind)
		return fail(error, error_bytes, -EINVAL, "%s: is %s", f->path, kind);
	if (wrong)
		return fail(error, error_bytes, -EINVAL,
			"%s: a header of %" PRIu64 " bytes in a file of %" PRId64
			" (at most %d): damaged, or no safetensors file",
			f->path, length, file_bytes, SAFETENSORS_HEADER_MAX);
	text = memory_zeroed(1, length + 1);
	f->data_first = SAFETENSORS_LENGTH_BYTES + (int64_t)length;
	rc = file_read_at(f->fd, text, length, SAFETENSORS_LENGTH_BYTES);
	if (rc)
		fail(error, error_bytes, rc, "%s: %s", f->path, strerror(-rc));
	else
		rc = safetensors_parse(
			f, text, length, file_bytes - f->data_first, why, sizeof(why));
	if (why[0])
		fail(error, error_bytes, rc, "%s: %s", f->path, why);
	free(text);
	return rc;
}

int safetensors_open(
	struct safetensors *out, int fd, const char *path, char *error, size_t error_bytes)
{
	struct safetensors f = {.fd = fd, .path = memory_text(path)};
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0)
		rc = fail(error, error_bytes, -errno, "%s: %s", path, strerror(errno));
	else if (S_ISDIR(st.st_mode))
		rc = fail(error, error_bytes, -EINVAL,
			"%s: is a folder (expected a file, such as model.safetensors in it)", path);
	else if (!S_ISREG(st.st_mode))
		rc = fail(error, error_bytes, -EINVAL, "%s: not a regular file", path);
	else
		rc = read_header(&f, st.st_size, error, error_bytes);
	if (rc) {
		free(f.path);
		close(fd);
		return rc;
	}
	*out = f;
	return 0;
}

void safetensors_close(struct safetensors *f)
{
	close(f->fd);
	free(f->path);
	free(f->tensor);
	json_decref(f->header);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->tensor[i].name, name) == 0)
			return &f->tensor[i];
	return NULL;
}

char *safetensors_shape(const struct safetensors_tensor *t, char out[SAFETENSORS_SHAPE_BYTES])
{
	size_t used = 0;

	for (int i = 0; i < t->n_dims; i++)
		used += (size_t)snprintf(out + used, SAFETENSORS_SHAPE_BYTES - used, "%s%" PRId64,
			i > 0 ? ", " : "[", t->dim[i]);
	snprintf(out + used, SAFETENSORS_SHAPE_BYTES - used, "%s", t->n_dims > 0 ? "]" : "[]");
	return out;
}

/* ---- values ---- */

int64_t safetensors_elem_bytes(enum safetensors_dtype dtype)
{
	return dtype == SAFETENSORS_F32 ? 4 : 2;
}

void safetensors_convert(enum safetensors_dtype dtype, const float *in, int64_t n, void *out)
{
	uint16_t *narrow = out;

	if (dtype == SAFETENSORS_F32) {
		memcpy(out, in, (size_t)n * sizeof(*in));
		return;
	}
	for (int64_t i = 0; i < n; i++)
		narrow[i] = dtype == SAFETENSORS_BF16 ? half_to_bf16(in[i]) : half_to_f16(in[i]);
}

static int read_narrow(const struct safetensors *f, const struct safetensors_tensor *t,
	int64_t first, int64_t n, float *out)
{
	uint16_t *narrow = memory_zeroed(READ_ELEMS, sizeof(*narrow));
	int rc = 0;

	for (int64_t done = 0; done < n && !rc; done += READ_ELEMS) {
		const int64_t left = n - done, piece = left < READ_ELEMS ? left : READ_ELEMS;

		rc = file_read_at(f->fd, narrow, (size_t)piece * 2,
			f->data_first + t->first + (first + done) * 2);
		for (int64_t i = 0; i < piece && !rc; i++)
			out[done + i] = t->dtype == SAFETENSORS_BF16 ? half_from_bf16(narrow[i])
								     : half_from_f16(narrow[i]);
	}
	free(narrow);
	return rc;
}

int safetensors_read(const struct safetensors *f, const struct safetensors_tensor *t, int64_t first,
	int64_t n, float *out, char *error, size_t error_bytes)
{
	int rc;

	if (t->dtype == SAFETENSORS_OTHER)
		return fail(error, error_bytes, -ENOTSUP,
			"%s: tensor %.128s: %s is not supported (F32, F16 or BF16)", f->path,
			t->name, t->dtype_name);
	if (t->dtype == SAFETENSORS_F32)
		rc = file_read_at(f->fd, out, (size_t)n * 4, f->data_first + t->first + first * 4);
	else
		rc = read_narrow(f, t, first, n, out);
	if (rc == -ENODATA)
		rc = -EIO;
	return rc ? fail(error, error_bytes, rc, "%s: tensor %.128s: %s", f->path, t->name,
			    rc == -EIO ? "the file ends in it, or cannot be read" : strerror(-rc))
		  : 0;
}

/* ---- writing ---- */

char *safetensors_header(const struct safetensors_tensor *tensors, size_t n, size_t *bytes)
{
	json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
	uint64_t length;
	int64_t at = 0;
	char *text, *out;

	for (size_t i = 0; i < n; i++) {
		const struct safetensors_tensor *t = &tensors[i];
		int64_t size = safetensors_elem_bytes(t->dtype);
		json_t *shape = json_array();

		for (int d = 0; d < t->n_dims; d++) {
			json_array_append_new(shape, json_integer((json_int_t)t->dim[d]));
			size *= t->dim[d];
		}
		json_object_set_new(header, t->name,
			json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[t->dtype].name, "shape",
				shape, "data_offsets", (json_int_t)at, (json_int_t)(at + size)));
		at += size;
	}
	text = json_dumps(header, JSON_COMPACT);
	json_decref(header);
	length = (strlen(text) + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
	*bytes = SAFETENSORS_LENGTH_BYTES + length;
	out = memory_zeroed(1, *bytes + 1);
	memset(out + SAFETENSORS_LENGTH_BYTES, ' ', length);
	memcpy(out + SAFETENSORS_LENGTH_BYTES, text, strlen(text));
	length = htole64(length);
	memcpy(out, &length, sizeof(length));
	free(text);
	return out;
}

void safetensors_transpose(float *out, const float *in, int64_t rows, int64_t cols)
{
	enum { TILE = 32 };

	for (int64_t r0 = 0; r0 < rows; r0 += TILE)
		for (int64_t c0 = 0; c0 < cols; c0 += TILE)
			for (int64_t c = c0; c < cols && c < c0 + TILE; c++)
				for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
					out[c * rows + r] = in[r * cols + c];
}
