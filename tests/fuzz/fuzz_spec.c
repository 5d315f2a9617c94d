/*
 * Spec: what is accepted has a canonical text, which reads back to the same hash; so has each arm.
 * What is refused says why. The first byte chooses the world and whether paths may be relative.
 * Lines that begin with "--set " are overrides, the rest is the spec.
 */
#include <string.h>

#include "proto/stats/design.h"
#include "proto/spec/spec.h"
#include "tests/fuzz/fuzz.h"

enum { SETS_MAX = 8 };

struct input {
	char *sets[SETS_MAX];
	size_t n_sets;
	const char *text;
	size_t n;
};

static struct input split(const uint8_t *data, size_t size)
{
	static const char mark[] = "--set ";
	struct input in = {.text = (const char *)data, .n = size};

	while (in.n_sets < SETS_MAX && in.n >= sizeof(mark) - 1 &&
		memcmp(in.text, mark, sizeof(mark) - 1) == 0) {
		const char *value = in.text + sizeof(mark) - 1;
		const char *end = memchr(value, '\n', in.n - (sizeof(mark) - 1));

		if (end == NULL)
			break;
		in.sets[in.n_sets++] = strndup(value, (size_t)(end - value));
		in.n -= (size_t)(end + 1 - in.text);
		in.text = end + 1;
	}
	return in;
}

static void check_errors(const struct spec_errors *errors)
{
	FUZZ_MUST(errors->n >= 1);
	for (size_t i = 0; i < errors->n; i++)
		FUZZ_MUST(errors->error[i].message[0] != '\0' && errors->error[i].at.line >= 0);
}

/* The text of a whole spec reads back to the same text; an arm's reads back. */
static void check_again(char *canonical, int world, bool whole)
{
	struct spec_options options = {.world = world};
	static struct spec_errors errors;
	struct spec *spec = NULL;
	char *again;

	FUZZ_MUST(canonical != NULL);
	memset(&errors, 0, sizeof(errors));
	FUZZ_MUST(spec_parse(canonical, strlen(canonical), &options, &spec, &errors) == 0);
	again = spec_canonical(spec);
	FUZZ_MUST(!whole || strcmp(again, canonical) == 0);
	free(again);
	spec_free(spec);
	free(canonical);
}

static void check_spec(const struct spec *spec, int world)
{
	FUZZ_MUST(spec->n_arms >= 1 && spec->n_arms <= SPEC_ARMS_MAX && spec->name[0] != '\0');
	FUZZ_MUST(strchr(spec->name, '/') == NULL);
	FUZZ_MUST(spec_segments(spec) >= 1);
	check_again(spec_canonical(spec), world, true);
	for (size_t i = 0; i < spec->n_arms; i++)
		check_again(spec_canonical_arm(spec, i), world, false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int worlds[] = {0, 1, 2, 3, 8, SPEC_WORLD_MAX};
	static struct spec_errors errors;
	struct spec_options options = {0};
	struct spec *spec = NULL;
	struct input in;
	int rc;

	if (size < 1)
		return 0;
	options.world = worlds[(data[0] & 0x7f) % (sizeof(worlds) / sizeof(worlds[0]))];
	options.base_dir = data[0] & 0x80 ? NULL : "/base";
	in = split(data + 1, size - 1);
	options.sets = (const char *const *)in.sets;
	options.n_sets = in.n_sets;
	memset(&errors, 0, sizeof(errors));
	rc = spec_parse(in.text, in.n, &options, &spec, &errors);
	if (rc == 0)
		check_spec(spec, options.world);
	else
		check_errors(&errors);
	spec_free(spec);
	for (size_t i = 0; i < in.n_sets; i++)
		free(in.sets[i]);
	return 0;
}
