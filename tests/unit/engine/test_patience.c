/* Waits end although the device never comes to rest; streams and collectives are the test's. */
#include <time.h>

#include "engine/comm/patience.h"
#include "tests/unit/test.h"

/* What a wait says: -ETIMEDOUT so many times, then rc. */
struct k_stream {
	int late, rc, asked;
};
struct k_event {
	struct k_stream s;
};
struct collectives {
	int failed_after; /* looks; -1: never */
	int looks;
};

static int answer(struct k_stream *s, int64_t timeout_ns)
{
	assert_true(timeout_ns >= 0);
	nanosleep(&(struct timespec){.tv_nsec = timeout_ns < 1000000 ? timeout_ns : 1000000}, NULL);
	return s->asked++ < s->late ? -ETIMEDOUT : s->rc;
}

int k_stream_sync(struct k_stream *s, int64_t timeout_ns)
{
	return answer(s, timeout_ns);
}

int k_event_sync(struct k_event *e, int64_t timeout_ns)
{
	return answer(&e->s, timeout_ns);
}

const char *collectives_error(const struct collectives *c)
{
	struct collectives *looked = (struct collectives *)(uintptr_t)c;

	return c->failed_after >= 0 && looked->looks++ >= c->failed_after ? "rank 1 is lost" : NULL;
}

static void as_the_stream_says(void **state)
{
	struct collectives c = {.failed_after = -1};
	struct patience alone = {.timeout_ns = INT64_MAX, .patience_ns = PATIENCE_NS};
	struct patience p = {
		.collectives = &c, .timeout_ns = INT64_MAX, .patience_ns = PATIENCE_NS};

	assert_int_equal(patience_stream(&alone, &(struct k_stream){.late = 3}), 0);
	assert_int_equal(patience_stream(&p, &(struct k_stream){.late = 3, .rc = -EIO}), -EIO);
	assert_int_equal(patience_event(&p, &(struct k_event){{.late = 3}}), 0);
}

static void a_failure_leaves_time(void **state)
{
	struct collectives c = {.failed_after = 2};
	struct patience p = {
		.collectives = &c, .timeout_ns = INT64_MAX, .patience_ns = INT64_C(3600000000000)};

	/* an abort lets the stream come to its end */
	assert_int_equal(patience_stream(&p, &(struct k_stream){.late = 50}), 0);
	assert_true(c.looks > 40);
}

static void but_not_for_ever(void **state)
{
	struct collectives c = {.failed_after = 2};
	struct patience p = {.collectives = &c, .timeout_ns = INT64_MAX, .patience_ns = 20000000};
	struct k_stream stuck = {.late = INT32_MAX};
	struct k_event never = {{.late = INT32_MAX}};

	assert_int_equal(patience_stream(&p, &stuck), -EPIPE);
	c.looks = 0;
	assert_int_equal(patience_event(&p, &never), -EPIPE);
}

static void within_its_time(void **state)
{
	struct patience p = {.timeout_ns = 5000000, .patience_ns = PATIENCE_NS};
	struct k_stream stuck = {.late = INT32_MAX};

	assert_int_equal(patience_stream(&p, &stuck), -ETIMEDOUT);
	p.timeout_ns = 0;
	assert_int_equal(patience_stream(&p, &stuck), -ETIMEDOUT);
}

TEST_MAIN(cmocka_unit_test(as_the_stream_says), cmocka_unit_test(a_failure_leaves_time),
	cmocka_unit_test(but_not_for_ever), cmocka_unit_test(within_its_time))
