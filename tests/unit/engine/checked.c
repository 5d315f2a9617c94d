#include "engine/check/check.h"
#include "tests/unit/engine/checked.h"
#include "tests/unit/test.h"

json_t *checked_errors, *checked;

static char path[64];

void checked_write_tokens(int64_t n, uint16_t id)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	for (int64_t i = 0; i < n; i++) {
		uint16_t token = i == n - 1 ? id : (uint16_t)(i * 31 % 257);

		assert_int_equal(fwrite(&token, 2, 1, f), 1);
	}
	assert_int_equal(fclose(f), 0);
}

int checked_setup(void **state)
{
	int fd;

	snprintf(path, sizeof(path), "%s", "/tmp/checked.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	checked_write_tokens(1025, 7); /* 64 sequences of 16 */
	return 0;
}

int checked_teardown(void **state)
{
	unlink(path);
	json_decref(checked_errors);
	json_decref(checked);
	checked_errors = checked = NULL;
	return 0;
}

struct spec_config checked_config(void)
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

void checked_run(const struct spec_config *c, int world, int64_t memory)
{
	struct check_options o = {.config = c,
		.world = world,
		.device = {.backend = "cpu",
			.total_bytes = memory,
			.free_bytes = memory / 2,
			.comm_bytes = 1000,
			.context_bytes = 3000,
			.tuning_bytes = 500,
			.scratch = {[K_SCRATCH_PRODUCTS] = 1 << 10,
				[K_SCRATCH_OPERATION] = 1 << 11,
				[K_SCRATCH_PARTIAL] = 1 << 12,
				[K_SCRATCH_BESIDE_PRODUCTS] = 1 << 13,
				[K_SCRATCH_BESIDE_OPERATION] = 1 << 14}}};

	json_decref(checked_errors);
	json_decref(checked);
	check_run(&o, &checked_errors, &checked);
	assert_non_null(json_object_get(checked, "warnings"));
}

void checked_run_cuda(const struct spec_config *c, int64_t memory)
{
	struct check_options options = {
		.config = c,
		.device = {.backend = "cuda", .total_bytes = memory},
		.world = 2,
	};

	json_decref(checked_errors);
	json_decref(checked);
	check_run(&options, &checked_errors, &checked);
}

const char *checked_key(size_t i)
{
	return json_string_value(json_object_get(json_array_get(checked_errors, i), "key"));
}

const char *checked_message(size_t i)
{
	return json_string_value(json_object_get(json_array_get(checked_errors, i), "message"));
}

void checked_assert_error(const char *key, const char *message)
{
	assert_int_equal(json_array_size(checked_errors), 1);
	assert_string_equal(checked_key(0), key);
	if (strstr(checked_message(0), message) == NULL)
		fail_msg("\"%s\" expected in \"%s\"", message, checked_message(0));
}

int64_t checked_number(const char *object, const char *key)
{
	json_t *value = json_object_get(json_object_get(checked, object), key);

	if (!json_is_integer(value))
		fail_msg("%s.%s is no integer", object, key);
	return json_integer_value(value);
}
