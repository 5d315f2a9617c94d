#include "daemon/control/turns.h"

#include <event2/event.h>
#include <stdlib.h>

#include "daemon/config/clock.h"

#define ROUND_NS INT64_C(5000000)

struct turns {
	TAILQ_HEAD(, turn) waiting;
	struct event *timer;
};

/*
 * A timer and no event_active: Libevent goes on with what is made active before it looks at
 * descriptors and timers again.
 */
static void arm(struct turns *turns)
{
	static const struct timeval at_once = {0};

	if (!evtimer_pending(turns->timer, NULL))
		evtimer_add(turns->timer, &at_once);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct turns *turns = arg;
	const int64_t until_ns = clock_mono_ns() + ROUND_NS;
	struct turn *turn;

	while ((turn = TAILQ_FIRST(&turns->waiting)) != NULL) {
		turns_forget(turns, turn);
		turn->taken(turn);
		if (clock_mono_ns() >= until_ns)
			break;
	}
	if (!TAILQ_EMPTY(&turns->waiting))
		arm(turns);
}

struct turns *turns_create(struct event_base *base)
{
	struct turns *turns = calloc(1, sizeof(*turns));

	if (turns == NULL)
		return NULL;
	TAILQ_INIT(&turns->waiting);
	turns->timer = evtimer_new(base, on_timer, turns);
	if (turns->timer != NULL)
		return turns;
	free(turns);
	return NULL;
}

void turns_destroy(struct turns *turns)
{
	if (turns == NULL)
		return;
	event_free(turns->timer);
	free(turns);
}

void turns_want(struct turns *turns, struct turn *turn)
{
	if (turn->waiting)
		return;
	turn->waiting = true;
	TAILQ_INSERT_TAIL(&turns->waiting, turn, link);
	arm(turns);
}

void turns_forget(struct turns *turns, struct turn *turn)
{
	if (!turn->waiting)
		return;
	turn->waiting = false;
	TAILQ_REMOVE(&turns->waiting, turn, link);
}
