#include "daemon/lifecycle.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/follow.h"
#include "daemon/log.h"
#include "daemon/queue.h"
#include "daemon/record.h"
#include "proto/protocol.h"

struct ending {
	struct daemon *daemon;
	struct run *run;
	enum run_state state;
};

static json_t *state_params(const struct run *run)
{
	return json_pack("{ss ss?}", "state", run_state_name(run->state), "reason",
		run->reason[0] ? run->reason : NULL);
}

void lifecycle_begin(struct daemon *d, struct run *run)
{
	d->counts[run->state]++;
	queue_add(d->queue, run);
	log_write(LOG_INFO, "run %lld: %s, queued by uid %u", (long long)run->id, run->name,
		(unsigned)run->uid);
	follow_event(d->follow, run, EVENT_STATE, state_params(run));
}

/* The end is durable: tell it, and forget the run. */
static void on_ended(void *arg, int rc)
{
	struct ending *e = arg;

	if (e->run->state != e->state) { /* queued again meanwhile, and perhaps ended anew */
		free(e);
		return;
	}
	if (rc < 0)
		log_write(
			LOG_ERROR, "run %lld: its end could not be written", (long long)e->run->id);
	follow_event(e->daemon->follow, e->run, EVENT_STATE, state_params(e->run));
	follow_end(e->daemon->follow, e->run);
	queue_remove(e->daemon->queue, e->run);
	free(e->run);
	free(e);
}

int lifecycle_move(struct daemon *d, struct run *run, enum run_state to, const char *reason)
{
	enum run_state from = run->state;
	struct ending *e = NULL;
	int rc;

	if (run_state_ended(to) && (e = malloc(sizeof(*e))) == NULL)
		return -ENOMEM;
	rc = run_transition(run, to, reason, clock_utc_ns());
	if (rc < 0) {
		log_write(LOG_ERROR, "run %lld: %s -> %s is not allowed", (long long)run->id,
			run_state_name(from), run_state_name(to));
		free(e);
		return rc;
	}
	d->counts[from]--;
	d->counts[to]++;
	log_write(LOG_INFO, "run %lld: %s%s%s", (long long)run->id, run_state_name(to),
		run->reason[0] ? ": " : "", run->reason);
	if (e == NULL) {
		follow_event(d->follow, run, EVENT_STATE, state_params(run));
		return record_transition(d->store, run, NULL, NULL);
	}
	*e = (struct ending){d, run, to};
	rc = record_transition(d->store, run, on_ended, e);
	if (rc < 0)
		on_ended(e, rc);
	return rc;
}
