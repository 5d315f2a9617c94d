#include "daemon/runs/lifecycle.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "daemon/control/follow.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

struct lifecycle {
	struct lifecycle_options options;
	struct {
		void (*changed)(void *arg, struct run *run, enum lifecycle_event event);
		void *arg;
	} observers[LIFECYCLE_OBSERVERS];
	size_t n_observers;
};

struct lifecycle *lifecycle_create(const struct lifecycle_options *options)
{
	struct lifecycle *l = memory_zeroed(1, sizeof(*l));

	l->options = *options;
	return l;
}

void lifecycle_destroy(struct lifecycle *l)
{
	free(l);
}

void lifecycle_observe(struct lifecycle *l,
	void (*changed)(void *arg, struct run *run, enum lifecycle_event event), void *arg)
{
	assert(l->n_observers < LIFECYCLE_OBSERVERS);
	l->observers[l->n_observers].changed = changed;
	l->observers[l->n_observers++].arg = arg;
}

static void report(struct lifecycle *l, struct run *run, enum lifecycle_event event)
{
	for (size_t i = 0; i < l->n_observers; i++)
		l->observers[i].changed(l->observers[i].arg, run, event);
}

void lifecycle_begin(struct lifecycle *l, struct run *run)
{
	l->options.counts[run->state]++;
	queue_add(l->options.queue, run);
	log_write(LOG_INFO, "run %lld: %s, queued by uid %u", (long long)run->id, run->name,
		(unsigned)run->uid);
	follow_event(l->options.follow, run->id, EVENT_STATE, run_state_json(run));
}

/* For the last event of a run. */
static json_t *done_json(const struct lifecycle *l, const struct run *run)
{
	char dir[PATH_MAX] = "";

	run_dir(run, l->options.state_dir, dir, sizeof(dir));
	return json_pack("{ss ss? ss}", "state", run_state_name(run->state), "reason",
		run->reason[0] ? run->reason : NULL, "dir", dir);
}

static void end_stored(struct lifecycle *l, struct run *run)
{
	const struct lifecycle_options *o = &l->options;

	o->counts[run_reported(run)]--;
	o->counts[run->state]++;
	run->end_pending = false;
	report(l, run, LIFECYCLE_STORED);
	follow_event(o->follow, run->id, EVENT_STATE, run_state_json(run));
	follow_end(o->follow, run->id, done_json(l, run));
	queue_remove(o->queue, run);
	free(run);
}

static void on_written(void *arg, struct run *run, enum run_state state, int rc)
{
	struct lifecycle *l = arg;

	run->writes--;
	if (rc < 0) /* the store is being closed: the next start determines how the run ended */
		log_write(LOG_ERROR, "run %lld: state %s could not be written: %s",
			(long long)run->id, run_state_name(state), store_error_text(rc));
	else if (run->state != state)
		return; /* a later state is being written */
	else if (run_state_ended(state))
		end_stored(l, run);
	else
		report(l, run, LIFECYCLE_STORED);
}

bool lifecycle_stored(const struct run *run)
{
	return run->writes == 0;
}

/* A failed run is a warning, with the run's name for readers who see only warnings. */
static void log_state(const struct run *run)
{
	const bool failed = run->state == RUN_FAILED;

	log_write(failed ? LOG_WARNING : LOG_INFO, "run %lld: %s%s%s%s%s", (long long)run->id,
		failed ? run->name : "", failed ? ": " : "", run_state_name(run->state),
		run->reason[0] ? ": " : "", run_reason(run));
}

int lifecycle_move(struct lifecycle *l, struct run *run, enum run_state to, const char *reason)
{
	const struct lifecycle_options *o = &l->options;
	enum run_state from = run->state, reported = run_reported(run);
	int rc = run_transition(run, to, reason, clock_utc_ns());

	if (rc < 0) {
		log_write(LOG_ERROR, "run %lld: %s -> %s is not allowed", (long long)run->id,
			run_state_name(from), run_state_name(to));
		return rc;
	}
	run->end_pending = run_state_ended(to);
	run->before = reported;
	o->counts[reported]--;
	o->counts[run_reported(run)]++;
	log_state(run);
	if (!run_state_ended(to))
		follow_event(o->follow, run->id, EVENT_STATE, run_state_json(run));
	if (to == RUN_QUEUED || run_state_ended(to))
		follow_clear_progress(o->follow, run->id);
	run->writes++;
	record_transition(o->store, run, on_written, l);
	report(l, run, LIFECYCLE_MOVED);
	return 0;
}
