/*
 * Tuning files: of any content, one is refused or is the one text of what was read from it. Input:
 * the file; its last line, the SHA-256, is put right first, so that what lies before it is looked
 * at.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/train/tuning.h"
#include "proto/artifact.h"
#include "tests/fuzz/fuzz.h"

static const char holds_for[] = "GPU, sm_90, cuBLASLt 1";

/* Without the hash that it came with. */
static size_t body(const char *text, size_t n)
{
	const char word[] = "sha256 ";
	size_t tail = sizeof(word) - 1 + 65;

	if (n >= tail && memcmp(text + n - tail, word, sizeof(word) - 1) == 0)
		return n - tail;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = body((const char *)data, size);
	char *text = malloc(n + 80), sha256[65], error[256] = "";
	struct k_choice *choices = NULL;
	int64_t found = 0;

	FUZZ_MUST(text != NULL);
	memcpy(text, data, n);
	FUZZ_MUST(artifact_sha256(text, n, sha256) == 0);
	n += (size_t)snprintf(text + n, 80, "sha256 %s\n", sha256);
	if (tuning_parse(text, n, holds_for, &choices, &found, error, sizeof(error)) == 0) {
		char *again = tuning_text(holds_for, choices, found);

		FUZZ_MUST(again != NULL && strlen(again) == n && memcmp(again, text, n) == 0);
		free(again);
		free(choices);
	} else {
		FUZZ_MUST(error[0] != '\0');
	}
	free(text);
	return 0;
}
