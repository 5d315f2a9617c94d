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
#include <unistd.h>

#include <cmocka.h>

/* TEST_MAIN(cmocka_unit_test(a), cmocka_unit_test(b)): the program runs these tests. */
#define TEST_MAIN(...)                                                                             \
	int main(void)                                                                             \
	{                                                                                          \
		const struct CMUnitTest tests[] = {__VA_ARGS__};                                   \
		return cmocka_run_group_tests(tests, NULL, NULL);                                  \
	}

#endif
