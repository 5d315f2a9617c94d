#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/check.h"
#include "proto/spec_table.h"
#include "tests/unit/gpt2_shape.h"

static char path[64];
static json_t *errors, *check;

static void write_tokens(int64_t n, uint16_t id)
{
	FILE *f = fopen(path, "wb");
	int64_t i;

	assert_non_null(f);
	for (i = 0; i < n; i++) {
		uint16_t token = i == n - 1 ? id : (uint16_t)(i * 31 % 257);

		assert_int_equal(fwrite(&token, 2, 1, f), 1);
	}
	assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s", "/tmp/test_check.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	write_tokens(1025, 7); /* 64 sequences of 16 */
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	json_decref(errors);
	json_decref(check);
	errors = check = NULL;
	return 0;
}

static struct spec_config config(void)
{
	struct spec_config c = {
		.model = {.n_layer = 2,
			.n_head = 2,
			.n_embd = 128,
			.vocab_size = 257,
			.n_positions = 256,
			.tied_head = true},
		.data_kind = SPEC_DATA_FILE,
		.seq_len = 16,
		.gpus = 2,
		.micro_batch = 2,
		.accumulation = 2,
		.batch = 8,
		.zero_stage = 1,
		.reduce_bucket_elems = 100000,
		.allgather_bucket_elems = 200000,
		.reduce_scatter = true,
		.optimizer_steps = 20,
		.warmup_steps = 2,
	};

	snprintf(c.data_train, sizeof(c.data_train), "%s", path);
	return c;
}

static void run(const struct spec_config *c, int world, int64_t memory)
{
	struct check_options o = {.config = c,
		.backend = "cpu",
		.memory_total_bytes = memory,
		.memory_free_bytes = memory / 2,
		.world = world,
		.comm_bytes = 1000,
		.context_bytes = 3000,
		.tuning_bytes = 500,
		.scratch = {[K_SCRATCH_PRODUCTS] = 1 << 10,
			[K_SCRATCH_OPERATION] = 1 << 11,
			[K_SCRATCH_PARTIAL] = 1 << 12,
			[K_SCRATCH_BESIDE_PRODUCTS] = 1 << 13,
			[K_SCRATCH_BESIDE_OPERATION] = 1 << 14}};

	json_decref(errors);
	json_decref(check);
	assert_int_equal(check_run(&o, &errors, &check), 0);
	assert_non_null(json_object_get(check, "warnings"));
}

static const char *key_of(size_t i)
{
	return json_string_value(json_object_get(json_array_get(errors, i), "key"));
}

static const char *message_of(size_t i)
{
	return json_string_value(json_object_get(json_array_get(errors, i), "message"));
}

static void assert_error(const char *key, const char *message)
{
	assert_int_equal(json_array_size(errors), 1);
	assert_string_equal(key_of(0), key);
	if (strstr(message_of(0), message) == NULL)
		fail_msg("\"%s\" expected in \"%s\"", message, message_of(0));
}

static int64_t number(const char *object, const char *key)
{
	json_t *value = json_object_get(json_object_get(check, object), key);

	if (!json_is_integer(value))
		fail_msg("%s.%s is no integer", object, key);
	return json_integer_value(value);
}

static json_t *data(const char *which, const char *key)
{
	return json_object_get(json_object_get(json_object_get(check, "data"), which), key);
}

static void test_all_well(void **state)
{
	struct spec_config c = config();

	(void)state;
	run(&c, 2, INT64_C(1) << 33);
	assert_int_equal(json_array_size(errors), 0);
	assert_int_equal(json_array_size(json_object_get(check, "warnings")), 0);
	assert_int_equal(number("plan", "asked_reduce_elems"), 100000);
	assert_int_equal(number("plan", "reduce_elems"), 100096);
	assert_int_equal(number("plan", "n_reduce"), 5);
	assert_int_equal(number("plan", "reduce_bucket_bytes"), 400384);
	assert_int_equal(number("work", "optimizer_steps"), 20);
	assert_int_equal(number("work", "micro_steps"), 40);
	assert_int_equal(number("work", "tokens"), 2560);
	assert_int_equal(number("batch", "train_batch_size"), 8);
	assert_int_equal(json_integer_value(data("train", "tokens")), 1025);
	assert_int_equal(json_integer_value(data("train", "needed")), 65);
	assert_int_equal(json_integer_value(data("train", "sequences")), 64);
	assert_true(json_real_value(data("train", "epochs")) == 2.5);
	assert_null(data("val", "path"));
}

static void test_more_steps_than_times_are_kept(void **state)
{
	const char *help = strstr(spec_table[SPEC_KEY_OPTIMIZER_STEPS].help, "at most ");
	struct spec_config c = config();

	(void)state;
	c.optimizer_steps = INT64_C(1000000000);
	run(&c, 2, INT64_C(1) << 33);
	assert_error("work", "1000000000 steps: the times of at most 11184810 steps of 2 ranks");
	c.optimizer_steps = 11184810;
	run(&c, 2, INT64_C(1) << 33);
	assert_int_equal(json_array_size(errors), 0);
	assert_non_null(help);
	assert_int_equal(strtoll(help + strlen("at most "), NULL, 10) / (2 + 2), 11184810);
}

static void test_memory_adds_up(void **state)
{
	static const char *const parts[] = {"parameters_bytes", "gradients_bytes", "master_bytes",
		"moment_m_bytes", "moment_v_bytes", "activations_bytes", "logits_bytes",
		"batch_bytes", "scratch_bytes", "scratch_branch_bytes", "comm_bytes",
		"context_bytes", "tuning_bytes"};
	struct spec_config c = config();
	int64_t sum = 0, arena;
	size_t i;

	(void)state;
	run(&c, 2, 0);
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		sum += number("memory", parts[i]);
	assert_int_equal(sum, number("memory", "total_bytes"));
	assert_int_equal(number("memory", "planned_bytes"), 2 * sum);
	assert_int_equal(number("memory", "scratch_bytes"), 7 << 10);
	assert_int_equal(number("memory", "scratch_branch_bytes"), 3 << 13);
	assert_int_equal(number("memory", "context_bytes"), 3000);
	assert_int_equal(number("memory", "tuning_bytes"), 500);
	arena = number("plan", "arena_elems");
	assert_int_equal(number("memory", "parameters_bytes"), 4 * arena);
	assert_int_equal(number("memory", "moment_m_bytes"), 2 * arena);
	assert_int_equal(number("memory", "logits_elems"), 2 * 16 * 384);
	c.zero_stage = 0;
	run(&c, 2, 0);
	assert_int_equal(number("memory", "moment_m_bytes"), 4 * arena);
}

/* A micro-batch more of a step: its tokens twice on the host and once on the device, two marks. */
static void test_memory_of_accumulation(void **state)
{
	struct spec_config c = config();
	int64_t before, rows = c.micro_batch * c.seq_len;

	(void)state;
	run(&c, 2, 0);
	before = number("memory", "batch_bytes");
	c.batch += 1000 * 2 * c.micro_batch;
	c.accumulation += 1000;
	run(&c, 2, 0);
	assert_int_equal(number("memory", "batch_bytes") - before, 1000 * (24 * rows + 288));
}

/* A9 */
static void test_sizes_beyond_32_bits(void **state)
{
	struct spec_config c = config();

	(void)state;
	c.model = gpt2_shape();
	c.micro_batch = 64;
	c.seq_len = 1024;
	assert_true(check_logits_elems(&c) == INT64_C(3296722944));
	c.data_kind = SPEC_DATA_SYNTHETIC;
	c.data_synthetic_tokens = 1 << 20;
	run(&c, 2, INT64_C(1) << 34);
	assert_true(number("memory", "logits_elems") == INT64_C(3296722944));
	assert_true(number("memory", "planned_bytes") > INT64_C(1) << 34);
	assert_int_equal(json_array_size(errors), 1);
	assert_non_null(strstr(message_of(0),
		" GB, each with context 3.00 kB, communication 1.00 kB, choosing algorithms 500 "
		"B), 17.2 GB available: "));
	assert_non_null(strstr(message_of(0), "GB planned (2 ranks x "));
	assert_non_null(strstr(message_of(0), "; largest of a rank: activations, "));
	assert_non_null(
		strstr(message_of(0), " GB; a smaller train_micro_batch_size_per_gpu takes less"));
	c.micro_batch = INT32_MAX;
	c.seq_len = INT32_MAX;
	c.data_synthetic_tokens = INT64_MAX;
	c.batch = 8;
	run(&c, 2, INT64_C(1) << 34);
	assert_string_equal(key_of(0), "train_micro_batch_size_per_gpu");
	assert_non_null(strstr(message_of(0), "more than 100 PB"));
	c = config();
	c.model.n_layer = 4096;
	c.model.n_embd = 1 << 20;
	c.gpus = 1024;
	c.reduce_bucket_elems = c.allgather_bucket_elems = INT64_MAX;
	write_tokens(1024 * 2 * 16 + 1, 7);
	run(&c, 1024, INT64_C(1) << 34);
	assert_error("model", "1024 ranks x");
}

static void test_tight_memory_is_a_warning(void **state)
{
	struct spec_config c = config();
	int64_t planned;

	(void)state;
	run(&c, 2, 0);
	planned = number("memory", "planned_bytes");
	run(&c, 2, planned);
	assert_int_equal(json_array_size(errors), 0);
	assert_int_equal(json_array_size(json_object_get(check, "warnings")), 1);
	run(&c, 2, planned - 1);
	assert_error("train_micro_batch_size_per_gpu", " MB available: 1 B more; largest of a");
}

static int64_t planned_with(enum spec_recompute recompute)
{
	struct spec_config c = config();

	c.recompute = recompute;
	run(&c, 2, 0);
	return number("memory", "planned_bytes");
}

/* A refusal names the first setting that fits, and does not promise one that does not. */
static void test_what_would_fit_is_named(void **state)
{
	int64_t none = planned_with(SPEC_RECOMPUTE_NONE);
	int64_t selective = planned_with(SPEC_RECOMPUTE_SELECTIVE);
	int64_t full = planned_with(SPEC_RECOMPUTE_FULL);
	struct spec_config c = config();
	char expected[128];

	(void)state;
	assert_true(full < selective && selective < none);
	assert_int_equal(
		number("memory", "activations_full_bytes"), number("memory", "activations_bytes"));
	assert_int_equal(none - full,
		2 *
			(number("memory", "activations_none_bytes") -
				number("memory", "activations_full_bytes")));
	run(&c, 2, none - 1);
	snprintf(expected, sizeof(expected), "; with activation_checkpointing selective %.1f MB",
		(double)selective / 1e6);
	assert_error("train_micro_batch_size_per_gpu", expected);
	run(&c, 2, selective - 1);
	snprintf(expected, sizeof(expected), "; with activation_checkpointing full %.1f MB",
		(double)full / 1e6);
	assert_error("train_micro_batch_size_per_gpu", expected);
	run(&c, 2, full - 1);
	assert_error("model", "available");
	assert_null(strstr(message_of(0), "activation_checkpointing"));
	c.recompute = SPEC_RECOMPUTE_FULL;
	run(&c, 2, full - 1);
	assert_error("model", "available");
	assert_null(strstr(message_of(0), "activation_checkpointing"));
	run(&c, 2, full);
	assert_int_equal(json_array_size(errors), 0);
}

/* What no batch makes fit is not put to the batch; who shares the memory needs fewer. */
static void test_a_model_that_does_not_fit(void **state)
{
	struct spec_config c = config();
	int64_t arena;

	(void)state;
	c.zero_stage = 0;
	run(&c, 2, 0);
	arena = number("memory", "parameters_bytes");
	run(&c, 2, 8 * arena - 2);
	assert_error("model",
		" MB a rank with any batch; fewer gpus, zero_optimization.stage 1 or a smaller "
		"model takes less");
	assert_non_null(strstr(message_of(0), "; largest of a rank: Adam's moments, "));
	c.zero_stage = 1;
	run(&c, 2, 6 * arena - 2);
	assert_error("model", " with any batch; fewer gpus or a smaller model takes less");
	c.gpus = 1;
	c.batch = 4;
	c.micro_batch = 1;
	run(&c, 2, 1000000);
	assert_error("model", " a rank with any batch; a smaller model takes less");
	c.micro_batch = 100;
	c.recompute = SPEC_RECOMPUTE_FULL;
	c.seq_len = 256;
	write_tokens(100 * 256 + 1, 7);
	run(&c, 2, 5 * arena);
	assert_error("train_micro_batch_size_per_gpu",
		" MB; a smaller train_micro_batch_size_per_gpu takes less");
	c.micro_batch = 1;
	c.seq_len = 100 * 256;
	run(&c, 2, 5 * arena);
	assert_error("seq_len", " MB; a smaller seq_len takes less");
}

/* Made-up data has no file: the key is its own, once for training and validation. */
static void test_too_few_made_up_tokens(void **state)
{
	struct spec_config c = config();

	(void)state;
	c.data_kind = SPEC_DATA_SYNTHETIC;
	c.data_synthetic_tokens = 64;
	c.data_train[0] = '\0';
	c.validation_steps = 1;
	run(&c, 2, 0);
	assert_error("data.synthetic_tokens", "64 tokens, 65 needed (2 ranks x 2 x 16 + 1)");
}

static void test_what_the_engine_cannot_do(void **state)
{
	struct spec_config c = config();

	(void)state;
	c.precision = SPEC_FP16;
	run(&c, 2, 0);
	assert_error("fp16.enabled", "the cpu engine computes in fp32, not in fp16");
	c.precision = SPEC_BF16;
	run(&c, 2, 0);
	assert_error("bf16.enabled", "not in bf16");
	c.precision = SPEC_TF32;
	run(&c, 2, 0);
	assert_error("tf32", "not in tf32");
	c = config();
	c.grad_dtype = SPEC_BF16;
	run(&c, 2, 0);
	assert_error("grad_dtype", "not in bf16");
	c = config();
	run(&c, 1, 0);
	assert_error("gpus", "2 ranks asked for, 1 are there");
}

static void test_plan_refused(void **state)
{
	struct spec_config c = config();

	(void)state;
	c.allgather_bucket_elems = 1000;
	run(&c, 2, 0);
	assert_error("zero_optimization.allgather_bucket_size", "1000 elements are fewer than");
	assert_null(json_object_get(check, "plan"));
	assert_null(json_object_get(check, "memory"));
	assert_non_null(data("train", "tokens"));
	c = config();
	c.model.n_embd = 1024;
	c.reduce_bucket_elems = 1;
	run(&c, 2, 0);
	assert_error("zero_optimization.reduce_bucket_size", "at most 4096 allowed: at least");
}

static void test_data_refused(void **state)
{
	struct spec_config c = config();

	(void)state;
	write_tokens(64, 7);
	run(&c, 2, 0);
	assert_error("data.train", "64 tokens, 65 needed (2 ranks x 2 x 16 + 1)");
	write_tokens(1025, 257);
	run(&c, 2, 0);
	assert_error("data.train", "token 1024 is 257, ids below 257 expected");
	write_tokens(1025, 256);
	run(&c, 2, 0);
	assert_int_equal(json_array_size(errors), 0);
	snprintf(c.data_val, sizeof(c.data_val), "%s", "/nonexistent-dir/val.bin");
	snprintf(c.data_train, sizeof(c.data_train), "%s", "/nonexistent-dir/train.bin");
	run(&c, 2, 0); /* both in one go */
	assert_int_equal(json_array_size(errors), 2);
	assert_string_equal(key_of(0), "data.train");
	assert_string_equal(key_of(1), "data.val");
}

/* How far a check came survives as JSON, which anything may stand in for. */
static void test_turns(void **state)
{
	struct spec_config c = config();
	struct check_turn turn = {.left_bytes = 2}, again = {.left_bytes = 0};
	struct check_options o = {.config = &c, .backend = "cpu", .world = 2, .turn = &turn};
	json_t *told, *found = NULL, *refused = NULL;

	(void)state;
	snprintf(c.data_val, sizeof(c.data_val), "%s", path);
	assert_int_equal(check_run(&o, &refused, &found), -EINPROGRESS);
	assert_null(found);
	assert_int_equal(turn.scanned[0].tokens, 1025);
	assert_int_equal(turn.scanned[1].tokens, 0);
	told = check_turn_json(&turn);
	check_turn_read(&again, told);
	assert_memory_equal(again.scanned, turn.scanned, sizeof(turn.scanned));
	turn.left_bytes = 2;
	assert_int_equal(check_run(&o, &refused, &found), 0);
	assert_int_equal(json_array_size(refused), 0);
	json_decref(refused);
	json_decref(found);
	json_object_set_new(json_array_get(told, 0), "ino", json_string("7"));
	check_turn_read(&again, told);
	assert_int_equal(again.scanned[0].tokens, 0);
	json_decref(told);
	check_turn_read(&again, NULL);
	assert_int_equal(again.scanned[0].file_bytes, 0);
}

static void test_validation(void **state)
{
	struct spec_config c = config();

	(void)state;
	snprintf(c.data_val, sizeof(c.data_val), "%s", path);
	c.validation_steps = 16;
	run(&c, 2, 0);
	assert_int_equal(json_array_size(errors), 0);
	assert_true(json_real_value(data("val", "passes")) == 1.0);
	assert_int_equal(json_array_size(json_object_get(check, "warnings")), 0);
	c.validation_steps = 17;
	run(&c, 2, 0);
	assert_int_equal(json_array_size(json_object_get(check, "warnings")), 1);
}

static void test_epochs(void **state)
{
	struct spec_config c = config();
	int64_t left_over;

	(void)state;
	c.optimizer_steps = 0;
	c.work_epochs = 2;
	run(&c, 2, 0);
	assert_int_equal(json_array_size(errors), 0);
	assert_int_equal(number("work", "optimizer_steps"), 16);
	assert_int_equal(number("work", "left_over_sequences"), 0);
	c.batch = 12;
	c.accumulation = 3;
	run(&c, 2, 0);
	assert_int_equal(number("work", "optimizer_steps"), 10);
	assert_int_equal(number("work", "left_over_sequences"), 8);
	assert_int_equal(json_array_size(json_object_get(check, "warnings")), 1);
	c.batch = 132;
	c.accumulation = 33;
	run(&c, 2, 0);
	assert_error("work.epochs", "2 epochs of 64 sequences do not fill one batch of 132");
	c.work_epochs = INT64_MAX / 64 + 1;
	run(&c, 2, 0);
	assert_error("work.epochs",
		"144115188075855872 epochs of 64 sequences, at most 144115188075855871 epochs can "
		"be counted");
	c = config();
	c.work_epochs = 1;
	c.optimizer_steps = 0;
	c.warmup_steps = 8;
	run(&c, 2, 0);
	assert_error("work.warmup_steps", "8 of 8 steps");
	assert_int_equal(check_optimizer_steps(&c, 64, &left_over), 8);
	assert_int_equal(left_over, 0);
}

static void run_cuda(const struct spec_config *c, int64_t memory)
{
	struct check_options options = {
		.config = c,
		.backend = "cuda",
		.memory_total_bytes = memory,
		.world = 2,
	};

	json_decref(errors);
	json_decref(check);
	assert_int_equal(check_run(&options, &errors, &check), 0);
}

/* Each rank has its own memory: fewer ranks make no room. */
static void test_a_model_too_large_for_a_gpu(void **state)
{
	struct spec_config c = config();
	int64_t arena;

	(void)state;
	c.grad_dtype = SPEC_FP32;
	c.zero_stage = 0;
	run_cuda(&c, 0);
	arena = number("memory", "parameters_bytes");
	run_cuda(&c, 4 * arena - 2);
	assert_error("model",
		" with any batch; zero_optimization.stage 1 or a smaller model takes less");
	assert_non_null(strstr(message_of(0), " MB planned (by each rank), "));
	c.zero_stage = 1;
	run_cuda(&c, 3 * arena - 2);
	assert_error("model", " with any batch; a smaller model takes less");
}

static void test_cuda_engine(void **state)
{
	static const enum spec_precision wide[] = {SPEC_FP32, SPEC_TF32};
	static const enum spec_precision narrow[] = {SPEC_BF16, SPEC_FP16};
	struct spec_config c = config();

	(void)state;
	c.grad_dtype = SPEC_FP32;
	for (int i = 0; i < 2; i++) {
		c.precision = wide[i];
		run_cuda(&c, 0);
		assert_int_equal(json_array_size(errors), 0);
		assert_int_equal(number("memory", "master_bytes"), 0);
		/* each rank has a device of its own */
		assert_int_equal(
			number("memory", "planned_bytes"), number("memory", "total_bytes"));
	}
	for (int i = 0; i < 2; i++) {
		c.precision = narrow[i];
		c.grad_dtype = c.precision;
		run_cuda(&c, 0);
		assert_int_equal(json_array_size(errors), 0);
		assert_int_equal(
			number("memory", "master_bytes"), number("memory", "moment_m_bytes"));
		c.grad_dtype = SPEC_FP32;
		run_cuda(&c, 0);
		assert_error("grad_dtype", "not in fp32");
	}
}

static void test_backend_not_known(void **state)
{
	struct spec_config c = config();
	struct check_options o = {.config = &c, .backend = "abacus", .world = 2};

	(void)state;
	assert_int_equal(check_run(&o, &errors, &check), 0);
	assert_error("", "abacus");
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FILE(test_all_well),
		WITH_FILE(test_more_steps_than_times_are_kept),
		WITH_FILE(test_memory_adds_up),
		WITH_FILE(test_memory_of_accumulation),
		WITH_FILE(test_sizes_beyond_32_bits),
		WITH_FILE(test_tight_memory_is_a_warning),
		WITH_FILE(test_a_model_that_does_not_fit),
		WITH_FILE(test_a_model_too_large_for_a_gpu),
		WITH_FILE(test_too_few_made_up_tokens),
		WITH_FILE(test_what_would_fit_is_named),
		WITH_FILE(test_what_the_engine_cannot_do),
		WITH_FILE(test_plan_refused),
		WITH_FILE(test_data_refused),
		WITH_FILE(test_turns),
		WITH_FILE(test_validation),
		WITH_FILE(test_epochs),
		WITH_FILE(test_cuda_engine),
		WITH_FILE(test_backend_not_known),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
