/* samples.c: each kind of file, and what is refused. */
#include "ctl/results/samples.h"
#include "tests/unit/test.h"

static char path[] = "/tmp/test_samples.XXXXXX";

static void write_file(const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static const struct {
	const char *text, *selector, *pattern;
	size_t drop, n;
	double values[4];
} good[] = {
	{"1.5\n2.5\n\n3\n", NULL, NULL, 0, 3, {1.5, 2.5, 3}},
	{"# runs\n1e3; 2e3, 4\n", NULL, NULL, 0, 3, {1000, 2000, 4}},
	{"1.5,2,\n", NULL, NULL, 0, 2, {1.5, 2}},
	{"name,time\na,1\n\"b, c\",2.5\r\n", "time", NULL, 0, 2, {1, 2.5}},
	{"time,note\n1,\n2.5,\"it is \"\"b\"\", 1\"\n", "time", NULL, 0, 2, {1, 2.5}},
	{"{\"summary\": {\"tokens_per_sec\": 29971.2}}", "summary.tokens_per_sec", NULL, 0, 1,
		{29971.2}},
	{"{\"t\": 1}\n{\"t\": 2}\n", "t", NULL, 0, 2, {1, 2}},
	{"[3, 4]", NULL, NULL, 0, 2, {3, 4}},
	{"{\"results\": [{\"command\": \"x\", \"times\": [0.5, 0.6]}]}", NULL, NULL, 0, 2,
		{0.5, 0.6}},
	{"{\"results\": [{\"times\": [1]}, {\"times\": [7, 8]}]}", "results.1.times", NULL, 0, 2,
		{7, 8}},
	{"step 1: 100 ms\nx\nstep 2: 10 ms\nstep 3: 20 ms\n", NULL, "step .*: ([0-9.]+) ms", 1, 1,
		{15}},
};

static const struct {
	const char *text, *selector, *pattern;
	size_t drop;
	const char *error;
} bad[] = {
	{"1\nx\n", NULL, NULL, 0, ":2: \"x\" is not a number"},
	{"1\n-2\n", NULL, NULL, 0, ":2: -2 is not a time or a rate"},
	{"9\n10,1 3\n", NULL, NULL, 0, ":2: \"10,1\" is one value or several"},
	{"0\n", NULL, NULL, 0, ":1: 0 is not a time or a rate"},
	{"nan\n", NULL, NULL, 0, "is not a number"},
	{"", NULL, NULL, 0, ": no value"},
	{"", "a", NULL, 0, ": no value"},
	{"a,b\n1,2\n", "c", NULL, 0, ":1: no column \"c\" (expected one of \"a\", \"b\")"},
	{"a,b\n1,\n", "b", NULL, 0, ":2: column \"b\": \"\" is not a number"},
	{"a,b\n1\n", "a", NULL, 0, ":2: 1 fields (expected 2, as in line 1"},
	{"a\n1\n1,5\n", "a", NULL, 0, ":3: 2 fields (expected 1, as in line 1"},
	{"{\"a\": 1}\n{\"b\": 1}\n", "a", NULL, 0, "no member \"a\""},
	{"{\"a\": \"x\"}", "a", NULL, 0, "holds no number"},
	{"{\"a\": ", "a", NULL, 0, "expected"},
	{"{\"results\": [{}, {}]}", NULL, NULL, 0, "2 commands"},
	{"{}", NULL, NULL, 0, "not hyperfine's"},
	{"step 1\n", NULL, "step ([0-9]+)", 1, "found 1 steps (expected more than --drop 1)"},
	{"x\n", NULL, "(", 0, "--pattern: "},
	{"x\n", NULL, "x", 0, "no group"},
};

static int read_one(const char *text, const char *selector, const char *pattern, size_t drop,
	struct samples *s, char *error, size_t bytes)
{
	const struct samples_options options = {.pattern = pattern, .drop = drop};
	char name[256];

	write_file(text);
	snprintf(name, sizeof(name), "%s%s%s", path, selector ? ":" : "", selector ? selector : "");
	return samples_read(s, name, &options, error, bytes);
}

static void test_good(void **state)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct samples s = {0};
		char error[512] = "";

		if (read_one(good[i].text, good[i].selector, good[i].pattern, good[i].drop, &s,
			    error, sizeof(error)) != 0)
			fail_msg("%zu: %s", i, error);
		assert_int_equal(s.n, good[i].n);
		for (size_t k = 0; k < s.n; k++)
			assert_float_equal(s.values[k], good[i].values[k], 1e-9);
		samples_finish(&s);
	}
}

static void test_bad(void **state)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct samples s = {0};
		char error[512] = "";

		assert_true(read_one(bad[i].text, bad[i].selector, bad[i].pattern, bad[i].drop, &s,
				    error, sizeof(error)) < 0);
		if (!strstr(error, bad[i].error))
			fail_msg("%zu: %s (expected %s)", i, error, bad[i].error);
		samples_finish(&s);
	}
}

static void test_no_file(void **state)
{
	const struct samples_options options = {0};
	struct samples s = {0};
	char error[512];

	assert_true(samples_read(&s, "/nonexistent/x", &options, error, sizeof(error)) < 0);
	assert_string_equal(error, "/nonexistent/x: No such file or directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_no_file),
	};
	int fd = mkstemp(path), failed;

	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
