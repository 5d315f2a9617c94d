#include "daemon/shutdown.h"

#include <event2/event.h>
#include <stdlib.h>

#include "daemon/command_hold.h"
#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/service.h"
#include "daemon/config/settings.h"
#include "daemon/control/control.h"
#include "daemon/daemon.h"
#include "daemon/engines/checker.h"
#include "daemon/nodes/world.h"
#include "daemon/runs/generation.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/scheduler.h"
#include "daemon/runs/submit.h"
#include "daemon/store/store.h"

enum {
	FINISH_S = 10, /* stopping now: for a step's end and the files of trained runs */
	SAME_S = 1,    /* signals that come together, as from Slurm and terminals, count as one */
	LINGER_S = 1,  /* at the end, for replies that clients do not read */
};

/*
 * Reason of the run that is interrupted: Slurm signals a job that it preempts or whose time is
 * over.
 */
static const char *stop_reason(const struct daemon *d)
{
	return d->signalled && getenv("SLURM_JOB_ID") != NULL
		? "preempted: a signal stopped gpt2d in a Slurm job"
		: "daemon_stop: gpt2d was stopped";
}

void shutdown_stop_checks(struct daemon *d)
{
	struct checker *checker = d->checker;

	if (d->submitter)
		submit_stop_checks(d->submitter);
	d->checker = NULL;
	checker_destroy(checker);
	world_end_checks(d->world);
}

void shutdown_step(struct daemon *d)
{
	if (d->stopping && d->shutdown)
		event_active(d->shutdown, 0, 0);
}

void shutdown_begin(struct daemon *d, bool now)
{
	if (!d->stopping) {
		d->stopping = true;
		service_notify("STOPPING=1\nSTATUS=stopping");
		submit_stop(d->submitter);
		hold_place_stopping(d->holds);
		command_hold_stop(d);
		generation_stop(d->generation);
		if (!scheduler_in_hand(d->scheduler))
			now = true;
		log_write(LOG_INFO, now ? "stopping" : "stopping after the run in progress");
	}
	if (now && d->finish_ns == 0) {
		/* the engines decide: a run that is already trained is done */
		scheduler_yield(d->scheduler, stop_reason(d));
		d->finish_ns = clock_mono_ns() + FINISH_S * CLOCK_S_NS;
	} else if (now && clock_mono_ns() > d->finish_ns - (FINISH_S - SAME_S) * CLOCK_S_NS) {
		scheduler_interrupt(d->scheduler, false, stop_reason(d));
	}
	shutdown_step(d);
}

/* The run in progress may continue until stop_timeout. */
static void wait_for_run(struct daemon *d)
{
	int64_t left_ns = d->drain_ns - clock_mono_ns();
	struct timeval left = {
		.tv_sec = left_ns / CLOCK_S_NS, .tv_usec = left_ns % CLOCK_S_NS / 1000};

	if (left_ns >= 1000) {
		event_add(d->shutdown, &left);
		return;
	}
	log_write(LOG_INFO, "the run in progress has not ended within stop_timeout, %lld s",
		(long long)d->settings->stop_timeout_s);
	shutdown_begin(d, true);
}

/*
 * One step after another: the runs end, the engines end, the ends of their runs are written, the
 * followers get their last events, and clients get the replies to all requests that were read.
 */
static void on_shutdown(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval soon = {0, 20000};
	struct daemon *d = arg;
	bool late;

	if (d->drain_ns != 0 && d->finish_ns == 0 && scheduler_in_hand(d->scheduler))
		wait_for_run(d);
	if (d->finish_ns != 0 && clock_mono_ns() > d->finish_ns)
		scheduler_interrupt(d->scheduler, true, stop_reason(d));
	if (scheduler_in_hand(d->scheduler)) {
		if (d->finish_ns != 0)
			event_add(d->shutdown, &soon);
		return;
	}
	if (!d->engines_stopping) {
		d->engines_stopping = true;
		shutdown_stop_checks(d);
		control_stop_listening(d->control);
		scheduler_interrupt(
			d->scheduler, true, stop_reason(d)); /* what was prepared in advance */
		world_stop(d->world);
	}
	if (!d->engines_gone || scheduler_busy(d->scheduler))
		return;
	if (d->linger_ns == 0)
		d->linger_ns = clock_mono_ns() + LINGER_S * CLOCK_S_NS;
	late = clock_mono_ns() >= d->linger_ns;
	if (!late && !(store_idle(d->store) && control_idle(d->control))) {
		event_add(d->shutdown, &soon);
	} else if (!d->ending_requests) {
		d->ending_requests = true;
		/* a client that does not read has used up the time of those that do */
		d->linger_ns = clock_mono_ns() + LINGER_S * CLOCK_S_NS;
		control_end_requests(d->control);
		event_add(d->shutdown, &soon);
	} else if (!late && !control_served(d->control)) {
		event_add(d->shutdown, &soon);
	} else {
		event_base_loopbreak(d->base);
	}
}

struct event *shutdown_event(struct daemon *d)
{
	return event_new(d->base, -1, 0, on_shutdown, d);
}
