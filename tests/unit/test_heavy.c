/* Whose request is worked on, and what is held for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>

#include "daemon/heavy.h"

enum { GUESTS = HEAVY_AT_WORK + 2, LIMIT = 4 << 20, SHARE = LIMIT / HEAVY_USER_PART };

struct inn;

struct guest {
	struct heavy_place place;
	struct inn *inn;
	int begun;
};

struct inn {
	struct event_base *base;
	struct heavy *heavy;
	struct guest guest[GUESTS];
	int order[GUESTS], n;
	bool answers; /* at once */
};

static void on_begin(struct heavy_place *place)
{
	struct guest *g = (struct guest *)(void *)place;
	struct inn *inn = g->inn;

	g->begun++;
	inn->order[inn->n++] = (int)(g - inn->guest);
	if (inn->answers)
		heavy_end(inn->heavy, place);
}

static void on_drop(struct heavy_place *place)
{
	fail();
}

static void open_inn(struct inn *inn, const uid_t uid[GUESTS])
{
	*inn = (struct inn){.base = event_base_new(), .answers = true};
	inn->heavy = heavy_create(inn->base, LIMIT);
	assert_non_null(inn->heavy);
	for (int i = 0; i < GUESTS; i++) {
		inn->guest[i].inn = inn;
		inn->guest[i].place = (struct heavy_place){
			.uid = uid[i], .begin = on_begin, .drop = on_drop};
	}
}

static void close_inn(struct inn *inn)
{
	for (int i = 0; i < GUESTS; i++)
		heavy_forget(inn->heavy, &inn->guest[i].place);
	heavy_destroy(inn->heavy);
	event_base_free(inn->base);
}

static void all_want(struct inn *inn)
{
	for (int i = 0; i < GUESTS; i++)
		heavy_want(inn->heavy, &inn->guest[i].place);
}

static void run(struct inn *inn)
{
	for (int i = 0; i < 8 * GUESTS; i++)
		event_base_loop(inn->base, EVLOOP_NONBLOCK);
}

/* However many one user asks, another waits for one answer of each user. */
static void test_users_in_turn(void **state)
{
	static const uid_t uid[GUESTS] = {7, 7, 7, 8, 8, 9, 9, 9, 9, 9};
	static const int order[GUESTS] = {0, 3, 5, 1, 4, 6, 2, 7, 8, 9};
	struct inn inn;

	open_inn(&inn, uid);
	all_want(&inn);
	assert_int_equal(inn.n, 0); /* in a later round */
	run(&inn);
	assert_int_equal(inn.n, GUESTS);
	assert_memory_equal(inn.order, order, sizeof(order));
	close_inn(&inn);
}

static void test_a_few_at_a_time(void **state)
{
	static const uid_t uid[GUESTS] = {1, 1, 1, 1, 1, 1, 2, 3, 4, 5};
	struct inn inn;

	open_inn(&inn, uid);
	inn.answers = false;
	all_want(&inn);
	run(&inn);
	assert_int_equal(inn.n, HEAVY_AT_WORK);
	assert_int_equal(inn.guest[4].begun + inn.guest[5].begun, 0); /* enough of this user */
	heavy_end(inn.heavy, &inn.guest[6].place);
	run(&inn);
	assert_int_equal(inn.n, HEAVY_AT_WORK);
	heavy_end(inn.heavy, &inn.guest[5].place);    /* waits no more */
	heavy_forget(inn.heavy, &inn.guest[0].place); /* goes without an answer */
	run(&inn);
	assert_int_equal(inn.n, HEAVY_AT_WORK + 1);
	assert_int_equal(inn.guest[4].begun, 1);
	heavy_want(inn.heavy, &inn.guest[6].place);
	heavy_want(inn.heavy, &inn.guest[0].place);
	run(&inn);
	assert_int_equal(inn.guest[6].begun, 2);
	assert_int_equal(inn.guest[0].begun, 1);
	close_inn(&inn);
}

static void test_room(void **state)
{
	static const uid_t uid[GUESTS] = {7, 7, 8, 8, 9, 9, 9, 9, 9, 9};
	struct inn inn;

	open_inn(&inn, uid);
	heavy_hold(inn.heavy, &inn.guest[0].place, SHARE + 1);
	assert_false(heavy_full(inn.heavy));
	heavy_want(inn.heavy, &inn.guest[1].place);
	heavy_want(inn.heavy, &inn.guest[2].place);
	run(&inn);
	assert_int_equal(inn.n, 1);
	assert_int_equal(inn.order[0], 2); /* another user's share is free */
	heavy_hold(inn.heavy, &inn.guest[0].place, SHARE);
	run(&inn);
	assert_int_equal(inn.n, 2);

	heavy_hold(inn.heavy, &inn.guest[4].place, LIMIT);
	assert_true(heavy_full(inn.heavy));
	heavy_want(inn.heavy, &inn.guest[3].place);
	run(&inn);
	assert_int_equal(inn.n, 2);
	heavy_forget(inn.heavy, &inn.guest[4].place);
	assert_false(heavy_full(inn.heavy));
	run(&inn);
	assert_int_equal(inn.n, 3);
	close_inn(&inn);
	heavy_destroy(NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users_in_turn),
		cmocka_unit_test(test_a_few_at_a_time),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests_name("heavy", tests, NULL, NULL);
}
