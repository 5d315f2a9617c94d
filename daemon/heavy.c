#include "daemon/heavy.h"

#include <event2/event.h>
#include <malloc.h>
#include <stdlib.h>

#include "daemon/clock.h"

enum {
	USERS = 256,          /* more of them share a turn */
	TRIM_BYTES = 1 << 20, /* of output, written or read, for which memory is given back */
};

struct heavy {
	int64_t limit;
	TAILQ_HEAD(, heavy_place) waiting, working, holding;
	int at_work; /* in working */
	int64_t bytes;         /* unread, of all */
	size_t moved;          /* written or read since memory was given back */
	uint64_t turns;        /* taken so far */
	uint64_t last[USERS];  /* the turn that a user took last */
	struct event *next;    /* the next turn, in a later round */
	struct event *room;    /* nobody who waits has room */
	struct event *trim;
};

static const struct timeval at_once = {0}, one_second = {.tv_sec = 1};

static void set(struct event *timer, const struct timeval *after)
{
	if (!evtimer_pending(timer, NULL))
		evtimer_add(timer, after);
}

static bool user_full(const struct heavy *h, uid_t uid)
{
	const struct heavy_place *p;
	int64_t bytes = 0;
	int working = 0;

	TAILQ_FOREACH(p, &h->holding, hold)
		if (p->uid == uid)
			bytes += (int64_t)p->bytes;
	TAILQ_FOREACH(p, &h->working, link)
		working += p->uid == uid;
	return working == HEAVY_USER_WORK || bytes > h->limit / HEAVY_USER_PART;
}

bool heavy_full(const struct heavy *h)
{
	return h->bytes > h->limit;
}

static uint64_t *last_turn(struct heavy *h, const struct heavy_place *place)
{
	return &h->last[place->uid % USERS];
}

/* Whose user has waited longest, of those with room or of all. */
static struct heavy_place *first(struct heavy *h, bool with_room)
{
	struct heavy_place *p, *found = NULL;

	if (with_room && heavy_full(h))
		return NULL;
	TAILQ_FOREACH(p, &h->waiting, link)
		if ((found == NULL || *last_turn(h, p) < *last_turn(h, found)) &&
			(!with_room || !user_full(h, p->uid)))
			found = p;
	return found;
}

/* Somebody may have a turn now. */
static void look_again(struct heavy *h)
{
	if (h->at_work < HEAVY_AT_WORK && !TAILQ_EMPTY(&h->waiting))
		set(h->next, &at_once);
}

static void on_next(evutil_socket_t fd, short what, void *arg)
{
	struct heavy *h = arg;
	struct heavy_place *place;

	if (h->at_work == HEAVY_AT_WORK || TAILQ_EMPTY(&h->waiting))
		return;
	place = first(h, true);
	if (place == NULL) {
		set(h->room, &one_second);
		return;
	}
	TAILQ_REMOVE(&h->waiting, place, link);
	TAILQ_INSERT_TAIL(&h->working, place, link);
	place->waiting = false;
	place->working = true;
	h->at_work++;
	*last_turn(h, place) = ++h->turns;
	look_again(h);
	place->begin(place);
}

/* The one with most unread, of those that have not taken any of it for some time. */
static struct heavy_place *stuck(struct heavy *h, const struct heavy_place *waiting)
{
	const int64_t before_ns = clock_mono_ns() - HEAVY_UNREAD_S * CLOCK_S_NS;
	const bool any = heavy_full(h);
	struct heavy_place *p, *found = NULL;

	TAILQ_FOREACH(p, &h->holding, hold)
		if ((any || p->uid == waiting->uid) && p->taken_ns <= before_ns &&
			p->bytes > (found ? found->bytes : HEAVY_KEPT))
			found = p;
	return found;
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
	struct heavy *h = arg;
	struct heavy_place *waiting = first(h, false), *p;

	if (waiting == NULL)
		return;
	p = first(h, true) == NULL ? stuck(h, waiting) : NULL;
	if (p != NULL)
		p->drop(p);
	set(h->next, &at_once);
}

static void on_trim(evutil_socket_t fd, short what, void *arg)
{
	struct heavy *h = arg;

	h->moved = 0;
	malloc_trim(0);
}

/* What was large may have been freed. */
static void want_trim(struct heavy *h)
{
	if (h->moved >= TRIM_BYTES)
		set(h->trim, &one_second);
}

struct heavy *heavy_create(struct event_base *base, int64_t limit_bytes)
{
	struct heavy *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	h->limit = limit_bytes;
	TAILQ_INIT(&h->waiting);
	TAILQ_INIT(&h->working);
	TAILQ_INIT(&h->holding);
	h->next = evtimer_new(base, on_next, h);
	h->room = evtimer_new(base, on_room, h);
	h->trim = evtimer_new(base, on_trim, h);
	if (h->next != NULL && h->room != NULL && h->trim != NULL)
		return h;
	heavy_destroy(h);
	return NULL;
}

void heavy_destroy(struct heavy *h)
{
	if (h == NULL)
		return;
	if (h->next != NULL)
		event_free(h->next);
	if (h->room != NULL)
		event_free(h->room);
	if (h->trim != NULL)
		event_free(h->trim);
	free(h);
}

void heavy_hold(struct heavy *h, struct heavy_place *place, size_t bytes)
{
	const bool less = bytes < place->bytes;

	if (bytes == place->bytes)
		return;
	if (place->bytes == 0)
		TAILQ_INSERT_TAIL(&h->holding, place, hold);
	if (bytes == 0)
		TAILQ_REMOVE(&h->holding, place, hold);
	if (place->bytes == 0 || less)
		place->taken_ns = clock_mono_ns();
	h->bytes += (int64_t)bytes - (int64_t)place->bytes;
	h->moved += less ? place->bytes - bytes : bytes - place->bytes;
	place->bytes = bytes;
	if (less) {
		look_again(h);
		want_trim(h);
	}
}

void heavy_want(struct heavy *h, struct heavy_place *place)
{
	place->waiting = true;
	TAILQ_INSERT_TAIL(&h->waiting, place, link);
	look_again(h);
}

void heavy_end(struct heavy *h, struct heavy_place *place)
{
	if (place->waiting) {
		place->waiting = false;
		TAILQ_REMOVE(&h->waiting, place, link);
	}
	if (!place->working)
		return;
	place->working = false;
	TAILQ_REMOVE(&h->working, place, link);
	h->at_work--;
	want_trim(h);
	look_again(h);
}

void heavy_forget(struct heavy *h, struct heavy_place *place)
{
	heavy_end(h, place);
	heavy_hold(h, place, 0);
}
