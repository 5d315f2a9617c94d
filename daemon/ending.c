#include "daemon/ending.h"

#include <event2/event.h>

#include "daemon/engines/checker.h"
#include "daemon/config/clock.h"
#include "daemon/control/control.h"
#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/hold.h"
#include "daemon/config/log.h"
#include "daemon/config/service.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"

enum {
	FINISH_S = 10,  /* for a step's end and the files of runs whose work is done, to stop now */
	LINGER_S = 1,   /* at the end, for replies that are not read */
	LAST_TURNS = 8, /* that what was sent is read and answered in, whatever the time */
};

void ending_begin(struct daemon *d, bool now)
{
	if (!d->stopping) {
		d->stopping = true;
		service_notify("STOPPING=1\nSTATUS=stopping");
		hold_shut_down(d->holds);
		if (!scheduler_in_hand(d->scheduler))
			now = true;
		log_write(LOG_INFO, now ? "stopping" : "stopping after the running run");
	}
	if (now && d->finish_ns == 0) {
		/* the engines decide: a run that is trained at this moment is done */
		scheduler_yield(d->scheduler, scheduler_stopped);
		d->finish_ns = clock_mono_ns() + FINISH_S * CLOCK_S_NS;
	} else if (now) {
		scheduler_interrupt(d->scheduler, false);
	}
	ending_turn(d);
}

void ending_turn(struct daemon *d)
{
	if (d->stopping && d->turn)
		event_active(d->turn, 0, 0);
}

void ending_checks(struct daemon *d)
{
	struct checker *checker = d->checker;

	d->checker = NULL; /* nothing more is asked */
	checker_destroy(checker);
}

/* The run in progress has its time, and not more. */
static void drain(struct daemon *d)
{
	int64_t left_ns = d->drain_ns - clock_mono_ns();
	struct timeval left = {
		.tv_sec = left_ns / CLOCK_S_NS, .tv_usec = left_ns % CLOCK_S_NS / 1000};

	if (left_ns >= 1000) {
		event_add(d->turn, &left);
		return;
	}
	log_write(LOG_INFO, "the run in progress has not ended within stop_timeout, %lld s",
		(long long)d->settings->stop_timeout_s);
	ending_begin(d, true);
}

/*
 * One step after another: the runs, the engines, how runs that they still had have ended, the
 * followers' last events, the replies, also to what has come until nothing more is taken.
 */
static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval soon = {0, 20000};
	struct daemon *d = arg;
	bool late;

	if (d->drain_ns != 0 && d->finish_ns == 0 && scheduler_in_hand(d->scheduler))
		drain(d);
	if (d->finish_ns != 0 && clock_mono_ns() > d->finish_ns)
		scheduler_interrupt(d->scheduler, true);
	if (scheduler_in_hand(d->scheduler)) {
		if (d->finish_ns != 0)
			event_add(d->turn, &soon);
		return;
	}
	if (!d->engines_told) {
		d->engines_told = true;
		ending_checks(d);
		control_stop_listening(d->control);
		scheduler_interrupt(d->scheduler, true); /* what was made ready ahead */
		engine_pool_stop(d->pool);
	}
	if (!d->engines_gone || scheduler_busy(d->scheduler))
		return;
	if (d->linger_ns == 0)
		d->linger_ns = clock_mono_ns() + LINGER_S * CLOCK_S_NS;
	late = clock_mono_ns() >= d->linger_ns;
	if (!late && !(store_idle(d->store) && control_idle(d->control))) {
		event_add(d->turn, &soon);
	} else if (d->last_turns == 0) {
		d->last_turns = LAST_TURNS;
		/* a client that reads nothing has used up the time of those that do */
		d->linger_ns = clock_mono_ns() + LINGER_S * CLOCK_S_NS;
		control_end_requests(d->control);
		event_add(d->turn, &soon);
	} else if (!control_served(d->control) && (!late || --d->last_turns > 0)) {
		event_add(d->turn, &soon);
	} else {
		event_base_loopbreak(d->base);
	}
}

struct event *ending_event(struct daemon *d)
{
	return event_new(d->base, -1, 0, on_turn, d);
}
