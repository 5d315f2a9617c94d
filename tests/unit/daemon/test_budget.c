/* Whose request is worked on, and what is held for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>

#include "daemon/control/budget.h"

enum { CLIENTS = BUDGET_AT_WORK + 2, LIMIT = 4 << 20, SHARE = LIMIT / BUDGET_USER_PART };

struct fixture;

struct client {
	struct budget_account account;
	struct fixture *f;
	int begun;
};

struct fixture {
	struct event_base *base;
	struct budget *budget;
	struct client client[CLIENTS];
	int order[CLIENTS], n;
	bool answers; /* at once */
};

static void on_begin(struct budget_account *account)
{
	struct client *c = (struct client *)(void *)account;
	struct fixture *f = c->f;

	c->begun++;
	f->order[f->n++] = (int)(c - f->client);
	if (f->answers)
		budget_end(f->budget, account);
}

static void on_drop(struct budget_account *account)
{
	fail();
}

static void fixture_setup(struct fixture *f, const uid_t uid[CLIENTS])
{
	*f = (struct fixture){.base = event_base_new(), .answers = true};
	f->budget = budget_create(f->base, LIMIT);
	assert_non_null(f->budget);
	for (int i = 0; i < CLIENTS; i++) {
		f->client[i].f = f;
		f->client[i].account = (struct budget_account){
			.uid = uid[i], .begin = on_begin, .drop = on_drop};
	}
}

static void fixture_finish(struct fixture *f)
{
	for (int i = 0; i < CLIENTS; i++)
		budget_forget(f->budget, &f->client[i].account);
	budget_destroy(f->budget);
	event_base_free(f->base);
}

static void all_want(struct fixture *f)
{
	for (int i = 0; i < CLIENTS; i++)
		budget_want(f->budget, &f->client[i].account);
}

static void run(struct fixture *f)
{
	for (int i = 0; i < 8 * CLIENTS; i++)
		event_base_loop(f->base, EVLOOP_NONBLOCK);
}

/* However many one user asks, another waits for one answer of each user. */
static void test_users_in_turn(void **state)
{
	static const uid_t uid[CLIENTS] = {7, 7, 7, 8, 8, 9, 9, 9, 9, 9};
	static const int order[CLIENTS] = {0, 3, 5, 1, 4, 6, 2, 7, 8, 9};
	struct fixture f;

	fixture_setup(&f, uid);
	all_want(&f);
	assert_int_equal(f.n, 0); /* in a later round */
	run(&f);
	assert_int_equal(f.n, CLIENTS);
	assert_memory_equal(f.order, order, sizeof(order));
	fixture_finish(&f);
}

static void test_a_few_at_a_time(void **state)
{
	static const uid_t uid[CLIENTS] = {1, 1, 1, 1, 1, 1, 2, 3, 4, 5};
	struct fixture f;

	fixture_setup(&f, uid);
	f.answers = false;
	all_want(&f);
	run(&f);
	assert_int_equal(f.n, BUDGET_AT_WORK);
	assert_int_equal(f.client[4].begun + f.client[5].begun, 0); /* enough of this user */
	budget_end(f.budget, &f.client[6].account);
	run(&f);
	assert_int_equal(f.n, BUDGET_AT_WORK);
	budget_end(f.budget, &f.client[5].account);    /* waits no more */
	budget_forget(f.budget, &f.client[0].account); /* goes without an answer */
	run(&f);
	assert_int_equal(f.n, BUDGET_AT_WORK + 1);
	assert_int_equal(f.client[4].begun, 1);
	budget_want(f.budget, &f.client[6].account);
	budget_want(f.budget, &f.client[0].account);
	run(&f);
	assert_int_equal(f.client[6].begun, 2);
	assert_int_equal(f.client[0].begun, 1);
	fixture_finish(&f);
}

static void test_room(void **state)
{
	static const uid_t uid[CLIENTS] = {7, 7, 8, 8, 9, 9, 9, 9, 9, 9};
	struct fixture f;

	fixture_setup(&f, uid);
	budget_hold(f.budget, &f.client[0].account, SHARE + 1);
	assert_false(budget_full(f.budget));
	budget_want(f.budget, &f.client[1].account);
	budget_want(f.budget, &f.client[2].account);
	run(&f);
	assert_int_equal(f.n, 1);
	assert_int_equal(f.order[0], 2); /* another user's share is free */
	budget_hold(f.budget, &f.client[0].account, SHARE);
	run(&f);
	assert_int_equal(f.n, 2);

	budget_hold(f.budget, &f.client[4].account, LIMIT);
	assert_true(budget_full(f.budget));
	budget_want(f.budget, &f.client[3].account);
	run(&f);
	assert_int_equal(f.n, 2);
	budget_forget(f.budget, &f.client[4].account);
	assert_false(budget_full(f.budget));
	run(&f);
	assert_int_equal(f.n, 3);
	fixture_finish(&f);
	budget_destroy(NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users_in_turn),
		cmocka_unit_test(test_a_few_at_a_time),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
