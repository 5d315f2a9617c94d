#include <sys/resource.h>

#include "proto/host/starved.h"
#include "tests/unit/test.h"

/* Which limits there are decides which are named. */
static void test_limits_that_are_named(void **state)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit;

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

static void test_limits_on_memory(void **state)
{
	static const struct {
		int resource;
		const char *named;
	} rows[] = {{RLIMIT_DATA, "ulimit -d, LimitDATA="}, {RLIMIT_AS, "ulimit -v, LimitAS="}};
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	const struct rlimit soft = {(rlim_t)1 << 62, RLIM_INFINITY};
	struct rlimit limit;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(getrlimit(rows[i].resource, &limit), 0);
		if (memcmp(&limit, &none, sizeof(limit)) != 0)
			skip();
	}
	assert_string_equal(starved_memory_text(), "");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(setrlimit(rows[i].resource, &soft), 0);
		assert_non_null(strstr(starved_memory_text(), rows[i].named));
		assert_int_equal(setrlimit(rows[i].resource, &none), 0);
	}
}

TEST_MAIN(cmocka_unit_test(test_limits_that_are_named), cmocka_unit_test(test_limits_on_memory))
