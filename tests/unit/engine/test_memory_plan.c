#include "engine/train/memory_plan.h"
#include "tests/unit/engine/checked.h"
#include "tests/unit/engine/gpt2_shape.h"
#include "tests/unit/test.h"

static void test_memory_adds_up(void **state)
{
	static const char *const parts[] = {"parameters_bytes", "gradients_bytes", "master_bytes",
		"moment_m_bytes", "moment_v_bytes", "activations_bytes", "logits_bytes",
		"batch_bytes", "scratch_bytes", "scratch_branch_bytes", "comm_bytes",
		"context_bytes", "tuning_bytes"};
	struct spec_config c = checked_config();
	int64_t sum = 0, arena;

	checked_run(&c, 2, 0);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		sum += checked_number("memory", parts[i]);
	assert_int_equal(sum, checked_number("memory", "total_bytes"));
	assert_int_equal(checked_number("memory", "planned_bytes"), 2 * sum);
	assert_int_equal(checked_number("memory", "scratch_bytes"), 7 << 10);
	assert_int_equal(checked_number("memory", "scratch_branch_bytes"), 3 << 13);
	assert_int_equal(checked_number("memory", "context_bytes"), 3000);
	assert_int_equal(checked_number("memory", "tuning_bytes"), 500);
	arena = checked_number("plan", "arena_elems");
	assert_int_equal(checked_number("memory", "parameters_bytes"), 4 * arena);
	assert_int_equal(checked_number("memory", "moment_m_bytes"), 2 * arena);
	assert_int_equal(checked_number("memory", "logits_elems"), 2 * 16 * 384);
	c.zero_stage = 0;
	checked_run(&c, 2, 0);
	assert_int_equal(checked_number("memory", "moment_m_bytes"), 4 * arena);
}

/* A micro-batch more of a step: its tokens twice on the host and once on the device, two marks. */
static void test_memory_of_accumulation(void **state)
{
	struct spec_config c = checked_config();
	int64_t before, rows = c.micro_batch * c.seq_len;

	checked_run(&c, 2, 0);
	before = checked_number("memory", "batch_bytes");
	c.batch += 1000 * 2 * c.micro_batch;
	c.accumulation += 1000;
	checked_run(&c, 2, 0);
	assert_int_equal(
		checked_number("memory", "batch_bytes") - before, 1000 * (24 * rows + 288));
}

/* A9 */
static void test_sizes_beyond_32_bits(void **state)
{
	struct spec_config c = checked_config();

	c.model = gpt2_shape();
	c.micro_batch = 64;
	c.seq_len = 1024;
	assert_true(memory_plan_logits_elems(&c) == INT64_C(3296722944));
	c.data_kind = SPEC_DATA_SYNTHETIC;
	c.data_synthetic_tokens = 1 << 20;
	checked_run(&c, 2, INT64_C(1) << 34);
	assert_true(checked_number("memory", "logits_elems") == INT64_C(3296722944));
	assert_true(checked_number("memory", "planned_bytes") > INT64_C(1) << 34);
	assert_int_equal(json_array_size(checked_errors), 1);
	assert_non_null(strstr(checked_message(0),
		" GB, each with context 3.00 kB, communication 1.00 kB, choosing algorithms 500 "
		"B), 17.2 GB available: "));
	assert_non_null(strstr(checked_message(0), "GB planned (2 ranks x "));
	assert_non_null(strstr(checked_message(0), "; largest of a rank: activations, "));
	assert_non_null(strstr(
		checked_message(0), " GB; a smaller train_micro_batch_size_per_gpu takes less"));
	c.micro_batch = INT32_MAX;
	c.seq_len = INT32_MAX;
	c.data_synthetic_tokens = INT64_MAX;
	c.batch = 8;
	checked_run(&c, 2, INT64_C(1) << 34);
	assert_string_equal(checked_key(0), "train_micro_batch_size_per_gpu");
	assert_non_null(strstr(checked_message(0), "more than 100 PB"));
	c = checked_config();
	c.model.n_layer = 4096;
	c.model.n_embd = 1 << 20;
	c.gpus = 1024;
	c.reduce_bucket_elems = c.allgather_bucket_elems = INT64_MAX;
	checked_write_tokens(1024 * 2 * 16 + 1, 7);
	checked_run(&c, 1024, INT64_C(1) << 34);
	checked_assert_error("model", "1024 ranks x");
}

/* What a check plans and a run takes, added up in one place. */
static void test_parts(void **state)
{
	const struct spec_config c = checked_config();
	struct activations_shape shape = {
		.model = &c.model, .B = 2, .T = 16, .elem_bytes = 2, .real_bytes = 4};
	struct memory_plan n = {0};
	int64_t scratch[K_SCRATCH_KINDS], all = 0;

	for (int i = 0; i < K_SCRATCH_KINDS; i++) {
		scratch[i] = INT64_C(1) << i;
		all += scratch[i];
	}
	memory_plan_parts(&n, &shape, 1000, 300, scratch);
	assert_int_equal(n.arena, 2000);
	assert_int_equal(n.master, 1200);
	assert_int_equal(n.moment, 1200);
	assert_int_equal(n.logits, activations_logits_bytes(&shape));
	assert_int_equal(n.activations + n.logits, activations_bytes(&shape));
	assert_int_equal(n.scratch + n.branch, all);
	shape.elem_bytes = 4;
	memory_plan_parts(&n, &shape, 1000, 300, scratch);
	assert_int_equal(n.arena, 4000);
	assert_int_equal(n.master, 0);
}

static void test_tight_memory_is_a_warning(void **state)
{
	struct spec_config c = checked_config();
	int64_t planned;

	checked_run(&c, 2, 0);
	planned = checked_number("memory", "planned_bytes");
	checked_run(&c, 2, planned);
	assert_int_equal(json_array_size(checked_errors), 0);
	assert_int_equal(json_array_size(json_object_get(checked, "warnings")), 1);
	checked_run(&c, 2, planned - 1);
	checked_assert_error(
		"train_micro_batch_size_per_gpu", " MB available: 1 B more; largest of a");
}

static int64_t planned_with(enum spec_recompute recompute)
{
	struct spec_config c = checked_config();

	c.recompute = recompute;
	checked_run(&c, 2, 0);
	return checked_number("memory", "planned_bytes");
}

/* A refusal names the first setting that fits, and does not promise one that does not. */
static void test_what_would_fit_is_named(void **state)
{
	int64_t none = planned_with(SPEC_RECOMPUTE_NONE);
	int64_t selective = planned_with(SPEC_RECOMPUTE_SELECTIVE);
	int64_t full = planned_with(SPEC_RECOMPUTE_FULL);
	struct spec_config c = checked_config();
	char expected[128];

	assert_true(full < selective && selective < none);
	assert_int_equal(checked_number("memory", "activations_full_bytes"),
		checked_number("memory", "activations_bytes"));
	assert_int_equal(none - full,
		2 *
			(checked_number("memory", "activations_none_bytes") -
				checked_number("memory", "activations_full_bytes")));
	checked_run(&c, 2, none - 1);
	snprintf(expected, sizeof(expected), "; with activation_checkpointing selective %.1f MB",
		(double)selective / 1e6);
	checked_assert_error("train_micro_batch_size_per_gpu", expected);
	checked_run(&c, 2, selective - 1);
	snprintf(expected, sizeof(expected), "; with activation_checkpointing full %.1f MB",
		(double)full / 1e6);
	checked_assert_error("train_micro_batch_size_per_gpu", expected);
	checked_run(&c, 2, full - 1);
	checked_assert_error("model", "available");
	assert_null(strstr(checked_message(0), "activation_checkpointing"));
	c.recompute = SPEC_RECOMPUTE_FULL;
	checked_run(&c, 2, full - 1);
	checked_assert_error("model", "available");
	assert_null(strstr(checked_message(0), "activation_checkpointing"));
	checked_run(&c, 2, full);
	assert_int_equal(json_array_size(checked_errors), 0);
}

/* What no batch makes fit is not put to the batch; who shares the memory needs fewer. */
static void test_a_model_that_does_not_fit(void **state)
{
	struct spec_config c = checked_config();
	int64_t arena;

	c.zero_stage = 0;
	checked_run(&c, 2, 0);
	arena = checked_number("memory", "parameters_bytes");
	checked_run(&c, 2, 8 * arena - 2);
	checked_assert_error("model",
		" MB a rank with any batch; fewer gpus, zero_optimization.stage 1 or a smaller "
		"model takes less");
	assert_non_null(strstr(checked_message(0), "; largest of a rank: Adam's moments, "));
	c.zero_stage = 1;
	checked_run(&c, 2, 6 * arena - 2);
	checked_assert_error("model", " with any batch; fewer gpus or a smaller model takes less");
	c.gpus = 1;
	c.batch = 4;
	c.micro_batch = 1;
	checked_run(&c, 2, 1000000);
	checked_assert_error("model", " a rank with any batch; a smaller model takes less");
	c.micro_batch = 100;
	c.recompute = SPEC_RECOMPUTE_FULL;
	c.seq_len = 256;
	checked_write_tokens(100 * 256 + 1, 7);
	checked_run(&c, 2, 5 * arena);
	checked_assert_error("train_micro_batch_size_per_gpu",
		" MB; a smaller train_micro_batch_size_per_gpu takes less");
	c.micro_batch = 1;
	c.seq_len = 100 * 256;
	checked_run(&c, 2, 5 * arena);
	checked_assert_error("seq_len", " MB; a smaller seq_len takes less");
}

/* Each rank has its own memory: fewer ranks make no room. */
static void test_a_model_too_large_for_a_gpu(void **state)
{
	struct spec_config c = checked_config();
	int64_t arena;

	c.grad_dtype = SPEC_FP32;
	c.zero_stage = 0;
	checked_run_cuda(&c, 0);
	arena = checked_number("memory", "parameters_bytes");
	checked_run_cuda(&c, 4 * arena - 2);
	checked_assert_error("model",
		" with any batch; zero_optimization.stage 1 or a smaller model takes less");
	assert_non_null(strstr(checked_message(0), " MB planned (by each rank), "));
	c.zero_stage = 1;
	checked_run_cuda(&c, 3 * arena - 2);
	checked_assert_error("model", " with any batch; a smaller model takes less");
}

/* At a run's start, of a rank by itself: ranks that share the memory need fewer all the same. */
static void test_none_left_at_a_start(void **state)
{
	struct spec_config c = checked_config();
	struct memory_device o = {.free_bytes = 2000000};
	struct memory_plan n = {
		.shape = {.model = &c.model, .B = 2, .T = 16, .elem_bytes = 4, .real_bytes = 4},
		.arena = 3000000,
		.moment = 1500000,
		.ranks = 1,
		.planned = 9500000,
	};
	char message[512];

	memory_plan_none_left(&c, &o, &n, 0, ", said", message, sizeof(message));
	assert_string_equal(message,
		"memory: 9.50 MB planned (by each rank), 2.00 MB free, said: 7.50 MB more; largest "
		"of a rank: parameters, 3.00 MB; 9.00 MB a rank with any batch; a smaller model "
		"takes less");
	n.together = true;
	o.comm_bytes = 1000;
	memory_plan_none_left(&c, &o, &n, 1000000, "", message, sizeof(message));
	assert_string_equal(message,
		"memory: 9.50 MB planned (by each rank, with communication 1.00 kB), 1.00 MB held "
		"and 2.00 MB free: 6.50 MB more; largest of a rank: parameters, 3.00 MB; 9.00 MB a "
		"rank with any batch; fewer gpus or a smaller model takes less");
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, checked_setup, checked_teardown)

TEST_MAIN(WITH_FILE(test_memory_adds_up), WITH_FILE(test_memory_of_accumulation),
	WITH_FILE(test_sizes_beyond_32_bits), WITH_FILE(test_tight_memory_is_a_warning),
	WITH_FILE(test_what_would_fit_is_named), WITH_FILE(test_a_model_that_does_not_fit),
	WITH_FILE(test_a_model_too_large_for_a_gpu), cmocka_unit_test(test_parts),
	cmocka_unit_test(test_none_left_at_a_start))
