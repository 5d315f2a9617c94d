/*
 * safetensors.h: reads and writes files of named tensors in the format of Hugging Face's
 * safetensors 0.4: 8 bytes with the header's length (little endian), the header in JSON, the
 * tensors' bytes. The header is {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
 * 24]}, ...}; offsets count from the header's end. A header may also have "__metadata__", an object
 * of texts.
 *
 * The reader checks everything: the header's length against the file's, duplicate names, shapes
 * against bytes, and that tensors fill the file without a gap or an overlap. It uses pread: another
 * process may shorten the file at any time.
 */
#ifndef GPT2D_PROTO_SAFETENSORS_H
#define GPT2D_PROTO_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SAFETENSORS_LENGTH_BYTES = 8,
	SAFETENSORS_HEADER_MAX = 4 << 20, /* bytes of JSON; 580 tensors of gpt2-xl take 64 KiB */
	SAFETENSORS_DIMS_MAX = 8,
	SAFETENSORS_SHAPE_BYTES = SAFETENSORS_DIMS_MAX * 22,
};

/* Types that can be read and written; for other types in a file only the size is checked. */
enum safetensors_dtype {
	SAFETENSORS_F32,
	SAFETENSORS_F16,
	SAFETENSORS_BF16,
	SAFETENSORS_OTHER,
};

struct safetensors_tensor {
	const char *name;
	const char *dtype_name; /* "F32" */
	enum safetensors_dtype dtype;
	int n_dims;
	int64_t dim[SAFETENSORS_DIMS_MAX];
	int64_t elems, bytes;
	int64_t first; /* offset of its bytes from the header's end */
};

struct safetensors {
	int fd;
	char *path;                        /* for messages */
	json_t *header;                    /* holds the names */
	struct safetensors_tensor *tensor; /* in the order of their bytes */
	size_t n;
	int64_t data_first; /* offset of the header's end in the file */
};

/*
 * Parses the header's text, with data_bytes of the file after it: fills header, tensor and n of
 * *out, and no other members. 0, or -EINVAL with error.
 */
int safetensors_parse(struct safetensors *out, const char *text, size_t n, int64_t data_bytes,
	char *error, size_t error_bytes);

/*
 * Reads the header of the open file fd, which *out then owns. path is for messages. 0, or a
 * negative errno with error, and fd is closed.
 */
int safetensors_open(
	struct safetensors *out, int fd, const char *path, char *error, size_t error_bytes);
void safetensors_close(struct safetensors *f);

/* NULL: no tensor of the file has that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name);

/* "[768, 2304]", written to out, which is returned. */
char *safetensors_shape(const struct safetensors_tensor *t, char out[SAFETENSORS_SHAPE_BYTES]);

/*
 * Reads elements [first, first + n) of a tensor as fp32. 0, or a negative errno with error:
 * -ENOTSUP for SAFETENSORS_OTHER, -EIO if the file has become shorter.
 */
int safetensors_read(const struct safetensors *f, const struct safetensors_tensor *t, int64_t first,
	int64_t n, float *out, char *error, size_t error_bytes);

/*
 * The bytes of a file up to its header's end, for n tensors (name, type, shape) whose bytes follow
 * in this order. Its metadata is {"format": "pt"}, which transformers requires. The caller frees
 * it; *bytes is its length.
 */
char *safetensors_header(const struct safetensors_tensor *tensors, size_t n, size_t *bytes);
/* Converts n values of fp32 to the type's bytes in a file, rounded to the nearest, ties to even. */
void safetensors_convert(enum safetensors_dtype dtype, const float *in, int64_t n, void *out);
int64_t safetensors_elem_bytes(enum safetensors_dtype dtype);

/* out (cols, rows) = in (rows, cols) transposed: Conv1D of GPT-2 has its inputs in the rows. */
void safetensors_transpose(float *out, const float *in, int64_t rows, int64_t cols);

#endif
