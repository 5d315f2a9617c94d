/* Who waits for a turn, and what the loop sees to between two rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>

#include "daemon/config/clock.h"
#include "daemon/control/turns.h"

enum { PLAYERS = 3, TAKES = 40 };

struct table;

struct player {
	struct turn turn;
	struct table *table;
	int taken;
};

struct table {
	struct event_base *base;
	struct turns *turns;
	struct event *other;
	struct player player[PLAYERS];
	int order[PLAYERS * TAKES], n;
	int others, n_at_first; /* how often something else had its turn; after how many takes */
	int64_t spin_ns;
};

static void on_turn(struct turn *turn)
{
	struct player *p = (struct player *)(void *)turn;
	struct table *t = p->table;
	const int64_t until_ns = clock_mono_ns() + t->spin_ns;

	while (clock_mono_ns() < until_ns)
		;
	t->order[t->n++] = (int)(p - t->player);
	if (++p->taken < TAKES)
		turns_want(t->turns, turn);
}

static void on_other(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval at_once = {0};
	struct table *t = arg;

	if (t->others++ == 0)
		t->n_at_first = t->n;
	if (t->n < PLAYERS * TAKES)
		evtimer_add(t->other, &at_once);
}

static void open_table(struct table *t)
{
	*t = (struct table){.base = event_base_new()};
	assert_non_null(t->base);
	t->turns = turns_create(t->base);
	t->other = evtimer_new(t->base, on_other, t);
	assert_non_null(t->turns);
	assert_non_null(t->other);
	for (int i = 0; i < PLAYERS; i++) {
		t->player[i].turn.taken = on_turn;
		t->player[i].table = t;
	}
}

static void close_table(struct table *t)
{
	turns_destroy(t->turns);
	event_free(t->other);
	event_base_free(t->base);
}

static void test_in_order(void **state)
{
	struct table t;

	open_table(&t);
	for (int i = 0; i < PLAYERS; i++) {
		turns_want(t.turns, &t.player[i].turn);
		turns_want(t.turns, &t.player[0].turn); /* which waits already */
	}
	event_base_dispatch(t.base);
	assert_int_equal(t.n, PLAYERS * TAKES);
	for (int i = 0; i < t.n; i++)
		assert_int_equal(t.order[i], i % PLAYERS);
	close_table(&t);
}

/* A millisecond each: a round of 5 ms is over after five of them, and the loop looks elsewhere. */
static void test_nothing_else_starves(void **state)
{
	static const struct timeval at_once = {0};
	struct table t;

	open_table(&t);
	t.spin_ns = 1000000;
	for (int i = 0; i < PLAYERS; i++)
		turns_want(t.turns, &t.player[i].turn);
	evtimer_add(t.other, &at_once);
	event_base_dispatch(t.base);
	assert_int_equal(t.n, PLAYERS * TAKES);
	assert_true(t.n_at_first <= 5);
	assert_true(t.others >= t.n / 5);
	close_table(&t);
}

static void test_forgotten(void **state)
{
	struct table t;

	open_table(&t);
	for (int i = 0; i < PLAYERS; i++)
		turns_want(t.turns, &t.player[i].turn);
	turns_forget(t.turns, &t.player[1].turn);
	turns_forget(t.turns, &t.player[1].turn);
	event_base_dispatch(t.base);
	assert_int_equal(t.player[1].taken, 0);
	assert_int_equal(t.player[0].taken + t.player[2].taken, 2 * TAKES);
	turns_destroy(NULL);
	close_table(&t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_nothing_else_starves),
		cmocka_unit_test(test_forgotten),
	};

	return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
