#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "proto/starved.h"

/* Which limits there are decides which are named. */
static void test_limits_that_are_named(void **state)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
	if (memcmp(&limit, &none, sizeof(limit)) != 0)
		skip();
	assert_null(strstr(starved_text(-EAGAIN), "ulimit -v"));
	assert_non_null(strstr(starved_text(-EAGAIN), "ulimit -u"));
	limit.rlim_cur = (rlim_t)1 << 62;
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	assert_non_null(strstr(starved_text(-EAGAIN), "ulimit -v or -u, LimitAS= or TasksMax="));
	assert_string_equal(starved_text(-ENOMEM), strerror(ENOMEM));
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits_that_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
