/*
 * Manifests of checkpoints: of any content, one is refused with a reason, or its ranges cover the
 * arena once and its tensors lie in it. Input: the file.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/checkpoint.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[512] = "";
	struct checkpoint *c = NULL;
	int64_t elems = 0;

	if (checkpoint_parse("/dir", (const char *)data, size, &c, error, sizeof(error)) != 0) {
		FUZZ_MUST(error[0] != '\0');
		return 0;
	}
	for (int64_t i = 0; i < c->n_shards; i++) {
		elems += c->shards[i].elems;
		FUZZ_MUST(strchr(c->shards[i].file, '/') == NULL);
	}
	FUZZ_MUST(elems == c->param_elems);
	for (int64_t i = 0; i < c->n_tensors; i++) {
		const struct checkpoint_tensor *t = &c->tensors[i];

		FUZZ_MUST(t->first + t->rows * t->cols <= c->param_elems);
		FUZZ_MUST(checkpoint_tensor(c, t->name) != NULL);
	}
	checkpoint_close(c);
	return 0;
}
