#include "daemon/reconcile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/marker.h"
#include "daemon/queue.h"
#include "daemon/record.h"
#include "daemon/sweep.h"

static int take(struct run *run, void *arg)
{
	struct daemon *d = arg;

	queue_add(d->queue, run);
	return 0;
}

static int move(struct daemon *d, struct run *run, enum run_state to, const char *reason)
{
	enum run_state from = run->state;
	int rc = run_transition(run, to, reason, clock_utc_ns());

	if (rc == 0)
		rc = record_transition_now(d->store, run);
	log_write(LOG_INFO, "run %lld: was %s, is %s%s%s", (long long)run->id, run_state_name(from),
		run_state_name(to), reason ? ": " : "", reason ? reason : "");
	return rc;
}

struct outcome {
	struct daemon *daemon;
	int rc;
};

static void settle(struct run *run, void *arg)
{
	struct outcome *o = arg;
	struct daemon *d = o->daemon;
	char reason[128], dir[PATH_MAX];
	bool placed = run_dir(run, d->state_dir, dir, sizeof(dir)) == 0;

	if (o->rc < 0)
		return;
	if (placed)
		sweep_run_dir(dir);
	if (run->state == RUN_QUEUED)
		return;
	if (run->state == RUN_FINISHING && placed && marker_valid(dir, run)) {
		o->rc = move(d, run, RUN_DONE, NULL);
	} else {
		snprintf(reason, sizeof(reason),
			"daemon_restart: gpt2d went away while the run was %s",
			run_state_name(run->state));
		o->rc = move(d, run, RUN_INTERRUPTED, reason);
		if (o->rc == 0 && run->restart)
			o->rc = move(d, run, RUN_QUEUED, "restart: asked for in its spec");
	}
	if (run->state == RUN_QUEUED)
		return;
	queue_remove(d->queue, run);
	free(run);
}

int reconcile_runs(struct daemon *d, char *error, size_t error_bytes)
{
	struct outcome o = {d, 0};

	o.rc = record_each_open(d->store, take, d);
	if (o.rc == 0)
		queue_each(d->queue, settle, &o);
	if (o.rc == 0)
		o.rc = record_counts(d->store, d->counts);
	if (o.rc < 0)
		snprintf(error, error_bytes, "%s/gpt2d.db: %s", d->state_dir,
			store_error_text(o.rc));
	return o.rc;
}
