/*
 * safetensors.h: files of named tensors, as Hugging Face's safetensors 0.4 reads and writes them: 8
 * bytes with the header's length (little endian), the header in JSON, the tensors' bytes. The
 * header is {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}; offsets
 * count from the header's end. A header may also have "__metadata__", an object of texts.
 *
 * The reader takes nothing on trust: the header's length against the file's, names once each,
 * shapes against bytes, and tensors that fill the file without a gap and without an overlap. It
 * uses pread: another process may shorten the file at any time.
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

/* Types that are read and written; files may hold others, which only have their size checked. */
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
 * The header's text, with data_bytes of the file after it: fills header, tensor and n of *out and
 * leaves its other members as they are. 0, or -EINVAL with error.
 */
int safetensors_parse(struct safetensors *out, const char *text, size_t n, int64_t data_bytes,
	char *error, size_t error_bytes);

/*
 * Reads the header of the file open at fd, which then belongs to *out. path is for messages. 0, or
 * a negative errno with error, and fd is closed.
 */
int safetensors_open(
	struct safetensors *out, int fd, const char *path, char *error, size_t error_bytes);
void safetensors_close(struct safetensors *f);

/* NULL: the file has none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name);

/* "[768, 2304]", written to out, which is returned. */
char *safetensors_shape(const struct safetensors_tensor *t, char out[SAFETENSORS_SHAPE_BYTES]);

/*
 * Elements [first, first + n) of a tensor as fp32. 0, or a negative errno with error: -ENOTSUP for
 * SAFETENSORS_OTHER, -EIO for a file that has become shorter.
 */
int safetensors_read(const struct safetensors *f, const struct safetensors_tensor *t, int64_t first,
	int64_t n, float *out, char *error, size_t error_bytes);

/*
 * The file up to its header's end, for n tensors whose bytes follow in this order: their names,
 * types and shapes are used. Its metadata is {"format": "pt"}, without which transformers refuses a
 * file. Freed by the caller; *bytes is its length.
 */
char *safetensors_header(const struct safetensors_tensor *tensors, size_t n, size_t *bytes);
/* n values of fp32 as the type has them in a file, rounded to the nearest, ties to even. */
void safetensors_convert(enum safetensors_dtype dtype, const float *in, int64_t n, void *out);
int64_t safetensors_elem_bytes(enum safetensors_dtype dtype);

#endif
