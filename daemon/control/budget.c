#include "daemon/control/budget.h"

#include <event2/event.h>
#include <malloc.h>
#include <stdlib.h>

#include "daemon/config/clock.h"

enum {
	USERS = 256,          /* more of them share a turn */
	TRIM_BYTES = 1 << 20, /* of output, written or read, for which memory is given back */
};

struct budget {
	int64_t limit_bytes;
	TAILQ_HEAD(, budget_account) waiting, working, holding;
	int at_work;          /* in working */
	int64_t bytes;        /* unread, of all */
	size_t moved_bytes;   /* written or read since memory was given back */
	uint64_t turns;       /* taken so far */
	uint64_t last[USERS]; /* the turn that a user took last */
	struct event *next;   /* the next turn, in a later round */
	struct event *room;   /* nobody who waits has room */
	struct event *trim;
};

static const struct timeval at_once = {0}, one_second = {.tv_sec = 1};

static void set(struct event *timer, const struct timeval *after)
{
	if (!evtimer_pending(timer, NULL))
		evtimer_add(timer, after);
}

static bool user_full(const struct budget *b, uid_t uid)
{
	const struct budget_account *a;
	int64_t bytes = 0;
	int working = 0;

	TAILQ_FOREACH(a, &b->holding, hold)
		if (a->uid == uid)
			bytes += (int64_t)a->bytes;
	TAILQ_FOREACH(a, &b->working, link)
		working += a->uid == uid;
	return working == BUDGET_USER_WORK || bytes > b->limit_bytes / BUDGET_USER_PART;
}

bool budget_full(const struct budget *b)
{
	return b->bytes > b->limit_bytes;
}

static uint64_t *last_turn(struct budget *b, const struct budget_account *account)
{
	return &b->last[account->uid % USERS];
}

/* Whose user has waited longest, of those with room or of all. */
static struct budget_account *first(struct budget *b, bool with_room)
{
	struct budget_account *a, *found = NULL;

	if (with_room && budget_full(b))
		return NULL;
	TAILQ_FOREACH(a, &b->waiting, link)
		if ((found == NULL || *last_turn(b, a) < *last_turn(b, found)) &&
			(!with_room || !user_full(b, a->uid)))
			found = a;
	return found;
}

/* Somebody may have a turn now. */
static void look_again(struct budget *b)
{
	if (b->at_work < BUDGET_AT_WORK && !TAILQ_EMPTY(&b->waiting))
		set(b->next, &at_once);
}

static void on_next(evutil_socket_t fd, short what, void *arg)
{
	struct budget *b = arg;
	struct budget_account *account;

	if (b->at_work == BUDGET_AT_WORK || TAILQ_EMPTY(&b->waiting))
		return;
	account = first(b, true);
	if (account == NULL) {
		set(b->room, &one_second);
		return;
	}
	TAILQ_REMOVE(&b->waiting, account, link);
	TAILQ_INSERT_TAIL(&b->working, account, link);
	account->waiting = false;
	account->working = true;
	b->at_work++;
	*last_turn(b, account) = ++b->turns;
	look_again(b);
	account->begin(account);
}

/* The one with most unread, of those that have not taken any of it for some time. */
static struct budget_account *stuck(struct budget *b, const struct budget_account *waiting)
{
	const int64_t before_ns = clock_mono_ns() - BUDGET_UNREAD_S * CLOCK_S_NS;
	const bool any = budget_full(b);
	struct budget_account *a, *found = NULL;

	TAILQ_FOREACH(a, &b->holding, hold)
		if ((any || a->uid == waiting->uid) && a->taken_ns <= before_ns &&
			a->bytes > (found ? found->bytes : BUDGET_KEPT_BYTES))
			found = a;
	return found;
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
	struct budget *b = arg;
	struct budget_account *waiting = first(b, false), *a;

	if (waiting == NULL)
		return;
	a = first(b, true) == NULL ? stuck(b, waiting) : NULL;
	if (a != NULL)
		a->drop(a);
	set(b->next, &at_once);
}

static void on_trim(evutil_socket_t fd, short what, void *arg)
{
	struct budget *b = arg;

	b->moved_bytes = 0;
	malloc_trim(0);
}

/* What was large may have been freed. */
static void want_trim(struct budget *b)
{
	if (b->moved_bytes >= TRIM_BYTES)
		set(b->trim, &one_second);
}

struct budget *budget_create(struct event_base *base, int64_t limit_bytes)
{
	struct budget *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->limit_bytes = limit_bytes;
	TAILQ_INIT(&b->waiting);
	TAILQ_INIT(&b->working);
	TAILQ_INIT(&b->holding);
	b->next = evtimer_new(base, on_next, b);
	b->room = evtimer_new(base, on_room, b);
	b->trim = evtimer_new(base, on_trim, b);
	if (b->next != NULL && b->room != NULL && b->trim != NULL)
		return b;
	budget_destroy(b);
	return NULL;
}

void budget_destroy(struct budget *b)
{
	if (b == NULL)
		return;
	if (b->next != NULL)
		event_free(b->next);
	if (b->room != NULL)
		event_free(b->room);
	if (b->trim != NULL)
		event_free(b->trim);
	free(b);
}

void budget_hold(struct budget *b, struct budget_account *account, size_t bytes)
{
	const bool less = bytes < account->bytes;

	if (bytes == account->bytes)
		return;
	if (account->bytes == 0)
		TAILQ_INSERT_TAIL(&b->holding, account, hold);
	if (bytes == 0)
		TAILQ_REMOVE(&b->holding, account, hold);
	if (account->bytes == 0 || less)
		account->taken_ns = clock_mono_ns();
	b->bytes += (int64_t)bytes - (int64_t)account->bytes;
	b->moved_bytes += less ? account->bytes - bytes : bytes - account->bytes;
	account->bytes = bytes;
	if (less) {
		look_again(b);
		want_trim(b);
	}
}

void budget_want(struct budget *b, struct budget_account *account)
{
	account->waiting = true;
	TAILQ_INSERT_TAIL(&b->waiting, account, link);
	look_again(b);
}

void budget_end(struct budget *b, struct budget_account *account)
{
	if (account->waiting) {
		account->waiting = false;
		TAILQ_REMOVE(&b->waiting, account, link);
	}
	if (!account->working)
		return;
	account->working = false;
	TAILQ_REMOVE(&b->working, account, link);
	b->at_work--;
	want_trim(b);
	look_again(b);
}

void budget_forget(struct budget *b, struct budget_account *account)
{
	budget_end(b, account);
	budget_hold(b, account, 0);
}
