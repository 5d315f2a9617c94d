/* Which wall clock is believed, and what its times are as text. */
#include "daemon/config/clock.h"
#include "tests/unit/test.h"

#define S    CLOCK_S_NS
#define HOUR (3600 * S)
#define DAY  (24 * HOUR)

static const int64_t now = 20000 * DAY, boot = 3 * DAY;

static bool believed_at(struct clock_trust *t, int64_t boot_ns, int64_t utc_ns)
{
	clock_trust_update(t, boot_ns, utc_ns);
	return clock_trust_has(t);
}

/* A machine that sleeps or steps by little, and one whose clock is set back. */
static void test_time_passes(void **state)
{
	struct clock_trust t;

	clock_trust_begin(&t, 0, boot, now);
	assert_true(believed_at(&t, boot, now));
	assert_true(believed_at(&t, boot + 60 * S, now + 60 * S));
	assert_true(believed_at(&t, boot + 90 * DAY, now + 90 * DAY));
	assert_true(believed_at(&t, boot + 90 * DAY, now + 90 * DAY + HOUR));
	assert_true(believed_at(&t, boot + 90 * DAY, now + 90 * DAY + 2 * HOUR));
	assert_true(believed_at(&t, boot + 91 * DAY, now));
	assert_true(believed_at(&t, boot + 91 * DAY + S, now + HOUR));
}

static void test_leap(void **state)
{
	struct clock_trust t;

	clock_trust_begin(&t, 0, boot, now);
	assert_true(believed_at(&t, boot, now));
	assert_false(believed_at(&t, boot + S, now + HOUR + 2 * S));
	assert_int_equal(t.expected_ns, now + S);
	assert_false(believed_at(&t, boot + DAY, now + DAY + HOUR + 2 * S));
	/* back to what has passed */
	assert_true(believed_at(&t, boot + DAY, now + DAY));
	/* and to stay: after a day */
	assert_false(believed_at(&t, boot + DAY, now + 4000 * DAY));
	assert_false(believed_at(&t, boot + 2 * DAY - S, now + 4001 * DAY));
	assert_true(believed_at(&t, boot + 2 * DAY, now + 4001 * DAY));
	assert_true(believed_at(&t, boot + 2 * DAY + S, now + 4001 * DAY));
}

static void test_start(void **state)
{
	struct clock_trust t;

	clock_trust_begin(&t, now - 30 * DAY, boot, now);
	assert_true(believed_at(&t, boot, now));
	/* from then on by what passes */
	assert_false(believed_at(&t, boot, now + 2 * HOUR));
	clock_trust_begin(&t, now - 30 * DAY - S, boot, now);
	assert_false(believed_at(&t, boot, now));
	assert_true(believed_at(&t, boot, now - DAY));
	clock_trust_begin(&t, now - 3000 * DAY, boot, now);
	assert_false(believed_at(&t, boot, now));
	assert_true(believed_at(&t, boot + DAY, now + DAY));
	clock_trust_begin(&t, now + 3000 * DAY, boot, now);
	assert_true(believed_at(&t, boot, now));
	/* nothing known */
	clock_trust_begin(&t, 0, boot, now);
	assert_true(believed_at(&t, boot, now));
}

static void test_text(void **state)
{
	char text[CLOCK_TEXT_BYTES];

	clock_text(1767902400 * S + 7654321, text);
	assert_string_equal(text, "2026-01-08T20:00:00.007Z");
	clock_text_s(1767902400 * S + 7654321, text);
	assert_string_equal(text, "2026-01-08T20:00:00Z");
	clock_text(INT64_MAX, text);
	assert_string_equal(text, "2262-04-11T23:47:16.854Z");
}

static void a_time_as_waits_take_it(void **state)
{
	struct timespec t = clock_timespec(3 * CLOCK_S_NS + 250 * CLOCK_MS_NS + 7);

	assert_int_equal(t.tv_sec, 3);
	assert_int_equal(t.tv_nsec, 250000007);
	t = clock_timespec(CLOCK_S_NS - 1);
	assert_int_equal(t.tv_sec, 0);
	assert_int_equal(t.tv_nsec, 999999999);
}

TEST_MAIN(cmocka_unit_test(test_time_passes), cmocka_unit_test(test_leap),
	cmocka_unit_test(test_start), cmocka_unit_test(test_text),
	cmocka_unit_test(a_time_as_waits_take_it))
