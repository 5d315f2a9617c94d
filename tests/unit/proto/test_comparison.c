/* proto/experiment: segments to a comparison: blocks, classes of equal work, controls, notes. */
#include <math.h>

#include <jansson.h>

#include "proto/experiment/comparison.h"
#include "proto/spec/spec.h"
#include "tests/unit/test.h"

static const char base[] = "\"model\": \"nano\", \"data\": {\"kind\": \"synthetic\"},"
			   "\"seq_len\": 64, \"train_micro_batch_size_per_gpu\": 4,"
			   "\"work\": {\"optimizer_steps\": 10, \"warmup_steps\": 2}";

static struct spec *parse(const char *more)
{
	static struct spec_errors errors;
	struct spec_options options = {.world = 2};
	struct spec *spec = NULL;
	char text[4096];

	snprintf(text, sizeof(text), "{%s, %s}", base, more);
	if (spec_parse(text, strlen(text), &options, &spec, &errors) != 0)
		fail_msg("%s: %s", errors.error[0].key, errors.error[0].message);
	return spec;
}

/* What a test changes in the segments of one arm; block 0: in all blocks. */
struct change {
	const char *arm;
	int block;
	const char *state, *void_reason;
	double slower;    /* times are 1 + this as long */
	double loss;      /* added to each loss */
	const char *hash; /* of the losses */
	int tokens, applied, reduce_elems;
	bool stalls;
};

static bool applies(const struct change *c, const char *arm, int block)
{
	return strcmp(c->arm, arm) == 0 && (c->block == 0 || c->block == block);
}

static json_t *summary(const char *arm, int block, const struct change *changes, size_t n)
{
	double seconds = 1.0 + 0.0001 * (double)((block * 7 + arm[0] * 3 + (int)strlen(arm)) % 5);
	const char *hash = "aa";
	json_int_t tokens = 4096, applied = 10, reduce = 1000;
	double loss = 5.0;
	bool stalls = false;

	for (size_t i = 0; i < n; i++) {
		const struct change *c = &changes[i];

		if (!applies(c, arm, block))
			continue;
		seconds *= 1.0 + c->slower;
		loss += c->loss;
		hash = c->hash ? c->hash : hash;
		tokens += c->tokens;
		applied += c->applied;
		reduce = c->reduce_elems ? c->reduce_elems : reduce;
		stalls = stalls || c->stalls;
	}
	return json_pack("{s:I, s:I, s:f, s:I, s:I, s:i, s:[I, I, I], s:[f, f], s:s, s:s, s:b,"
			 " s:f, s:f, s:{s:I, s:I}, s:f, s:n}",
		"tokens_measured", tokens * 8 / 10, "tokens_total", tokens, "seconds_measured",
		seconds, "steps_attempted", (json_int_t)10, "steps_applied", applied,
		"steps_skipped", 0, "step_time_ns", (json_int_t)(seconds * 1e8),
		(json_int_t)(seconds * 1e8), (json_int_t)(seconds * 1e8), "losses", loss, loss,
		"loss_hash", hash, "data_hash", "dd", "stalled", stalls, "exposed_comm_mean_s",
		0.01, "loss_last", loss, "plan", "reduce_elems", reduce, "n_reduce", (json_int_t)1,
		"energy_j", 100.0, "val_loss");
}

static json_t *show(const struct spec *spec, int64_t blocks, const struct change *changes, size_t n)
{
	json_t *segments = json_array();
	json_int_t number = 0;

	for (int block = 1; block <= blocks; block++) {
		for (size_t k = 0; k < 2 * spec->n_arms; k++) {
			const size_t a = k < spec->n_arms ? k : 2 * spec->n_arms - 1 - k;
			const char *arm = spec->arms[a].name, *state = "done", *reason = NULL;

			for (size_t i = 0; i < n; i++) {
				if (!applies(&changes[i], arm, block))
					continue;
				state = changes[i].state ? changes[i].state : state;
				reason = changes[i].void_reason ? changes[i].void_reason : reason;
			}
			json_array_append_new(segments,
				json_pack("{s:I, s:i, s:i, s:s, s:s, s:s?, s:o}", "segment",
					++number, "block", block, "position", (int)k + 1, "arm",
					arm, "state", state, "void", reason, "summary",
					strcmp(state, "done") == 0 ? summary(arm, block, changes, n)
								   : json_null()));
		}
	}
	return json_pack("{s:{s:i}, s:o}", "run", "id", 1, "segments", segments);
}

static json_t *compare(const char *more, int64_t blocks, const struct change *changes, size_t n)
{
	struct spec *spec = parse(more);
	json_t *s = show(spec, blocks, changes, n), *out = NULL;

	assert_int_equal(comparison_make(spec, s, NULL, &out), 0);
	assert_non_null(out);
	json_decref(s);
	spec_free(spec);
	return out;
}

static const json_t *of_arm(const json_t *out, const char *list, const char *arm)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(out, list), i, row)
		if (strcmp(json_string_value(json_object_get(row, "arm")), arm) == 0)
			return row;
	fail_msg("no %s in %s", arm, list);
	return NULL;
}

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

#define BUCKETS                                                                                    \
	"\"arms\": {\"a\": {}, \"b\": {\"zero_optimization.reduce_bucket_size\": 20000}},"         \
	"\"design\": {\"repetitions\": 8}"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_slower(void **state)
{
	const struct change changes[] = {{.arm = "b", .slower = 0.05, .reduce_elems = 20}};
	json_t *out = compare(BUCKETS, 8, changes, COUNT(changes));
	const json_t *row = of_arm(out, "comparisons", "b");

	assert_string_equal(text(row, "verdict"), "SLOWER");
	assert_true(json_number_value(json_object_get(row, "throughput_percent")) < -4.5);
	assert_true(json_number_value(json_object_get(row, "step_time_percent")) > 4.9);
	assert_true(json_is_true(json_object_get(json_object_get(row, "work"), "equal")));
	assert_string_equal(text(json_object_get(row, "aa_control"), "arm"), "a-aa");
	assert_true(json_is_false(json_object_get(row, "identical_plan")));
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(out, "design"), "kept")), 8);
	json_decref(out);
}

static void test_void_and_open_blocks_are_left_out(void **state)
{
	const struct change changes[] = {
		{.arm = "b", .block = 3, .slower = 3.0, .void_reason = "standstill: rank 1"},
		{.arm = "b", .block = 9, .state = "running"}};
	json_t *out = compare(BUCKETS, 9, changes, COUNT(changes));
	const json_t *design = json_object_get(out, "design");
	const json_t *row = of_arm(out, "comparisons", "b");

	assert_int_equal(json_integer_value(json_object_get(design, "blocks")), 9);
	assert_int_equal(json_integer_value(json_object_get(design, "kept")), 7);
	assert_string_equal(text(row, "reason"), "design");
	assert_true(fabs(json_number_value(json_object_get(row, "throughput_percent"))) < 1.0);
	json_decref(out);
}

/* A standstill makes a segment slow; neither its time nor its updates are in the arm's figures. */
static void test_figures_are_of_the_kept_blocks(void **state)
{
	const struct change changes[] = {
		{.arm = "a", .block = 2, .void_reason = "standstill: rank 0, 3.0 s", .slower = 9.0},
		{.arm = "b", .block = 3, .state = "waiting"},
	};
	json_t *out = compare(BUCKETS, 10, changes, COUNT(changes));
	const json_t *a = of_arm(out, "arms", "a"), *b = of_arm(out, "arms", "b");

	assert_int_equal(json_integer_value(json_object_get(a, "segments")), 16);
	assert_int_equal(json_integer_value(json_object_get(a, "steps_applied")), 160);
	assert_int_equal(json_integer_value(json_object_get(b, "steps_applied")), 160);
	assert_true(json_real_value(json_object_get(a, "seconds")) < 17.0);
	json_decref(out);
}

/* Without a kept block there is no change to print: not one of 0 %. */
static void test_no_kept_block_has_no_estimate(void **state)
{
	const struct change change = {.arm = "b", .void_reason = "thermal_slowdown"};
	json_t *out = compare(BUCKETS, 2, &change, 1);
	const json_t *row = of_arm(out, "comparisons", "b");

	assert_true(json_is_null(json_object_get(row, "throughput_percent")));
	assert_true(json_is_null(json_object_get(row, "p_holm")));
	assert_int_equal(
		json_integer_value(json_object_get(of_arm(out, "arms", "b"), "segments")), 4);
	json_decref(out);
}

/* Twice the tokens in the same time are twice the throughput, though no verdict follows. */
static void test_throughput_of_unequal_tokens(void **state)
{
	const struct change change = {.arm = "b", .tokens = 4096};
	json_t *out = compare(BUCKETS, 8, &change, 1);
	const json_t *row = of_arm(out, "comparisons", "b");
	const double percent = json_number_value(json_object_get(row, "throughput_percent"));

	assert_string_equal(text(row, "reason"), "unequal_work");
	assert_true(fabs(percent - 100.0) < 1.0);
	json_decref(out);
}

static void test_unequal_work(void **state)
{
	const struct {
		struct change change;
		const char *why;
	} cases[] = {
		{{.arm = "b", .block = 2, .tokens = 64}, "tokens"},
		{{.arm = "b", .block = 2, .applied = -1}, "applied updates"},
		{{.arm = "b", .loss = 0.01, .hash = "bb"}, "losses differ by up to 0.01"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		json_t *out = compare(BUCKETS, 8, &cases[i].change, 1);
		const json_t *row = of_arm(out, "comparisons", "b");

		assert_string_equal(text(row, "reason"), "unequal_work");
		assert_non_null(strstr(text(json_object_get(row, "work"), "why"), cases[i].why));
		json_decref(out);
	}
}

/* The classes: what differs decides how alike losses must be. */
static void test_classes(void **state)
{
	const struct {
		const char *key, *class;
		double loss;
		bool equal;
	} cases[] = {
		{"\"activation_checkpointing\": \"full\"", "same_numerics", 0.0, true},
		{"\"activation_checkpointing\": \"full\"", "same_numerics", 1e-6, false},
		{"\"zero_optimization.reduce_bucket_size\": 20000", "other_order_of_sums", 9e-4,
			true},
		{"\"zero_optimization.reduce_bucket_size\": 20000", "other_order_of_sums", 2e-3,
			false},
		{"\"bf16.enabled\": true", "other_precision", 0.5, true},
		{"\"optimizer.params.lr\": 0.5", "other_training", 0.0, false},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct change change = {.arm = "b",
			.loss = cases[i].loss,
			.hash = cases[i].loss > 0.0 ? "bb" : NULL};
		char more[512];
		const json_t *work;
		json_t *out;

		snprintf(more, sizeof(more), "\"arms\": {\"a\": {}, \"b\": {%s}}", cases[i].key);
		out = compare(more, 8, &change, 1);
		work = json_object_get(of_arm(out, "comparisons", "b"), "work");
		assert_string_equal(text(work, "class"), cases[i].class);
		assert_int_equal(json_is_true(json_object_get(work, "equal")), cases[i].equal);
		json_decref(out);
	}
}

static void test_what_differs_is_named(void **state)
{
	json_t *out = compare(BUCKETS, 1, NULL, 0);
	const json_t *differs = json_object_get(of_arm(out, "arms", "b"), "differs");

	assert_int_equal(json_array_size(differs), 1);
	assert_string_equal(
		text(json_array_get(differs, 0), "key"), "zero_optimization.reduce_bucket_size");
	assert_string_equal(text(json_array_get(differs, 0), "value"), "20000");
	assert_int_equal(
		json_array_size(json_object_get(of_arm(out, "arms", "a-aa"), "differs")), 0);
	json_decref(out);
}

/* 5e8 and 2e8 elements are both one bucket: a note, and the arm is the control where none is. */
static void test_identical_plan(void **state)
{
	json_t *out = compare(BUCKETS, 8, NULL, 0);

	assert_true(
		json_is_true(json_object_get(of_arm(out, "comparisons", "b"), "identical_plan")));
	assert_true(json_is_false(json_object_get(of_arm(out, "comparisons", "b"), "control")));
	json_decref(out);
	out = compare(
		"\"arms\": {\"a\": {}, \"b\": {\"zero_optimization.reduce_bucket_size\": 20000},"
		"\"c\": {\"zero_optimization.stage\": 1}}, \"design\": {\"aa_control\": false}",
		8, NULL, 0);
	assert_true(json_is_true(json_object_get(of_arm(out, "comparisons", "b"), "control")));
	assert_string_equal(
		text(json_object_get(of_arm(out, "comparisons", "c"), "aa_control"), "arm"), "b");
	json_decref(out);
}

static void test_control_that_fails(void **state)
{
	const struct change changes[] = {{.arm = "a-aa", .slower = 0.03}};
	json_t *out = compare(BUCKETS, 8, changes, COUNT(changes));

	assert_string_equal(text(of_arm(out, "comparisons", "b"), "reason"), "control");
	json_decref(out);
}

static void test_stalls_of_the_faster_arm(void **state)
{
	const struct change changes[] = {{.arm = "b", .slower = -0.05, .stalls = true}};
	json_t *out = compare(BUCKETS, 8, changes, COUNT(changes));

	assert_string_equal(text(of_arm(out, "comparisons", "b"), "reason"), "stalls");
	assert_int_equal(
		json_integer_value(json_object_get(of_arm(out, "arms", "b"), "stalled_segments")),
		16);
	json_decref(out);
}

static void test_an_arm_that_failed(void **state)
{
	const struct change changes[] = {
		{.arm = "b", .block = 4, .state = "failed"}, {.arm = "c", .slower = 0.05}};
	json_t *out = compare("\"arms\": {\"a\": {}, \"b\": {\"zero_optimization.stage\": 1},"
			      "\"c\": {\"zero_optimization.overlap_comm\": false}}",
		8, changes, COUNT(changes));

	assert_true(json_is_true(json_object_get(of_arm(out, "arms", "b"), "failed")));
	assert_string_equal(text(of_arm(out, "comparisons", "c"), "verdict"), "SLOWER");
	assert_string_equal(text(of_arm(out, "comparisons", "b"), "reason"), "design");
	json_decref(out);
}

/* Blocks count without an arm that failed; nothing is compared with that arm. */
static void test_a_baseline_that_failed(void **state)
{
	const struct change change = {.arm = "b", .state = "failed"};
	struct spec *spec = parse(BUCKETS);
	json_t *s = show(spec, 8, &change, 1), *out = NULL;
	const json_t *row;

	assert_int_equal(comparison_make(spec, s, "b", &out), 0);
	row = of_arm(out, "comparisons", "a");
	assert_int_equal(json_integer_value(json_object_get(row, "blocks")), 0);
	assert_true(json_is_null(json_object_get(row, "throughput_percent")));
	json_decref(out);
	json_decref(s);
	spec_free(spec);
}

static void test_unlike_steps_are_named(void **state)
{
	json_t *out = compare("\"arms\": {\"a\": {}, \"b\": {\"train_micro_batch_size_per_gpu\": 8,"
			      "\"work.optimizer_steps\": 5}}",
		1, NULL, 0);

	assert_string_equal(text(of_arm(out, "comparisons", "b"), "steps_differ"),
		"8 and 16 sequences of 64 and 64 tokens");
	json_decref(out);
}

static void test_refusals(void **state)
{
	struct spec *spec = parse(BUCKETS);
	json_t *s = show(spec, 1, NULL, 0), *out = NULL;

	assert_int_equal(comparison_make(spec, s, "none", &out), -ENOENT);
	assert_int_equal(comparison_make(spec, s, "b", &out), 0);
	assert_string_equal(text(out, "baseline"), "b");
	json_decref(out);
	json_decref(s);
	s = show(spec, 0, NULL, 0);
	assert_int_equal(comparison_make(spec, s, NULL, &out), -ENODATA);
	json_decref(s);
	spec_free(spec);
}

TEST_MAIN(cmocka_unit_test(test_slower), cmocka_unit_test(test_void_and_open_blocks_are_left_out),
	cmocka_unit_test(test_figures_are_of_the_kept_blocks),
	cmocka_unit_test(test_no_kept_block_has_no_estimate),
	cmocka_unit_test(test_throughput_of_unequal_tokens), cmocka_unit_test(test_unequal_work),
	cmocka_unit_test(test_classes), cmocka_unit_test(test_what_differs_is_named),
	cmocka_unit_test(test_identical_plan), cmocka_unit_test(test_control_that_fails),
	cmocka_unit_test(test_stalls_of_the_faster_arm), cmocka_unit_test(test_an_arm_that_failed),
	cmocka_unit_test(test_a_baseline_that_failed),
	cmocka_unit_test(test_unlike_steps_are_named), cmocka_unit_test(test_refusals))
