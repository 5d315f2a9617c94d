#include <endian.h>
#include <fcntl.h>
#include <math.h>

#include "engine/data/dataset.h"
#include "engine/data/shuffle.h"
#include "tests/unit/test.h"

static char error[2 * SPEC_PATH_MAX];
static char path[64];

static int setup(void **state)
{
	int fd;

	snprintf(path, sizeof(path), "%s", "/tmp/test_dataset.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	return 0;
}

static struct spec_config config(int64_t world, int64_t micro_batch, int64_t seq_len)
{
	struct spec_config c = {.data_kind = SPEC_DATA_FILE,
		.gpus = world,
		.micro_batch = micro_batch,
		.seq_len = seq_len,
		.seed = 7,
		.model = {.vocab_size = 50257}};

	snprintf(c.data_train, sizeof(c.data_train), "%s", path);
	snprintf(c.data_val, sizeof(c.data_val), "%s", path);
	return c;
}

static void write_file(const void *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static uint16_t token_at(int64_t i)
{
	return (uint16_t)(((uint64_t)i * 7919 + 1) % 50257);
}

static uint16_t *make_tokens(int64_t n)
{
	uint16_t *tokens = malloc((size_t)n * 2 + 2);

	assert_non_null(tokens);
	for (int64_t i = 0; i < n; i++)
		tokens[i] = token_at(i);
	return tokens;
}

static void write_raw(int64_t n, size_t extra_bytes)
{
	uint16_t *tokens = make_tokens(n + 1);

	write_file(tokens, (size_t)n * 2 + extra_bytes);
	free(tokens);
}

/* bytes in all; the header says count */
static void write_headed(int32_t magic, int32_t version, int32_t count, size_t bytes)
{
	int32_t *header = calloc(1, bytes + 1024);
	uint16_t *tokens = make_tokens(40000);

	assert_non_null(header);
	header[0] = magic;
	header[1] = version;
	header[2] = count;
	if (bytes > 1024)
		memcpy(header + 256, tokens, bytes - 1024);
	write_file(header, bytes);
	free(header);
	free(tokens);
}

static int open_error(const struct spec_config *c)
{
	struct dataset d;
	int rc = dataset_open(&d, c, false, error, sizeof(error));

	if (rc == 0)
		dataset_close(&d);
	return rc;
}

static void assert_refused(const struct spec_config *c, const char *message)
{
	error[0] = '\0';
	assert_int_equal(open_error(c), -EINVAL);
	assert_non_null(strstr(error, path));
	if (strstr(error, message) == NULL)
		fail_msg("\"%s\" expected in \"%s\"", message, error);
}

/* B1 */
static void test_formats_refused(void **state)
{
	struct spec_config c = config(1, 1, 8);
	char text[2000] = "";

	write_headed(20240326, 3, 100, 1224);
	assert_refused(&c, "magic 20240520 expected, 20240326 found");
	write_headed(12345, 1, 100, 1224);
	assert_refused(&c, "magic 20240520 expected, 12345 found");
	write_headed(12345, 1, 0, 1224);
	assert_refused(&c, "magic 20240520 expected, 12345 found");
	write_headed(20240520, 7, 100, 1224);
	assert_refused(&c, "version 1 of the token format expected, 7 found");
	write_headed(20240520, 1, 100, 1023);
	assert_refused(&c, "header of 1024 bytes expected, 1023 found");
	write_headed(20240520, 1, 100, 4);
	assert_refused(&c, "header of 1024 bytes expected, 4 found");
	while (strlen(text) < 1900)
		strcat(text, "First Citizen: before we proceed, hear me speak.\n");
	write_file(text, strlen(text) & ~(size_t)1);
	assert_refused(&c, "text found; gpt2ctl data prepare makes tokens of it");
	/* an odd number of bytes first, so that a character is cut where the look ends */
	strcpy(text, "\xef\xbb\xbf");
	while (strlen(text) < 1900)
		strcat(text,
			"\xe7\xac\xac\xe4\xb8\x80\xe5\xb8\x82\xe6\xb0\x91: Na\xc3\xafve "
			"\xf0\x9f\x99\x82\r\n\t");
	write_file(text, strlen(text));
	assert_refused(&c, "text found; gpt2ctl data prepare makes tokens of it");
	write_file(text + 3, 64);
	assert_refused(&c, "text found; gpt2ctl data prepare makes tokens of it");
	write_file("\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False}", 48);
	assert_refused(&c, "a numpy file found");
	write_file("", 0);
	assert_refused(&c, "0 tokens, 9 needed (1 rank x 1 x 8 + 1)");
}

/* One token for each byte of a text: every other byte is 0. */
static void test_bytes_of_text_are_tokens(void **state)
{
	struct spec_config c = config(1, 1, 8);
	uint16_t tokens[600];

	for (size_t i = 0; i < 600; i++)
		tokens[i] = htole16((uint16_t) "First Citizen: hear me.\n"[i % 24]);
	write_file(tokens, sizeof(tokens));
	assert_int_equal(open_error(&c), 0);
}

static void test_wide_tokens_refused(void **state)
{
	struct spec_config c = config(1, 1, 8);
	uint32_t wide[512];

	for (uint32_t i = 0; i < 512; i++)
		wide[i] = i * 97;
	write_file(wide, sizeof(wide));
	assert_refused(&c, "32-bit numbers found");
}

static void test_paths_refused(void **state)
{
	struct spec_config c = config(1, 1, 8);

	snprintf(c.data_train, sizeof(c.data_train), "%s/absent.bin", "/tmp/nonexistent-dir");
	assert_int_equal(open_error(&c), -ENOENT);
	assert_non_null(strstr(error, "absent.bin: No such file"));
	snprintf(c.data_train, sizeof(c.data_train), "%s", "/tmp");
	assert_int_equal(open_error(&c), -EINVAL);
	assert_non_null(strstr(error, "regular file"));
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	snprintf(c.data_train, sizeof(c.data_train), "%s", path);
	assert_int_equal(open_error(&c), -EINVAL);
}

/* B2 */
static void test_length_against_header(void **state)
{
	struct spec_config c = config(1, 1, 8);
	struct dataset d;

	write_headed(20240520, 1, 32768, 66560);
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(d.format, DATASET_HEADED);
	assert_int_equal(d.n_tokens, 32768);
	assert_int_equal(d.n_sequences, 32767 / 8);
	dataset_close(&d);
	write_headed(20240520, 1, 32768, 66559);
	assert_refused(&c, "66559 bytes, 66560 expected (1024 header + 2 x 32768 tokens)");
	write_headed(20240520, 1, 32768, 66558);
	assert_refused(&c, "66558 bytes, 66560 expected (1024 header + 2 x 32768 tokens)");
	write_headed(20240520, 1, 32768, 66562);
	assert_refused(&c, "66562 bytes, 66560 expected");
	write_headed(20240520, 1, (int32_t)-2147483647 - 1, 66560);
	assert_refused(&c, "header says -2147483648 tokens, 0 to 2147483647 expected");
	write_raw(100, 1);
	assert_refused(&c, "201 bytes, an even number expected");
}

/* B3 */
static void test_one_token_short(void **state)
{
	struct spec_config c = config(8, 4, 1024);
	struct dataset d;
	int validation;

	assert_int_equal(dataset_tokens_needed(&c), 32769);
	write_raw(32768, 0);
	for (validation = 0; validation <= 1; validation++) {
		assert_int_equal(dataset_open(&d, &c, validation, error, sizeof(error)), -EINVAL);
		assert_non_null(
			strstr(error, "32768 tokens, 32769 needed (8 ranks x 4 x 1024 + 1)"));
	}
	write_raw(32769, 0);
	for (validation = 0; validation <= 1; validation++) {
		assert_int_equal(dataset_open(&d, &c, validation, error, sizeof(error)), 0);
		assert_int_equal(d.n_sequences, 32); /* one batch */
		dataset_close(&d);
	}
	write_headed(20240520, 1, 32768, 66560);
	assert_refused(&c, "32768 tokens, 32769 needed");
	write_headed(20240520, 1, 32769, 66562);
	assert_int_equal(open_error(&c), 0);
}

/* B5 */
static void test_vocabulary(void **state)
{
	struct spec_config c = config(1, 1, 8);
	struct dataset_cache cache = {0};
	int64_t n = (1 << 19) + 100; /* more than one piece of the scan */
	uint16_t *tokens = make_tokens(n);
	struct dataset d;
	char expected[64];

	tokens[n - 2] = 50256;
	write_file(tokens, (size_t)n * 2);
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(dataset_scan(&d, NULL, error, sizeof(error)), 0);
	assert_int_equal(dataset_scan(&d, &cache, error, sizeof(error)), 0);
	assert_int_equal(cache.n, 1);
	assert_int_equal(dataset_scan(&d, &cache, error, sizeof(error)), 0);
	assert_int_equal(cache.n, 1); /* not scanned again */
	dataset_close(&d);

	c.model.vocab_size = 50256; /* what the cache knows does not cover a smaller vocabulary */
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(dataset_scan(&d, &cache, error, sizeof(error)), -ERANGE);
	dataset_close(&d);
	c.model.vocab_size = 50257;

	tokens[n - 2] = 50257;
	write_file(tokens, (size_t)n * 2);
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(dataset_scan(&d, &cache, error, sizeof(error)), -ERANGE);
	snprintf(expected, sizeof(expected), "token %lld is 50257, ids below 50257 expected",
		(long long)n - 2);
	assert_non_null(strstr(error, expected));
	assert_non_null(strstr(error, path));
	dataset_close(&d);
	free(tokens);
}

static void test_read_checks_the_vocabulary(void **state)
{
	struct spec_config c = config(1, 1, 4);
	uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 50257, 8, 9};
	int32_t inputs[8], targets[8];
	struct dataset d;

	write_file(tokens, sizeof(tokens));
	assert_int_equal(dataset_open(&d, &c, true, error, sizeof(error)), 0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), 0);
	assert_int_equal(dataset_read(&d, 0, 2, inputs, targets, error, sizeof(error)), -ERANGE);
	assert_non_null(strstr(error, "token 6 is 50257"));
	dataset_close(&d);
}

/* every row of an epoch holds the tokens of its sequence, in both formats */
static void test_rows(void **state)
{
	struct spec_config c = config(2, 2, 16);
	int32_t inputs[3 * 16], targets[3 * 16];
	struct dataset d;
	int headed;

	for (headed = 0; headed <= 1; headed++) {
		if (headed)
			write_headed(20240520, 1, 1000, 3024);
		else
			write_raw(1000, 0);
		assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
		assert_int_equal(d.n_sequences, 62);
		for (int64_t s = 0; s < 2 * 62; s++) {
			assert_int_equal(
				dataset_read(&d, s, 3, inputs, targets, error, sizeof(error)), 0);
			for (int64_t r = 0; r < 3; r++) {
				int64_t first = dataset_sequence(&d, s + r) * 16;

				for (int64_t i = 0; i < 16; i++) {
					assert_int_equal(inputs[r * 16 + i], token_at(first + i));
					assert_int_equal(
						targets[r * 16 + i], token_at(first + i + 1));
				}
			}
		}
		dataset_close(&d);
	}
}

static void test_file_changed_under_a_run(void **state)
{
	struct spec_config c = config(1, 1, 16);
	int32_t inputs[16], targets[16];
	struct dataset_cache cache = {0};
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
	struct dataset d;

	write_raw(1000, 0);
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), 0);
	assert_int_equal(truncate(path, 1000), 0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), -EIO);
	assert_non_null(strstr(error, "2000 bytes then, 1000 now"));
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), -EIO);
	assert_int_equal(dataset_scan(&d, &cache, error, sizeof(error)), -EIO);
	assert_int_equal(cache.n, 0);
	dataset_close(&d);

	write_raw(1000, 0);
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), -EIO);
	assert_non_null(strstr(error, "written to since it was opened"));
	dataset_close(&d);

	/* replaced by rename: the run keeps the file it opened */
	write_raw(1000, 0);
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	unlink(path);
	write_raw(10, 0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), 0);
	dataset_close(&d);
}

/* ---- order ---- */

/* B7: one epoch over the ranks visits each sequence once, for any world and micro-batch */
static void test_epoch_over_ranks(void **state)
{
	static const struct {
		int64_t world, micro_batch, accumulation;
	} splits[] = {{1, 8, 1}, {1, 1, 8}, {2, 4, 1}, {2, 2, 2}, {4, 2, 1}, {4, 1, 2}, {8, 1, 1}};
	enum { SEQUENCES = 64, BATCH = 8 };
	int64_t order[SEQUENCES];

	write_raw(SEQUENCES * 16 + 1, 0);
	for (size_t k = 0; k < sizeof(splits) / sizeof(splits[0]); k++) {
		struct spec_config c = config(splits[k].world, splits[k].micro_batch, 16);
		int seen[SEQUENCES] = {0};
		struct dataset d;

		assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
		assert_int_equal(d.n_sequences, SEQUENCES);
		for (int64_t s = 0; s < SEQUENCES; s++) {
			int64_t q = dataset_sequence(&d, s);

			seen[q]++;
			if (k == 0)
				order[s] = q;
			assert_int_equal(order[s], q);
		}
		for (int64_t s = 0; s < SEQUENCES; s++)
			assert_int_equal(seen[s], 1);
		dataset_close(&d);
	}
}

static void test_validation_keeps_the_order(void **state)
{
	struct spec_config c = config(1, 1, 16);
	struct dataset d;

	write_raw(1000, 0);
	assert_int_equal(dataset_open(&d, &c, true, error, sizeof(error)), 0);
	for (int64_t s = 0; s < 200; s++)
		assert_int_equal(dataset_sequence(&d, s), s % 62);
	dataset_close(&d);
}

/* ---- synthetic ---- */

static void test_synthetic(void **state)
{
	struct spec_config c = config(1, 4, 64);
	int32_t inputs[4 * 64], targets[4 * 64], again[4 * 64], dummy[4 * 64];
	static int follows[50257];
	int64_t i, s, predicted = 0, total = 0;
	struct dataset d, e;

	c.data_kind = SPEC_DATA_SYNTHETIC;
	c.data_synthetic_tokens = 256;
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "synthetic: 256 tokens, 257 needed (1 rank x 4 x 64 + 1)"));
	c.data_synthetic_tokens = 64 * 100 + 1;
	assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
	assert_int_equal(d.n_sequences, 100);
	assert_int_equal(dataset_scan(&d, NULL, error, sizeof(error)), 0);
	for (s = 0; s < 100; s += 4) {
		assert_int_equal(dataset_read(&d, s, 4, inputs, targets, error, sizeof(error)), 0);
		assert_int_equal(dataset_read(&d, s, 4, again, dummy, error, sizeof(error)), 0);
		assert_memory_equal(inputs, again, sizeof(inputs));
		for (i = 0; i < 4 * 64; i++) {
			assert_in_range(inputs[i], 0, 50256);
			if (i % 64 != 63)
				assert_int_equal(targets[i], inputs[i + 1]);
			predicted += follows[inputs[i]] == targets[i] + 1;
			total++;
			follows[inputs[i]] = targets[i] + 1;
		}
	}
	assert_true(predicted * 2 > total); /* the token before predicts most of the next */
	assert_true(predicted < total);

	assert_int_equal(dataset_open(&e, &c, true, error, sizeof(error)), 0);
	assert_int_equal(
		dataset_read(&e, dataset_sequence(&d, 0), 1, again, dummy, error, sizeof(error)),
		0);
	assert_int_equal(dataset_read(&d, 0, 1, inputs, targets, error, sizeof(error)), 0);
	assert_memory_not_equal(inputs, again, 64 * sizeof(inputs[0]));
	dataset_close(&e);
	dataset_close(&d);
}

static void test_synthetic_small_vocabularies(void **state)
{
	static const int64_t vocabs[] = {1, 2, 100, 256, 257, 65535, 65536, 200000};
	int32_t inputs[64], targets[64];

	for (size_t v = 0; v < sizeof(vocabs) / sizeof(vocabs[0]); v++) {
		struct spec_config c = config(1, 1, 64);
		struct dataset d;

		c.data_kind = SPEC_DATA_SYNTHETIC;
		c.data_synthetic_tokens = 1000;
		c.model.vocab_size = vocabs[v];
		assert_int_equal(dataset_open(&d, &c, false, error, sizeof(error)), 0);
		for (int64_t s = 0; s < 30; s++) {
			assert_int_equal(
				dataset_read(&d, s, 1, inputs, targets, error, sizeof(error)), 0);
			for (int64_t i = 0; i < 64; i++)
				assert_true(inputs[i] >= 0 && inputs[i] < vocabs[v] &&
					targets[i] < vocabs[v]);
		}
		dataset_close(&d);
	}
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* ---- permutations ---- */

static void test_permutation(void **state)
{
	static bool seen[2000];
	uint64_t epoch;

	for (int64_t n = 1; n <= 2000; n++) {
		for (epoch = 0; epoch < 2; epoch++) {
			memset(seen, 0, sizeof(seen));
			for (int64_t i = 0; i < n; i++) {
				int64_t to = shuffle_index(42, epoch, i, n);

				assert_true(to >= 0 && to < n);
				assert_false(seen[to]);
				seen[to] = true;
			}
		}
	}
}

static void test_permutations_differ(void **state)
{
	int64_t n = 1000;
	int64_t same_epoch = 0, same_seed = 0, fixed = 0, i;

	for (i = 0; i < n; i++) {
		same_epoch += shuffle_index(42, 0, i, n) == shuffle_index(42, 1, i, n);
		same_seed += shuffle_index(42, 0, i, n) == shuffle_index(43, 0, i, n);
		fixed += shuffle_index(42, 0, i, n) == i;
	}
	/* two random permutations agree in one place on average */
	assert_true(same_epoch < 10);
	assert_true(same_seed < 10);
	assert_true(fixed < 10);
}

static void test_permutation_of_a_large_domain(void **state)
{
	int64_t n = INT64_C(1) << 62;

	for (int64_t i = 0; i < 1000; i++) {
		int64_t to = shuffle_index(1, 1, n - 1 - i, n);

		assert_true(to >= 0 && to < n);
	}
}

TEST_MAIN(WITH_FILE(test_formats_refused), WITH_FILE(test_bytes_of_text_are_tokens),
	WITH_FILE(test_wide_tokens_refused), WITH_FILE(test_paths_refused),
	WITH_FILE(test_length_against_header), WITH_FILE(test_one_token_short),
	WITH_FILE(test_vocabulary), WITH_FILE(test_read_checks_the_vocabulary),
	WITH_FILE(test_rows), WITH_FILE(test_file_changed_under_a_run),
	WITH_FILE(test_epoch_over_ranks), WITH_FILE(test_validation_keeps_the_order),
	cmocka_unit_test(test_synthetic), cmocka_unit_test(test_synthetic_small_vocabularies),
	cmocka_unit_test(test_permutation), cmocka_unit_test(test_permutations_differ),
	cmocka_unit_test(test_permutation_of_a_large_domain))
