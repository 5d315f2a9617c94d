/* blocks.c: spare blocks, stopping on the half-width, and the control's four blocks. */
#include <jansson.h>

#include "proto/experiment/blocks.h"
#include "proto/spec/spec_config.h"
#include "tests/unit/test.h"

static struct spec spec;

/* n blocks, the first n_void of them void. */
static json_t *comparison(int64_t n, int64_t n_void, double half_width, bool control_ok)
{
	json_t *blocks = json_array();

	for (int64_t i = 0; i < n; i++)
		json_array_append_new(blocks,
			i < n_void ? json_pack("{s:s}", "void", "standstill")
				   : json_pack("{s:n}", "void"));
	return json_pack("{s:{s:I}, s:o, s:[{s:b, s:f, s:{s:b}}, {s:b, s:f}]}", "design", "kept",
		(json_int_t)(n - n_void), "blocks", blocks, "comparisons", "control", 0,
		"half_width", half_width, "aa_control", "ok", control_ok, "control", 1,
		"half_width", 9.0);
}

static struct blocks_wanted decide(int64_t n, int64_t n_void, double half_width, bool control_ok,
	const struct blocks_wanted *before)
{
	json_t *c = comparison(n, n_void, half_width, control_ok);
	struct blocks_wanted wanted = blocks_decide(&spec, c, n, before);

	json_decref(c);
	return wanted;
}

static void test_void_blocks(void **state)
{
	struct blocks_wanted w = {0};

	spec = (struct spec){.repetitions = 12, .spare_blocks = 3};
	assert_int_equal(blocks_most(&spec), 19);
	w = blocks_decide(&spec, NULL, 0, &w);
	assert_int_equal(w.blocks, 12);
	assert_int_equal(decide(5, 2, 1, true, &w).blocks, 14);
	assert_int_equal(decide(5, 5, 1, true, &w).blocks, 15); /* no more spare ones */
}

static void test_stops_when_narrow(void **state)
{
	struct blocks_wanted w = {0};

	spec = (struct spec){.repetitions = 40, .spare_blocks = 10, .stop_half_width = .002};
	assert_int_equal(decide(7, 0, .001, true, &w).blocks, 40); /* not before the 8th */
	assert_int_equal(decide(8, 1, .001, true, &w).blocks, 41); /* void ones do not count */
	assert_int_equal(decide(9, 0, .003, true, &w).blocks, 40);
	w = decide(9, 0, .002, true, &w);
	assert_true(w.narrow);
	assert_int_equal(w.blocks, 9);
	assert_int_equal(decide(9, 0, .004, true, &w).blocks, 9); /* it stays stopped */
}

static void test_suspect_control(void **state)
{
	struct blocks_wanted w = {0};

	spec = (struct spec){.repetitions = 8, .spare_blocks = 2};
	assert_int_equal(decide(7, 0, 1, false, &w).blocks, 8); /* only at the end */
	w = decide(8, 0, 1, false, &w);
	assert_true(w.extended);
	assert_int_equal(w.blocks, 12);
	w = decide(12, 1, 1, false, &w); /* once; a void block has its spare one all the same */
	assert_int_equal(w.blocks, 13);
	spec.repetitions = 4; /* figures only */
	w = (struct blocks_wanted){0};
	assert_int_equal(decide(4, 0, 1, false, &w).blocks, 4);
}

static void test_suspect_control_of_a_narrow_one(void **state)
{
	struct blocks_wanted w = {0};

	spec = (struct spec){.repetitions = 40, .spare_blocks = 10, .stop_half_width = .002};
	w = decide(9, 0, .002, false, &w);
	assert_true(w.narrow && w.extended);
	assert_int_equal(w.blocks, 13);
	w = decide(13, 0, .002, false, &w);
	assert_int_equal(w.blocks, 13);
}

TEST_MAIN(cmocka_unit_test(test_void_blocks), cmocka_unit_test(test_stops_when_narrow),
	cmocka_unit_test(test_suspect_control),
	cmocka_unit_test(test_suspect_control_of_a_narrow_one))
