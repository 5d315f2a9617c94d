#include "daemon/runs/lifecycle.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "daemon/runs/cancel.h"
#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/control/follow.h"
#include "daemon/runs/hold.h"
#include "daemon/config/log.h"
#include "daemon/runs/prune.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/runs/run_log.h"
#include "proto/protocol.h"

void lifecycle_begin(struct daemon *d, struct run *run)
{
	d->counts[run->state]++;
	queue_add(d->queue, run);
	log_write(LOG_INFO, "run %lld: %s, queued by uid %u", (long long)run->id, run->name,
		(unsigned)run->uid);
	follow_event(d->follow, run->id, EVENT_STATE, run_state_json(run));
}

/* For the last event of a run. */
static json_t *done_json(const struct daemon *d, const struct run *run)
{
	char dir[PATH_MAX] = "";

	run_dir(run, d->state_dir, dir, sizeof(dir));
	return json_pack("{ss ss? ss}", "state", run_state_name(run->state), "reason",
		run->reason[0] ? run->reason : NULL, "dir", dir);
}

/* The state is durable. An end is told then, and the run is forgotten. */
static void on_written(void *arg, struct run *run, enum run_state state, int rc)
{
	struct daemon *d = arg;

	run->writes--;
	if (rc < 0) { /* given up as the store is closed: the next gpt2d says how it ended */
		log_write(LOG_ERROR, "run %lld: that it is %s could not be written: %s",
			(long long)run->id, run_state_name(state), store_error_text(rc));
		return;
	}
	if (!run_state_ended(state) || run->state != state)
		return; /* goes on, or was queued again meanwhile, and perhaps ended anew */
	d->counts[run_told(run)]--;
	d->counts[state]++;
	run->unstored = false;
	cancel_settled(d, run, false);
	follow_event(d->follow, run->id, EVENT_STATE, run_state_json(run));
	follow_end(d->follow, run->id, done_json(d, run));
	queue_remove(d->queue, run);
	free(run);
	hold_update(d->holds);
	prune_soon(d->pruner);
}

/* Once for each end: the state is still the one of before, and the reason says why. */
static void say_unstored(struct run *run, void *arg)
{
	struct daemon *d = arg;

	if (!run->unstored || run->unstored_said)
		return;
	run->unstored_said = true;
	follow_event(d->follow, run->id, EVENT_STATE, run_state_json(run));
}

void lifecycle_store_fails(struct daemon *d)
{
	queue_each(d->queue, say_unstored, d);
}

static void write_state(struct daemon *d, struct run *run)
{
	int rc;

	run_log_hand_over(d); /* said before: "logs" has it before */
	rc = record_transition(d->store, run, on_written, d);
	if (rc < 0 && !run->unwritten)
		log_write(LOG_ERROR, "run %lld: no memory to write that it is %s: tried again",
			(long long)run->id, run_state_name(run->state));
	run->unwritten = rc < 0;
	run->writes += rc == 0;
	d->unwritten |= rc < 0;
	if (!run_state_ended(run->state) || !store_failing(d->store))
		return;
	say_unstored(run, d);
	cancel_store_fails(d);
}

static void retry(struct run *run, void *arg)
{
	if (run->unwritten)
		write_state(arg, run);
}

bool lifecycle_stored(const struct run *run)
{
	return run->writes == 0 && !run->unwritten;
}

void lifecycle_retry(struct daemon *d)
{
	if (!d->unwritten)
		return;
	d->unwritten = false;
	queue_each(d->queue, retry, d);
}

/* One that failed is for whoever looks at warnings alone, who has not seen its name. */
static void log_state(const struct run *run)
{
	const bool failed = run->state == RUN_FAILED;

	log_write(failed ? LOG_WARNING : LOG_INFO, "run %lld: %s%s%s%s%s", (long long)run->id,
		failed ? run->name : "", failed ? ": " : "", run_state_name(run->state),
		run->reason[0] ? ": " : "", run_reason(run));
}

int lifecycle_move(struct daemon *d, struct run *run, enum run_state to, const char *reason)
{
	enum run_state from = run->state, told = run_told(run);
	int rc = run_transition(run, to, reason, clock_utc_ns());

	if (rc < 0) {
		log_write(LOG_ERROR, "run %lld: %s -> %s is not allowed", (long long)run->id,
			run_state_name(from), run_state_name(to));
		return rc;
	}
	run->unstored = run_state_ended(to);
	run->unstored_said = false;
	run->before = told;
	d->counts[told]--;
	d->counts[run_told(run)]++;
	log_state(run);
	if (!run_state_ended(to))
		follow_event(d->follow, run->id, EVENT_STATE, run_state_json(run));
	if (to == RUN_QUEUED || run_state_ended(to))
		follow_clear_progress(d->follow, run->id);
	write_state(d, run);
	return 0;
}
