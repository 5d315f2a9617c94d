/*
 * DeepSpeed configurations: each is refused with a reason, or becomes a text that a spec is made
 * of. A draft that is accepted with --set is accepted again once --set is put on it. Lines that
 * begin with "--set " are overrides, the rest is the configuration.
 */
#include <stdlib.h>
#include <string.h>

#include "ctl/import/deepspeed.h"
#include "tests/fuzz/fuzz.h"

enum { SETS_MAX = 8 };

/* The overrides at the beginning, to sets; the rest is the configuration. */
static size_t split(const char **text, size_t *n, char *sets[SETS_MAX])
{
	static const char mark[] = "--set ";
	const size_t n_mark = sizeof(mark) - 1;
	size_t n_sets = 0;

	while (n_sets < SETS_MAX && *n >= n_mark && memcmp(*text, mark, n_mark) == 0) {
		const char *end = memchr(*text, '\n', *n);

		if (end == NULL)
			break;
		sets[n_sets++] = strndup(*text + n_mark, (size_t)(end - *text) - n_mark);
		*n -= (size_t)(end + 1 - *text);
		*text = end + 1;
	}
	return n_sets;
}

static void check_notes(const struct deepspeed_import *import)
{
	for (size_t i = 0; i < import->n_notes; i++)
		FUZZ_MUST(import->notes[i].key[0] != '\0' && import->notes[i].text[0] != '\0');
}

static void check_draft(struct deepspeed_import *import, struct spec_options *how)
{
	static struct spec_errors errors;
	struct spec_draft_missing missing[SPEC_DRAFT_MISSING_MAX];
	const size_t n_missing =
		spec_draft_missing(&import->draft, how->sets, how->n_sets, missing);

	memset(&errors, 0, sizeof(errors));
	if (spec_draft_check(&import->draft, how, &errors) != 0) {
		FUZZ_MUST(errors.n > 0);
		return;
	}
	spec_draft_apply(&import->draft, how->sets, how->n_sets);
	how->n_sets = 0;
	FUZZ_MUST(spec_draft_missing(&import->draft, NULL, 0, missing) == n_missing);
	FUZZ_MUST(spec_draft_check(&import->draft, how, &errors) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct spec_errors errors;
	const char *text = (const char *)data;
	char *sets[SETS_MAX];
	struct spec_options how = {.base_dir = "/base", .sets = (const char *const *)sets};
	struct deepspeed_import import;
	size_t n = size;
	const size_t n_sets = split(&text, &n, sets);

	how.n_sets = n_sets;
	memset(&errors, 0, sizeof(errors));
	if (deepspeed_import(text, n, how.sets, n_sets, &import, &errors) == 0) {
		check_notes(&import);
		check_draft(&import, &how);
	} else {
		FUZZ_MUST(errors.n > 0);
	}
	deepspeed_finish(&import);
	for (size_t i = 0; i < n_sets; i++)
		free(sets[i]);
	return 0;
}
