/* test.h: cmocka, and the standard headers that cmocka and most tests need. */
#ifndef GPT2D_TESTS_UNIT_TEST_H
#define GPT2D_TESTS_UNIT_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* TEST_MAIN(cmocka_unit_test(a), cmocka_unit_test(b)): the program runs these tests. */
#define TEST_MAIN(...)                                                                             \
	int main(void)                                                                             \
	{                                                                                          \
		const struct CMUnitTest tests[] = {__VA_ARGS__};                                   \
		return cmocka_run_group_tests(tests, NULL, NULL);                                  \
	}

/* Of a test with a folder of its own, whose path is *state. */
#define TEST_IN_FOLDER(test)                                                                       \
	cmocka_unit_test_setup_teardown(test, test_make_folder, test_remove_folder)

static inline int test_make_folder(void **state)
{
	char *path = strdup("/tmp/gpt2d-test-XXXXXX");

	*state = path;
	return path && mkdtemp(path) ? 0 : -1;
}

static inline int test_remove_folder(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", (char *)*state);
	free(*state);
	return system(command);
}

/* Writes root/path, with the folders above it. */
static inline void test_put(const char *root, const char *path, const char *text)
{
	char name[512];
	FILE *f;

	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *c = name + strlen(root) + 1; (c = strchr(c, '/')); *c++ = '/') {
		*c = '\0';
		mkdir(name, 0700);
	}
	f = fopen(name, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

#endif
