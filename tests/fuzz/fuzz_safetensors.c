/*
 * safetensors files: of any content, one is refused with a reason, or its tensors fill it without a
 * gap and can be read, and a header written for them reads back to the same. Input: the file.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/safetensors.h"
#include "tests/fuzz/fuzz.h"

enum { ELEMS_MAX = 4096 };

static void read_values(const struct safetensors *f, const struct safetensors_tensor *t)
{
	static float values[ELEMS_MAX];
	int64_t n = t->elems < ELEMS_MAX ? t->elems : ELEMS_MAX;
	char error[512] = "";
	int rc = safetensors_read(f, t, t->elems - n, n, values, error, sizeof(error));

	FUZZ_MUST((rc == 0) == (t->dtype != SAFETENSORS_OTHER));
	FUZZ_MUST((rc == 0) == (error[0] == '\0'));
}

/* The header of the tensors that can be written. */
static void write_again(const struct safetensors *f)
{
	struct safetensors_tensor *kept = malloc((f->n + 1) * sizeof(*kept));
	struct safetensors again = {.fd = -1};
	size_t n = 0, bytes;
	int64_t data = 0;
	char error[512] = "", *text;

	FUZZ_MUST(kept != NULL);
	for (size_t i = 0; i < f->n; i++)
		if (f->tensor[i].dtype != SAFETENSORS_OTHER) {
			kept[n++] = f->tensor[i];
			data += f->tensor[i].bytes;
		}
	text = safetensors_header(kept, n, &bytes);
	FUZZ_MUST(bytes % 8 == 0);
	FUZZ_MUST(safetensors_parse(&again, text + SAFETENSORS_LENGTH_BYTES,
			  bytes - SAFETENSORS_LENGTH_BYTES, data, error, sizeof(error)) == 0);
	FUZZ_MUST(again.n == n);
	for (size_t i = 0; i < n; i++) {
		const struct safetensors_tensor *t = safetensors_find(&again, kept[i].name);

		FUZZ_MUST(t != NULL && t->dtype == kept[i].dtype && t->bytes == kept[i].bytes);
		FUZZ_MUST(t->n_dims == kept[i].n_dims &&
			memcmp(t->dim, kept[i].dim, sizeof(t->dim)) == 0);
	}
	free(again.tensor);
	json_decref(again.header);
	free(text);
	free(kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char error[512] = "", shape[SAFETENSORS_SHAPE_BYTES];
	struct safetensors f;
	int64_t end = 0;

	FUZZ_MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	if (safetensors_open(&f, fd, "fuzz", error, sizeof(error)) != 0) {
		FUZZ_MUST(error[0] != '\0');
		return 0;
	}
	for (size_t i = 0; i < f.n; i++) {
		FUZZ_MUST(f.tensor[i].first == end);
		end += f.tensor[i].bytes;
		safetensors_shape(&f.tensor[i], shape);
		FUZZ_MUST(safetensors_find(&f, f.tensor[i].name) != NULL);
		read_values(&f, &f.tensor[i]);
	}
	FUZZ_MUST(f.data_first + end == (int64_t)size);
	write_again(&f);
	safetensors_close(&f);
	return 0;
}
