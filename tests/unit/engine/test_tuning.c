/* Files of choices: what is written is read again; what anybody changed in it is refused. */
#include <dirent.h>

#include "engine/train/tuning.h"
#include "tests/unit/test.h"

static const char gpu[] = "NVIDIA H200, sm_90, cuBLASLt 130100";
static const char file[] = "nvidia-h200-sm_90-cublaslt-130100.tuning";

enum { CHOICES = 3 };

static void fill(struct k_choice out[CHOICES])
{
	memset(out, 0, CHOICES * sizeof(*out));
	for (int i = 0; i < CHOICES; i++) {
		out[i].product = (struct k_product){.m = 2304 - i,
			.n = INT64_MAX,
			.k = 768,
			.transpose_a = 1,
			.add = i,
			.epilogue = i,
			.dtype = 2,
			.align = {256, 128, 16, 256, UINT32_MAX}};
		for (int w = 0; w < K_ALGORITHM_WORDS; w++)
			out[i].algorithm[w] = UINT64_MAX - (uint64_t)w * (uint64_t)i;
		out[i].picoseconds = i == 2 ? -1 : 123456 + i;
		out[i].timed = 1;
	}
}

static char *make_text(struct k_choice choices[CHOICES])
{
	char *text;

	fill(choices);
	text = tuning_text(gpu, choices, CHOICES);
	assert_non_null(text);
	return text;
}

static int parse(const char *text, size_t n, const char *holds_for, char error[256])
{
	struct k_choice *out = NULL;
	int64_t found = -1;
	int rc = tuning_parse(text, n, holds_for, &out, &found, error, 256);

	free(out);
	return rc;
}

static void read_as_written(void **state)
{
	struct k_choice choices[CHOICES], *out = NULL;
	char *text = make_text(choices), error[256];
	int64_t n = 0;

	assert_int_equal(tuning_parse(text, strlen(text), gpu, &out, &n, error, sizeof(error)), 0);
	assert_int_equal(n, CHOICES);
	assert_memory_equal(out, choices, sizeof(choices));
	assert_int_equal(out[0].product.m, 2304 - CHOICES + 1); /* in ascending order */
	free(out);
	free(text);
}

/* One set of choices has one text, in any order of choices. */
static void order_does_not_matter(void **state)
{
	struct k_choice choices[CHOICES], turned[CHOICES];
	char *text = make_text(choices), *again;

	for (int i = 0; i < CHOICES; i++)
		turned[i] = choices[(i + 2) % CHOICES];
	again = tuning_text(gpu, turned, CHOICES);
	assert_non_null(again);
	assert_string_equal(text, again);
	free(again);
	free(text);
}

static void none_is_a_set_too(void **state)
{
	struct k_choice *out = NULL;
	char *text = tuning_text(gpu, NULL, 0), error[256];
	int64_t n = -1;

	assert_non_null(text);
	assert_int_equal(tuning_parse(text, strlen(text), gpu, &out, &n, error, sizeof(error)), 0);
	assert_int_equal(n, 0);
	free(out);
	free(text);
}

static void another_gpu_is_told(void **state)
{
	struct k_choice choices[CHOICES];
	char *text = make_text(choices), error[256];

	assert_int_equal(
		parse(text, strlen(text), "NVIDIA H100, sm_90, cuBLASLt 130100", error), -EINVAL);
	assert_non_null(strstr(error, "not for NVIDIA H100"));
	assert_int_equal(parse(text, strlen(text), "NVIDIA H200", error), -EINVAL);
	assert_int_equal(parse("gpt2d tuning 2\n", 15, gpu, error), -EINVAL);
	assert_non_null(strstr(error, "version"));
	free(text);
}

/* Each byte changed, left out, or put twice; and every beginning of the file. */
static void any_change_is_refused(void **state)
{
	struct k_choice choices[CHOICES];
	char *text = make_text(choices), error[256];
	size_t n = strlen(text);
	char *bad = malloc(n + 2);

	assert_non_null(bad);
	for (size_t at = 0; at < n; at++) {
		for (int bit = 0; bit < 8; bit++) {
			memcpy(bad, text, n);
			bad[at] = (char)(bad[at] ^ 1 << bit);
			assert_int_equal(parse(bad, n, gpu, error), -EINVAL);
		}
		memcpy(bad, text, at);
		memcpy(bad + at, text + at + 1, n - at - 1);
		assert_int_equal(parse(bad, n - 1, gpu, error), -EINVAL);
		memcpy(bad, text, at + 1);
		memcpy(bad + at + 1, text + at, n - at);
		assert_int_equal(parse(bad, n + 1, gpu, error), -EINVAL);
		assert_int_equal(parse(text, at, gpu, error), -EINVAL);
	}
	assert_non_null(strstr(error, "damaged"));
	free(bad);
	free(text);
}

/* A count or a number beyond what there can be is no reason to take memory, or to overflow. */
static void numbers_too_large(void **state)
{
	static const char *const heads[] = {"4097\n", "9223372036854775807\n",
		"99999999999999999999999\n", "-1\n", "\n",
		"1\n99999999999999999999999 1 1 0 0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n"};
	char text[512], error[256];

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		int n = snprintf(
			text, sizeof(text), "gpt2d tuning 1\nfor %s\nchoices %s", gpu, heads[i]);

		assert_int_equal(parse(text, (size_t)n, gpu, error), -EINVAL);
	}
}

static void names_are_plain(void **state)
{
	char name[TUNING_NAME_BYTES], longest[1024];

	tuning_name(gpu, name);
	assert_string_equal(name, file);
	tuning_name("../../etc/x, \xc3\xa9", name);
	assert_string_equal(name, "etc-x-.tuning");
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	tuning_name(longest, name);
	assert_int_equal(strlen(name), TUNING_NAME_BYTES - 1);
}

/* ---- the file ---- */

static void kept_on_disk(void **state)
{
	struct k_choice choices[CHOICES], *out = NULL;
	char *text = make_text(choices), error[512], dir[256];
	int64_t n = 0;

	snprintf(dir, sizeof(dir), "%s/tuning", (char *)*state);
	assert_int_equal(tuning_read(dir, gpu, &out, &n, error, sizeof(error)), -ENOENT);
	assert_int_equal(tuning_write(dir, gpu, text, error, sizeof(error)), 0);
	assert_int_equal(tuning_write(dir, gpu, text, error, sizeof(error)), 0);
	assert_int_equal(tuning_read(dir, gpu, &out, &n, error, sizeof(error)), 0);
	assert_int_equal(n, CHOICES);
	assert_memory_equal(out, choices, sizeof(choices));
	free(out);
	/* what is broken is named, and written over */
	assert_int_equal(tuning_write(dir, gpu, "nonsense\n", error, sizeof(error)), 0);
	assert_int_equal(tuning_read(dir, gpu, &out, &n, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, file));
	assert_int_equal(tuning_write(dir, gpu, text, error, sizeof(error)), 0);
	assert_int_equal(tuning_read(dir, gpu, &out, &n, error, sizeof(error)), 0);
	free(out);
	free(text);
}

static void what_is_no_file(void **state)
{
	struct k_choice *out = NULL;
	char error[512], dir[256], path[512];
	int64_t n = 0;

	snprintf(dir, sizeof(dir), "%s/tuning", (char *)*state);
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(tuning_read(dir, gpu, &out, &n, error, sizeof(error)), -EINVAL);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/dev/zero", path), 0);
	assert_true(tuning_read(dir, gpu, &out, &n, error, sizeof(error)) < 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(tuning_read(dir, gpu, &out, &n, error, sizeof(error)), -EINVAL);
	assert_true(tuning_write(dir, gpu, "x", error, sizeof(error)) < 0);
	assert_non_null(strstr(error, file));
	assert_true(tuning_write("/nowhere/at/all", gpu, "x", error, sizeof(error)) < 0);
}

TEST_MAIN(cmocka_unit_test(read_as_written), cmocka_unit_test(order_does_not_matter),
	cmocka_unit_test(none_is_a_set_too), cmocka_unit_test(another_gpu_is_told),
	cmocka_unit_test(any_change_is_refused), cmocka_unit_test(numbers_too_large),
	cmocka_unit_test(names_are_plain), TEST_IN_FOLDER(kept_on_disk),
	TEST_IN_FOLDER(what_is_no_file))
