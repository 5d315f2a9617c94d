#include "daemon/prune.h"

#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/failure.h"
#include "daemon/log.h"
#include "daemon/queue.h"
#include "daemon/record.h"
#include "daemon/record_prune.h"
#include "daemon/request.h"
#include "daemon/role.h"
#include "daemon/scheduler.h"
#include "daemon/settings.h"
#include "daemon/trash.h"
#include "daemon/worker.h"
#include "proto/protocol.h"

enum {
	BATCH_STANDARD = 50,
	BATCH_MAX = 1000,
	RETENTION_BATCH = 16,
	TURN_NAMES = 256, /* removed at a time, before another job has its turn */
	PERIOD_S = 60,
	SOON_S = 1,
};

enum step { STEP_MOVE, STEP_EMPTY, STEP_REMOVE, STEP_MEASURE };

/* What one request, or the settings, remove: one run after another. */
struct batch {
	struct worker_job job;
	struct pruner *pruner;
	uint64_t client; /* 0: the settings */
	bool dry;
	json_t *selected; /* {runs, next} */
	size_t i;
	json_t *removed;
	int64_t freed;
	struct run run; /* the one that it is at: id, name, attempt */
	enum step step;
	int64_t bytes; /* of it */
};

struct pruner {
	struct daemon *daemon;
	struct event *timer;
	struct batch *batch;        /* at work; NULL: none */
	struct worker_job leftover; /* in the trash from before */
	bool by_age, by_age_next;   /* retain_days is what the settings' batch is for, will be */
};

static void next_run(struct batch *b);
static void arm(struct pruner *p, int seconds);

static struct client *client_of(const struct batch *b)
{
	return b->client ? control_find(b->pruner->daemon->control, b->client) : NULL;
}

static void end_batch(struct batch *b)
{
	struct pruner *p = b->pruner;

	if (p->batch == b)
		p->batch = NULL;
	json_decref(b->selected);
	json_decref(b->removed);
	free(b);
}

/* rc tells what became of the run that it was at. */
static void fail_batch(struct batch *b, int rc)
{
	struct client *client = client_of(b);
	const bool more = json_array_size(b->removed) > 0;

	if (rc != -ECANCELED)
		log_write(LOG_WARNING, "run %lld: it could not be removed: %s",
			(long long)b->run.id, store_error_text(rc));
	if (client != NULL)
		client_refuse(client, PROTOCOL_STORE, NULL,
			"run %lld: it could not be removed: %s%s", (long long)b->run.id,
			store_error_text(rc), more ? "; others before it were" : "");
	end_batch(b);
}

static void finish_batch(struct batch *b)
{
	struct pruner *p = b->pruner;
	struct client *client = client_of(b);
	json_t *next = json_object_get(b->selected, "next");
	const bool full = json_is_integer(next);

	if (client != NULL)
		client_reply(client,
			json_pack("{sO sI sb sO}", "runs", b->removed, "bytes",
				(json_int_t)b->freed, "dry_run", b->dry, "next", next));
	else if (b->client == 0) {
		p->by_age_next = full ? p->by_age : p->by_age_next;
		arm(p, full || p->by_age_next ? SOON_S : PERIOD_S);
	}
	end_batch(b);
}

/* ---- one run ---- */

static int work(struct worker_job *job)
{
	struct batch *b = (struct batch *)job;
	const char *state_dir = b->pruner->daemon->state_dir;

	switch (b->step) {
	case STEP_MOVE:
		b->bytes = trash_bytes(state_dir, &b->run);
		return trash_move(state_dir, &b->run);
	case STEP_EMPTY:
		return trash_empty(state_dir, &b->run, TURN_NAMES);
	case STEP_REMOVE:
		return trash_remove(state_dir, &b->run);
	case STEP_MEASURE:
		b->bytes = trash_bytes(state_dir, &b->run);
		break;
	}
	return 0;
}

static void go(struct batch *b, enum step step)
{
	b->step = step;
	worker_add(b->pruner->daemon->worker, &b->job);
}

/* The run is done with. */
static void add_removed(struct batch *b)
{
	json_t *run = json_array_get(json_object_get(b->selected, "runs"), b->i);

	json_array_append_new(b->removed,
		json_pack("{sO sO sO sO sI}", "id", json_object_get(run, "id"), "name",
			json_object_get(run, "name"), "state", json_object_get(run, "state"),
			"ended_at", json_object_get(run, "ended_at"), "bytes",
			(json_int_t)b->bytes));
	b->freed += b->bytes;
	b->i++;
	next_run(b);
}

static void on_deleted(void *arg, int rc)
{
	struct batch *b = arg;
	json_t *run = json_array_get(json_object_get(b->selected, "runs"), b->i);
	enum run_state state = RUN_DONE;

	if (rc < 0) {
		fail_batch(b, rc);
		return;
	}
	if (run_state_parse(json_string_value(json_object_get(run, "state")), &state) == 0)
		b->pruner->daemon->counts[state]--;
	log_write(LOG_INFO, "run %lld: removed, %lld bytes freed", (long long)b->run.id,
		(long long)b->bytes);
	go(b, STEP_REMOVE);
}

static void done(struct worker_job *job, int rc)
{
	struct batch *b = (struct batch *)job;
	struct daemon *d = b->pruner->daemon;

	if (b->step == STEP_EMPTY && rc == -EAGAIN) {
		worker_add(d->worker, &b->job);
	} else if (b->step == STEP_REMOVE || (rc == 0 && b->step == STEP_MEASURE)) {
		add_removed(b); /* an empty directory that stays in the trash does no harm */
	} else if (rc < 0) {
		fail_batch(b, rc);
	} else if (b->step == STEP_MOVE) {
		go(b, STEP_EMPTY);
	} else {
		rc = record_delete(d->store, b->run.id, on_deleted, b);
		if (rc < 0)
			fail_batch(b, rc);
	}
}

static void next_run(struct batch *b)
{
	struct daemon *d = b->pruner->daemon;
	json_t *run = json_array_get(json_object_get(b->selected, "runs"), b->i);
	const char *name = json_string_value(json_object_get(run, "name"));

	/* in memory: it has been queued again, or its end has not been told */
	while (run != NULL && queue_find(d->queue, request_integer(run, "id", 0)) != NULL)
		run = json_array_get(json_object_get(b->selected, "runs"), ++b->i);
	if (run == NULL || d->stopping || (b->client == 0 && scheduler_busy(d->scheduler)) ||
		(b->client != 0 && client_of(b) == NULL)) {
		finish_batch(b);
		return;
	}
	b->run = (struct run){
		.id = request_integer(run, "id", 0), .attempt = request_integer(run, "attempt", 1)};
	snprintf(b->run.name, sizeof(b->run.name), "%s", name ? name : "");
	b->bytes = 0;
	go(b, b->dry ? STEP_MEASURE : STEP_MOVE);
}

static void on_selected(void *arg, int rc, json_t *result)
{
	struct batch *b = arg;
	struct client *client = client_of(b);

	b->selected = result;
	if (rc == 0) {
		next_run(b);
		return;
	}
	if (client != NULL)
		request_unread(client, b->pruner->daemon->store, 0, rc);
	end_batch(b);
}

/* 0, or -ENOMEM. */
static int start_batch(
	struct pruner *p, uint64_t client, bool dry, const struct record_prunable *what)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return -ENOMEM;
	b->job.work = work;
	b->job.done = done;
	b->pruner = p;
	b->client = client;
	b->dry = dry;
	b->removed = json_array();
	if (!dry)
		p->batch = b;
	if (record_prunable(p->daemon->store, p->daemon->state_dir, what, on_selected, b) == 0)
		return 0;
	end_batch(b);
	return -ENOMEM;
}

bool prune_has(const struct pruner *p, int64_t id)
{
	json_t *run;
	size_t i;

	if (p->batch == NULL)
		return false;
	if (p->batch->selected == NULL)
		return true; /* it may be among them */
	json_array_foreach(json_object_get(p->batch->selected, "runs"), i, run)
		if (i >= p->batch->i && request_integer(run, "id", 0) == id)
			return true;
	return false;
}

/* ---- asked for ---- */

/* False: it has been answered. */
static bool take_params(struct client *client, json_t *params, struct record_prunable *what)
{
	const char *state = json_string_value(json_object_get(params, "state"));
	int64_t older_s = request_integer(params, "older_than_s", -1);
	enum run_state parsed = RUN_DONE;

	*what = (struct record_prunable){.keep = request_integer(params, "keep", -1),
		.ended_before_ns = INT64_MAX,
		.uid = client_peer(client)->admin ? -1 : (int64_t)client_peer(client)->uid,
		.state = -1,
		.after = request_integer(params, "after", 0),
		.limit = request_integer(params, "limit", BATCH_STANDARD)};
	if (json_object_get(params, "keep") == NULL && state == NULL && older_s < 0) {
		client_refuse(client, PROTOCOL_INVALID_PARAMS, NULL,
			"prune: one of keep, older_than_s and state is needed");
		return false;
	}
	if (what->limit < 1 || what->limit > BATCH_MAX || what->after < 0 || what->keep < -1 ||
		older_s < -1 || older_s > INT64_MAX / CLOCK_S_NS) {
		client_refuse(client, PROTOCOL_INVALID_PARAMS, NULL,
			"limit: 1 to %d is allowed; keep, older_than_s and after: 0 and above",
			BATCH_MAX);
		return false;
	}
	if (state != NULL && (run_state_parse(state, &parsed) < 0 || !run_state_ended(parsed))) {
		client_refuse(client, PROTOCOL_INVALID_PARAMS, NULL,
			"state: \"%.32s\" is no state of a run that has ended (done, failed, "
			"cancelled, interrupted)",
			state);
		return false;
	}
	if (state != NULL)
		what->state = (int)parsed;
	if (older_s >= 0)
		what->ended_before_ns = clock_utc_ns() - older_s * CLOCK_S_NS;
	return true;
}

void prune_request(struct daemon *d, struct client *client, json_t *params)
{
	bool dry = json_is_true(json_object_get(params, "dry_run"));
	struct record_prunable what;

	if (!take_params(client, params, &what))
		return;
	if (!dry && d->stopping)
		client_refuse(client, PROTOCOL_BUSY, NULL, "gpt2d is stopping");
	else if (!dry && d->pruner->batch != NULL)
		client_refuse(
			client, PROTOCOL_BUSY, NULL, "other runs are being removed at the moment");
	else if (start_batch(d->pruner, client_peer(client)->number, dry, &what) < 0)
		client_refuse(client, PROTOCOL_INTERNAL, NULL, "out of memory");
}

/* ---- keep ---- */

struct keeping {
	struct daemon *daemon;
	uint64_t client;
	int64_t id;
	bool kept;
};

static struct client *keeping_client(const struct keeping *k)
{
	return control_find(k->daemon->control, k->client);
}

static void refuse_keeping(struct keeping *k, int rc)
{
	struct client *client = keeping_client(k);
	char why[FAILURE_TEXT_BYTES];

	failure_text(k->daemon->store, rc, why);

	if (client != NULL && rc == -ENOENT)
		request_no_run(client, k->id);
	else if (client != NULL)
		client_refuse(client, PROTOCOL_STORE, NULL,
			"run %lld: nothing is changed, it could not be stored: %s",
			(long long)k->id, why);
	free(k);
}

static void on_kept(void *arg, int rc)
{
	struct keeping *k = arg;
	struct client *client = keeping_client(k);
	struct run *run = queue_find(k->daemon->queue, k->id);

	if (rc < 0) {
		refuse_keeping(k, rc);
		return;
	}
	if (run != NULL)
		run->kept = k->kept;
	if (client != NULL)
		client_reply(
			client, json_pack("{sI sb}", "id", (json_int_t)k->id, "kept", k->kept));
	free(k);
}

static void on_owner(void *arg, int rc, json_t *result)
{
	struct keeping *k = arg;
	struct client *client = keeping_client(k);
	uid_t owner = (uid_t)request_integer(json_object_get(result, "run"), "uid", 0);

	json_decref(result);
	if (client == NULL || rc < 0) {
		refuse_keeping(k, rc);
	} else if (!role_may_change(client_peer(client), owner)) {
		request_not_owner(client, k->id);
		free(k);
	} else if (prune_has(k->daemon->pruner, k->id)) {
		client_refuse(client, PROTOCOL_BUSY, NULL, "run %lld: is being removed",
			(long long)k->id);
		free(k);
	} else {
		rc = record_keep(k->daemon->store, k->id, k->kept, on_kept, k);
		if (rc < 0)
			refuse_keeping(k, rc);
	}
}

void prune_keep(struct daemon *d, struct client *client, json_t *params)
{
	json_t *kept = json_object_get(params, "kept");
	struct keeping *k = calloc(1, sizeof(*k));

	if (k != NULL)
		*k = (struct keeping){d, client_peer(client)->number,
			request_integer(params, "id", 0), kept == NULL || json_is_true(kept)};
	if (k == NULL || record_show(d->store, d->state_dir, k->id, -1, 1, on_owner, k) < 0) {
		free(k);
		client_refuse(client, PROTOCOL_INTERNAL, NULL, "out of memory");
	}
}

/* ---- by the settings ---- */

static void on_timer(evutil_socket_t fd, short events, void *arg)
{
	struct pruner *p = arg;
	const struct settings *s = p->daemon->settings;
	struct record_prunable what = {.keep = -1,
		.ended_before_ns = INT64_MAX,
		.uid = -1,
		.state = -1,
		.limit = RETENTION_BATCH};

	arm(p, PERIOD_S);
	if ((s->retain_runs == 0 && s->retain_days == 0) || p->batch != NULL ||
		p->daemon->stopping || scheduler_busy(p->daemon->scheduler))
		return;
	/* where both are set: retain_runs, and soon after it retain_days */
	p->by_age = s->retain_days > 0 && (s->retain_runs == 0 || p->by_age_next);
	p->by_age_next = s->retain_days > 0 && !p->by_age;
	if (p->by_age)
		what.ended_before_ns = clock_utc_ns() - s->retain_days * 86400 * CLOCK_S_NS;
	else
		what.keep = s->retain_runs;
	start_batch(p, 0, false, &what);
}

static void arm(struct pruner *p, int seconds)
{
	struct timeval t = {.tv_sec = seconds};

	evtimer_add(p->timer, &t);
}

void prune_soon(struct pruner *p)
{
	const struct settings *s = p->daemon->settings;

	if (s->retain_runs > 0 || s->retain_days > 0)
		arm(p, SOON_S);
}

/* ---- what is left ---- */

static int remove_rows(int64_t id, void *arg)
{
	struct daemon *d = arg;
	struct run was;
	int rc = record_ended_now(d->store, id, &was);

	if (rc == -ENOENT)
		return 0; /* they are gone */
	if (rc == 0)
		rc = trash_move(d->state_dir, &was);
	if (rc == 0)
		rc = record_delete_now(d->store, id);
	if (rc == 0)
		log_write(LOG_INFO, "run %lld: its removal is finished", (long long)id);
	return rc;
}

int prune_recover(struct daemon *d, char *error, size_t error_bytes)
{
	int rc = trash_each(d->state_dir, remove_rows, d);

	if (rc < 0)
		snprintf(error, error_bytes, "%s/trash: %s", d->state_dir, store_error_text(rc));
	return rc;
}

static int leftover_work(struct worker_job *job)
{
	struct pruner *p =
		(struct pruner *)(void *)((char *)job - offsetof(struct pruner, leftover));

	return trash_empty_all(p->daemon->state_dir, TURN_NAMES);
}

static void leftover_done(struct worker_job *job, int rc)
{
	struct pruner *p =
		(struct pruner *)(void *)((char *)job - offsetof(struct pruner, leftover));

	if (rc == -EAGAIN)
		worker_add(p->daemon->worker, job);
	else if (rc < 0 && rc != -ECANCELED)
		log_write(LOG_WARNING, "%s/trash: %s", p->daemon->state_dir, strerror(-rc));
}

int prune_create(struct daemon *d, struct pruner **out)
{
	struct pruner *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return -ENOMEM;
	p->daemon = d;
	p->timer = evtimer_new(d->base, on_timer, p);
	if (p->timer == NULL) {
		free(p);
		return -ENOMEM;
	}
	arm(p, SOON_S);
	p->leftover = (struct worker_job){.work = leftover_work, .done = leftover_done};
	worker_add(d->worker, &p->leftover);
	*out = p;
	return 0;
}

void prune_destroy(struct pruner *p)
{
	if (p == NULL)
		return;
	event_free(p->timer);
	free(p);
}
