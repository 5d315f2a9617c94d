#include "engine/check/check.h"
#include "engine/train/plan.h"
#include "proto/spec/spec_table.h"
#include "tests/unit/engine/checked.h"
#include "tests/unit/test.h"

static json_t *data(const char *which, const char *key)
{
	return json_object_get(json_object_get(json_object_get(checked, "data"), which), key);
}

static void refused(const struct spec_config *c, const char *key, const char *message)
{
	checked_run(c, 2, 0);
	checked_assert_error(key, message);
}

/* Without an error; warning: the only one, NULL for none. */
static void accepted(const struct spec_config *c, const char *warning)
{
	const json_t *warnings;

	checked_run(c, 2, 0);
	warnings = json_object_get(checked, "warnings");
	assert_int_equal(json_array_size(checked_errors), 0);
	assert_int_equal(json_array_size(warnings), warning != NULL);
	if (warning)
		assert_non_null(strstr(json_string_value(json_array_get(warnings, 0)), warning));
}

static void test_all_well(void **state)
{
	struct spec_config c = checked_config();

	checked_run(&c, 2, INT64_C(1) << 33);
	assert_int_equal(json_array_size(checked_errors), 0);
	assert_int_equal(json_array_size(json_object_get(checked, "warnings")), 0);
	assert_int_equal(checked_number("plan", "asked_reduce_elems"), 100000);
	assert_int_equal(checked_number("plan", "reduce_elems"), 100096);
	assert_int_equal(checked_number("plan", "n_reduce"), 5);
	assert_int_equal(checked_number("plan", "reduce_bucket_bytes"), 400384);
	assert_int_equal(checked_number("work", "optimizer_steps"), 20);
	assert_int_equal(checked_number("work", "micro_steps"), 40);
	assert_int_equal(checked_number("work", "tokens"), 2560);
	assert_int_equal(checked_number("batch", "train_batch_size"), 8);
	assert_int_equal(json_integer_value(data("train", "tokens")), 1025);
	assert_int_equal(json_integer_value(data("train", "needed")), 65);
	assert_int_equal(json_integer_value(data("train", "sequences")), 64);
	assert_true(json_real_value(data("train", "epochs")) == 2.5);
	assert_null(data("val", "path"));
}

/* L8 */
static void test_nothing_is_gathered(void **state)
{
	struct spec_config c = checked_config();

	c.zero_stage = 1;
	checked_run(&c, 2, INT64_C(1) << 33);
	assert_true(checked_number("plan", "n_gather") > 0);
	c.zero_stage = 0;
	checked_run(&c, 2, INT64_C(1) << 33);
	assert_int_equal(checked_number("plan", "n_gather"), 0);
	assert_int_equal(checked_number("plan", "gather_elems"), 0);
	assert_int_equal(checked_number("plan", "gather_bucket_bytes"), 0);
}

static void test_more_steps_than_times_are_kept(void **state)
{
	const char *help = strstr(spec_table[SPEC_KEY_OPTIMIZER_STEPS].help, "at most ");
	struct spec_config c = checked_config();

	c.optimizer_steps = INT64_C(1000000000);
	checked_run(&c, 2, INT64_C(1) << 33);
	checked_assert_error("work.optimizer_steps",
		"1000000000 optimizer steps are not allowed, at most 11184810: their times are "
		"kept of each rank (gpus 2)");
	c.work_tokens = c.optimizer_steps * c.batch * c.seq_len;
	checked_run(&c, 2, INT64_C(1) << 33);
	checked_assert_error("work.tokens", "1000000000 optimizer steps are not allowed");
	c.work_tokens = 0;
	c.work_micro_steps = c.optimizer_steps * c.accumulation;
	checked_run(&c, 2, INT64_C(1) << 33);
	checked_assert_error("work.micro_steps", "1000000000 optimizer steps are not allowed");
	c.work_micro_steps = 0;
	c.optimizer_steps = 11184810;
	checked_run(&c, 2, INT64_C(1) << 33);
	assert_int_equal(json_array_size(checked_errors), 0);
	assert_non_null(help);
	assert_int_equal(strtoll(help + strlen("at most "), NULL, 10) / (2 + 2), 11184810);
}

/* Made-up data has no file: the key is its own, once for training and validation. */
static void test_too_few_made_up_tokens(void **state)
{
	struct spec_config c = checked_config();

	c.data_kind = SPEC_DATA_SYNTHETIC;
	c.data_synthetic_tokens = 64;
	c.data_train[0] = '\0';
	c.validation_steps = 1;
	refused(&c, "data.synthetic_tokens", "64 tokens, 65 needed (2 ranks x 2 x 16 + 1)");
}

static void test_what_the_engine_cannot_do(void **state)
{
	struct spec_config c = checked_config();

	c.precision = SPEC_FP16;
	refused(&c, "fp16.enabled",
		"the cpu engine computes in fp32, not in fp16; set fp16.enabled to false");
	c.precision = SPEC_BF16;
	refused(&c, "bf16.enabled", "not in bf16");
	c.precision = SPEC_TF32;
	refused(&c, "tf32", "not in tf32");
	c = checked_config();
	c.grad_dtype = SPEC_BF16;
	refused(&c, "grad_dtype", "not in bf16");
	c = checked_config();
	checked_run(&c, 1, 0);
	checked_assert_error("gpus", "2 ranks requested, 1 available");
}

static void test_plan_refused(void **state)
{
	const char *most = strstr(spec_table[SPEC_KEY_REDUCE_BUCKET].help, "more than ");
	struct spec_config c = checked_config();

	assert_int_equal(strtol(most + strlen("more than "), NULL, 10), PLAN_BUCKETS_MAX);
	c.allgather_bucket_elems = 1000;
	refused(&c, "zero_optimization.allgather_bucket_size", "1000 elements are fewer than");
	assert_null(json_object_get(checked, "plan"));
	assert_null(json_object_get(checked, "memory"));
	assert_non_null(data("train", "tokens"));
	c = checked_config();
	c.model.n_embd = 1024;
	c.reduce_bucket_elems = 1;
	refused(&c, "zero_optimization.reduce_bucket_size", "at most 4096 allowed: at least");
	/* where no memory holds the model, larger buckets are no advice */
	checked_run(&c, 2, 2 * 2 * 4 * checked_number("model", "param_elems"));
	checked_assert_error("zero_optimization.reduce_bucket_size", "at least");
	checked_run(&c, 2, 2 * 2 * 4 * checked_number("model", "param_elems") - 1);
	assert_int_equal(json_array_size(checked_errors), 1);
	checked_assert_error("model",
		"parameters and their gradients alone take 207 MB a rank, 414 MB available to all "
		"ranks together: a smaller model is needed");
	c.model.n_layer = c.model.n_head = 4096;
	c.model.n_embd = 1048576;
	c.reduce_bucket_elems = c.allgather_bucket_elems = 500000000;
	checked_run(&c, 2, INT64_C(1) << 33);
	assert_int_equal(json_array_size(checked_errors), 1);
	checked_assert_error("model", "a smaller model is needed");
}

static void test_data_refused(void **state)
{
	struct spec_config c = checked_config();

	checked_write_tokens(64, 7);
	refused(&c, "data.train", "64 tokens, 65 needed (2 ranks x 2 x 16 + 1)");
	checked_write_tokens(1025, 257);
	refused(&c, "data.train",
		"token 1024 is 257, ids below 257 expected: "
		"its tokenizer does not fit model.vocab_size");
	checked_write_tokens(1025, 256);
	accepted(&c, NULL);
	snprintf(c.data_val, sizeof(c.data_val), "%s", "/nonexistent-dir/val.bin");
	snprintf(c.data_train, sizeof(c.data_train), "%s", "/nonexistent-dir/train.bin");
	checked_run(&c, 2, 0); /* both in one go */
	assert_int_equal(json_array_size(checked_errors), 2);
	assert_string_equal(checked_key(0), "data.train");
	assert_string_equal(checked_key(1), "data.val");
}

static void test_validation(void **state)
{
	struct spec_config c = checked_config();

	snprintf(c.data_val, sizeof(c.data_val), "%s", c.data_train);
	c.validation_steps = 8; /* of 8 sequences, the file has 64 */
	accepted(&c, NULL);
	assert_true(json_real_value(data("val", "passes")) == 1.0);
	c.validation_steps = 9;
	accepted(&c, "");
}

static void test_a_warmup_that_falls_is_warned_of(void **state)
{
	struct spec_config c = checked_config();

	for (int i = 0; i < 2; i++) {
		c.schedule = i ? SPEC_WARMUP_DECAY_LR : SPEC_WARMUP_LR;
		c.warmup_min_lr = 0.002;
		c.warmup_max_lr = c.lr = 0.001;
		accepted(&c,
			"scheduler.params.warmup_min_lr: 0.002 is above warmup_max_lr "
			"0.001: the rate falls during the warm-up");
		c.warmup_max_lr = c.lr = c.warmup_min_lr;
		accepted(&c, NULL);
	}
	/* numbers that the schedule does not use */
	c.warmup_max_lr = 0;
	c.schedule = SPEC_CONSTANT;
	accepted(&c, NULL);
}

static void test_a_rate_without_effect_is_warned_of(void **state)
{
	static const char *const reported[] = {
		"optimizer.params.lr: 0.1 has no effect, the rate is that of scheduler.type "
		"\"WarmupLR\", whose warmup_max_lr is 0.001",
		"optimizer.params.lr: 0.1 has no effect, the rate is that of scheduler.type "
		"\"WarmupDecayLR\", whose warmup_max_lr is 0.001"};
	struct spec_config c = checked_config();

	for (int i = 0; i < 2; i++) {
		c.schedule = i ? SPEC_WARMUP_DECAY_LR : SPEC_WARMUP_LR;
		c.warmup_max_lr = 0.001;
		c.lr = 0.1;
		accepted(&c, reported[i]);
		c.lr = c.warmup_max_lr; /* files for DeepSpeed have both */
		accepted(&c, NULL);
		c.warmup_max_lr = 0.02;
		c.lr = 0.001; /* the default: what is run again has it written out */
		accepted(&c, NULL);
	}
	c.lr = 0.1;
	c.schedule = SPEC_CONSTANT;
	accepted(&c, NULL);
}

static void test_a_schedule_that_ends_early_is_warned_of(void **state)
{
	struct spec_config c = checked_config();

	c.schedule = SPEC_LINEAR;
	c.total_num_steps = c.optimizer_steps;
	accepted(&c, NULL);
	c.total_num_steps--;
	accepted(&c,
		"scheduler.params.total_num_steps: the schedule ends after 19 of 20 optimizer "
		"steps: the rate stays at its final value");
}

static void test_stages_that_no_engine_can_run(void **state)
{
	struct spec_config c = checked_config();

	c.zero_stage = 2;
	refused(&c, "zero_optimization.stage", "no engine can run stage 2 yet (expected 0 or 1)");
	c.zero_stage = 3;
	refused(&c, "zero_optimization.stage", "no engine can run stage 3 yet (expected 0 or 1)");
}

static void test_epochs(void **state)
{
	struct spec_config c = checked_config();
	int64_t left_over;

	c.optimizer_steps = 0;
	c.work_epochs = 2;
	accepted(&c, NULL);
	assert_int_equal(checked_number("work", "optimizer_steps"), 16);
	assert_int_equal(checked_number("work", "left_over_sequences"), 0);
	c.batch = 12;
	c.accumulation = 3;
	checked_run(&c, 2, 0);
	assert_int_equal(checked_number("work", "optimizer_steps"), 10);
	assert_int_equal(checked_number("work", "left_over_sequences"), 8);
	assert_int_equal(json_array_size(json_object_get(checked, "warnings")), 1);
	c.batch = 132;
	c.accumulation = 33;
	refused(&c, "work.epochs", "2 epochs of 64 sequences do not fill one batch of 132");
	c.work_epochs = INT64_MAX / 64 + 1;
	refused(&c, "work.epochs",
		"144115188075855872 epochs of 64 sequences, at most 144115188075855871 epochs can "
		"be counted");
	c = checked_config();
	c.work_epochs = 1;
	c.optimizer_steps = 0;
	c.warmup_steps = 8;
	refused(&c, "work.warmup_steps", "8 of 8 steps");
	assert_int_equal(check_optimizer_steps(&c, 64, &left_over), 8);
	assert_int_equal(left_over, 0);
}

static void test_cuda_engine(void **state)
{
	static const enum spec_precision wide[] = {SPEC_FP32, SPEC_TF32};
	static const enum spec_precision narrow[] = {SPEC_BF16, SPEC_FP16};
	struct spec_config c = checked_config();

	c.grad_dtype = SPEC_FP32;
	for (int i = 0; i < 2; i++) {
		c.precision = wide[i];
		checked_run_cuda(&c, 0);
		assert_int_equal(json_array_size(checked_errors), 0);
		assert_int_equal(checked_number("memory", "master_bytes"), 0);
		/* each rank has a device of its own */
		assert_int_equal(checked_number("memory", "planned_bytes"),
			checked_number("memory", "total_bytes"));
	}
	for (int i = 0; i < 2; i++) {
		c.precision = narrow[i];
		c.grad_dtype = c.precision;
		checked_run_cuda(&c, 0);
		assert_int_equal(json_array_size(checked_errors), 0);
		assert_int_equal(checked_number("memory", "master_bytes"),
			checked_number("memory", "moment_m_bytes"));
		c.grad_dtype = SPEC_FP32;
		checked_run_cuda(&c, 0);
		checked_assert_error("grad_dtype", "not in fp32");
	}
}

static void test_backend_not_known(void **state)
{
	struct spec_config c = checked_config();
	struct check_options o = {.config = &c, .device = {.backend = "abacus"}, .world = 2};

	check_run(&o, &checked_errors, &checked);
	checked_assert_error("", "abacus");
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, checked_setup, checked_teardown)

TEST_MAIN(WITH_FILE(test_all_well), WITH_FILE(test_more_steps_than_times_are_kept),
	WITH_FILE(test_too_few_made_up_tokens), WITH_FILE(test_what_the_engine_cannot_do),
	WITH_FILE(test_plan_refused), WITH_FILE(test_data_refused),
	WITH_FILE(test_nothing_is_gathered), WITH_FILE(test_validation),
	WITH_FILE(test_a_warmup_that_falls_is_warned_of),
	WITH_FILE(test_a_rate_without_effect_is_warned_of),
	WITH_FILE(test_a_schedule_that_ends_early_is_warned_of),
	WITH_FILE(test_stages_that_no_engine_can_run), WITH_FILE(test_epochs),
	WITH_FILE(test_cuda_engine), WITH_FILE(test_backend_not_known))
