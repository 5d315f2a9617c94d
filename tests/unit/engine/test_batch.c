#include "engine/data/batch.h"
#include "tests/unit/test.h"

enum { ROWS = 3, T = 8, MICROS = 2, TOKENS = 2 * MICROS * ROWS * T };

struct fixture {
	struct dataset train, val;
	struct batch batch;
	void *host, *device;
	int32_t expected[TOKENS];
	char error[256];
};

static void write_tokens(const char *path)
{
	uint16_t tokens[100 * T + 1];
	FILE *f = fopen(path, "wb");

	for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++)
		tokens[i] = (uint16_t)(i * 7919 % 257);
	assert_non_null(f);
	assert_int_equal(fwrite(tokens, 1, sizeof(tokens), f), sizeof(tokens));
	assert_int_equal(fclose(f), 0);
}

static void open_data(struct fixture *f)
{
	struct spec_config c = {.data_kind = SPEC_DATA_FILE,
		.gpus = 1,
		.micro_batch = ROWS,
		.seq_len = T,
		.seed = 7,
		.model = {.vocab_size = 257}};
	char path[] = "/tmp/test_batch.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	write_tokens(path);
	snprintf(c.data_train, sizeof(c.data_train), "%s", path);
	snprintf(c.data_val, sizeof(c.data_val), "%s", path);
	assert_int_equal(dataset_open(&f->train, &c, false, f->error, sizeof(f->error)), 0);
	assert_int_equal(dataset_open(&f->val, &c, true, f->error, sizeof(f->error)), 0);
	assert_int_equal(unlink(path), 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	open_data(f);
	f->host = malloc((size_t)batch_host_bytes(ROWS, T, MICROS));
	f->device = malloc((size_t)batch_bytes(ROWS, T, MICROS));
	assert_non_null(f->host);
	assert_non_null(f->device);
	batch_init(&f->batch, NULL, ROWS, T, MICROS, f->host, f->device);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	dataset_close(&f->train);
	dataset_close(&f->val);
	free(f->host);
	free(f->device);
	free(f);
	return 0;
}

static void expect(struct fixture *f, const struct dataset *data, int64_t first)
{
	int32_t *inputs = f->expected, *targets = f->expected + MICROS * ROWS * T;

	assert_int_equal(dataset_read(data, first, (int64_t)MICROS * ROWS, inputs, targets,
				 f->error, sizeof(f->error)),
		0);
	assert_int_equal(batch_read(&f->batch, data, first, MICROS, f->error, sizeof(f->error)), 0);
	assert_memory_equal(f->batch.host_tokens, f->expected, sizeof(f->expected));
}

static void test_read_ahead_is_what_is_read(void **state)
{
	struct fixture *f = *state;

	expect(f, &f->train, 0);
	batch_read_ahead(&f->batch, &f->train, 6, MICROS);
	assert_ptr_equal(f->batch.ahead.data, &f->train);
	expect(f, &f->train, 6);
	assert_null(f->batch.ahead.data);
	expect(f, &f->train, 6);
}

/* What was read ahead is for these samples of this data set alone. */
static void test_other_samples_are_read(void **state)
{
	struct fixture *f = *state;

	batch_read_ahead(&f->batch, &f->train, 6, MICROS);
	expect(f, &f->train, 12);
	expect(f, &f->val, 6);
	batch_read_ahead(&f->batch, &f->train, 6, 1);
	expect(f, &f->train, 6);
}

/* A validation between two steps leaves what was read ahead for the second. */
static void test_ahead_lasts_over_a_validation(void **state)
{
	struct fixture *f = *state;

	batch_read_ahead(&f->batch, &f->train, 6, MICROS);
	expect(f, &f->val, 0);
	assert_ptr_equal(f->batch.ahead.data, &f->train);
	expect(f, &f->train, 6);
}

/* Its failure is reported by the read that needs it, which tries again. */
static void test_failure_is_told_when_needed(void **state)
{
	struct fixture *f = *state;
	int64_t vocab = f->train.vocab;

	f->train.vocab = 1;
	batch_read_ahead(&f->batch, &f->train, 6, MICROS);
	assert_null(f->batch.ahead.data);
	assert_int_equal(
		batch_read(&f->batch, &f->train, 6, MICROS, f->error, sizeof(f->error)), -ERANGE);
	assert_true(strlen(f->error) > 0);
	for (int i = 0; i < TOKENS; i++)
		assert_int_equal(f->batch.host_tokens[i], 0);
	f->train.vocab = vocab;
	expect(f, &f->train, 6);
}

TEST_MAIN(cmocka_unit_test_setup_teardown(test_read_ahead_is_what_is_read, setup, teardown),
	cmocka_unit_test_setup_teardown(test_other_samples_are_read, setup, teardown),
	cmocka_unit_test_setup_teardown(test_ahead_lasts_over_a_validation, setup, teardown),
	cmocka_unit_test_setup_teardown(test_failure_is_told_when_needed, setup, teardown))
