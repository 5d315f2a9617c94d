#include "proto/experiment/blocks.h"

#include "proto/spec/spec_config.h"
#include "proto/stats/verdict.h"

int64_t blocks_most(const struct spec *spec)
{
	return spec->repetitions + spec->spare_blocks + VERDICT_CONTROL_BLOCKS;
}

static int64_t void_blocks(const json_t *comparison)
{
	const json_t *block;
	int64_t n = 0;
	size_t i;

	json_array_foreach(json_object_get(comparison, "blocks"), i, block)
		n += json_is_string(json_object_get(block, "void"));
	return n;
}

/* Every comparison's interval is narrow enough. */
static bool all_narrow(const struct spec *spec, const json_t *comparison)
{
	const json_t *row, *design = json_object_get(comparison, "design");
	bool narrow = spec->stop_half_width > 0.0 &&
		json_integer_value(json_object_get(design, "kept")) >= VERDICT_BLOCKS_MIN;
	size_t i;

	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		const json_t *width = json_object_get(row, "half_width");

		if (json_is_true(json_object_get(row, "control")))
			continue;
		narrow = narrow && json_is_number(width) &&
			json_number_value(width) <= spec->stop_half_width;
	}
	return narrow;
}

static bool control_suspect(const json_t *comparison)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		const json_t *control = json_object_get(row, "aa_control");

		if (json_is_false(json_object_get(control, "ok")))
			return true;
	}
	return false;
}

struct blocks_wanted blocks_decide(const struct spec *spec, const json_t *comparison, int64_t n,
	const struct blocks_wanted *before)
{
	struct blocks_wanted wanted = {.extended = before->extended, .narrow = before->narrow};
	const int64_t n_void = comparison ? void_blocks(comparison) : n;
	const int64_t spare = n_void < spec->spare_blocks ? n_void : spec->spare_blocks;
	const bool enough = spec->repetitions >= VERDICT_BLOCKS_MIN;

	wanted.blocks = spec->repetitions + spare;
	if (comparison && !wanted.narrow && !wanted.extended && all_narrow(spec, comparison)) {
		wanted.narrow = true;
		wanted.blocks = n;
	} else if (wanted.narrow) {
		wanted.blocks = before->blocks - (wanted.extended ? VERDICT_CONTROL_BLOCKS : 0);
	}
	if (wanted.extended ||
		(comparison && enough && n >= wanted.blocks && control_suspect(comparison))) {
		wanted.extended = true;
		wanted.blocks += VERDICT_CONTROL_BLOCKS;
	}
	return wanted;
}
