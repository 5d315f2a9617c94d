/* Command lines: what is read, and what is refused with which words. */
#include "proto/options.h"
#include "tests/unit/test.h"

enum { ARGS_MAX = 16 };

static const struct option_row rows[] = {
	{"verbose", 'v', OPTION_FLAG, NULL, 0, 0, ""},
	{"ranks", 'r', OPTION_INT, "N", 1, 8, ""},
	{"ratio", 0, OPTION_REAL, "X", 0, 1, ""},
	{"form", 0, OPTION_CHOICE, "raw|headed", 0, 0, ""},
	{"set", 's', OPTION_STRING, "KEY=VALUE", 0, 0, "", .many = true},
	{0},
};

static int read_words(struct options *o, const char *line, bool until_word, char error[256])
{
	static char text[256];
	char program[] = "program", *argv[ARGS_MAX] = {program};
	int argc = 1;

	*o = (struct options){.tables = {NULL, rows}, .help = "program --help"};
	error[0] = '\0';
	snprintf(text, sizeof(text), "%s", line);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	return options_read(o, argc, argv, 1, until_word, error, 256);
}

static void test_forms(void **state)
{
	struct options o;
	char error[256];

	assert_int_equal(
		read_words(&o, "-vr4 one --ratio=0.5 -s a=1 --set b=2 -- -v", false, error), 10);
	assert_true(options_has(&o, "verbose"));
	assert_int_equal(options_int(&o, "ranks", 0), 4);
	assert_true(options_real(&o, "ratio", 0) == 0.5);
	assert_string_equal(options_string(&o, "set", ""), "b=2");
	assert_string_equal(options_string(&o, "form", "raw"), "raw");
	assert_int_equal(o.n_values, 5);
	assert_int_equal(o.n_words, 2);
	assert_string_equal(o.words[0], "one");
	assert_string_equal(o.words[1], "-v");
	options_finish(&o);
}

static void test_until_word(void **state)
{
	struct options o;
	char error[256];

	assert_int_equal(read_words(&o, "-v -5 -v", true, error), 2);
	assert_int_equal(o.n_words, 0);
	options_finish(&o);
}

static void test_refused(void **state)
{
	static const char *const cases[][2] = {
		{"--rank 3", "--rank: no such option; did you mean --ranks?"},
		{"--zzzzzz", "--zzzzzz: no such option; see: program --help"},
		{"-vx", "-vx: no such option; see: program --help"},
		{"--ranks", "--ranks: N is needed"},
		{"--ranks=", "--ranks: \"\": a whole number is needed"},
		{"--ranks 9", "--ranks: 9 is not allowed, from 1 to 8"},
		{"--ranks 99999999999999999999",
			"--ranks: 99999999999999999999 is not allowed, from 1 to 8"},
		{"--ranks 1 -r 2", "--ranks: given twice: 1 and 2"},
		{"--ratio nan", "--ratio: nan: a number is needed"},
		{"--form x", "--form: x: raw or headed is needed"},
		{"--verbose=1", "--verbose=1: takes no value"},
	};
	struct options o;
	char error[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(read_words(&o, cases[i][0], false, error), -EINVAL);
		assert_string_equal(error, cases[i][1]);
		options_finish(&o);
	}
}

TEST_MAIN(cmocka_unit_test(test_forms), cmocka_unit_test(test_until_word),
	cmocka_unit_test(test_refused))
