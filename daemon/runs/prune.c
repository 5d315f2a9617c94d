#include "daemon/runs/prune.h"

#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/control/reply.h"
#include "daemon/daemon.h"
#include "daemon/store/failure.h"
#include "daemon/config/log.h"
#include "daemon/runs/prune_params.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/store/record_prune.h"
#include "daemon/control/request.h"
#include "daemon/runs/retention.h"
#include "daemon/control/role.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "proto/state_files.h"
#include "daemon/runs/trash.h"
#include "daemon/store/worker.h"
#include "proto/protocol.h"

enum {
	TURN_NAMES = 256, /* removed at a time, before another job has its turn */
	PERIOD_S = 60,
	SOON_S = 1,
	ENDED_MAX = 32, /* runs that end one after another before the settings wait no longer */
};

enum step { STEP_MOVE, STEP_EMPTY, STEP_DELETE, STEP_REMOVE, STEP_MEASURE };

/* What one request, or the settings, remove: one run after another. */
struct batch {
	struct worker_job job;
	struct pruner *pruner;
	struct reply *reply; /* 0: the settings */
	int64_t ended;       /* the pruner's, when it began */
	bool dry;
	json_t *selected; /* {runs, next} */
	size_t i;
	json_t *removed;
	int64_t freed;
	json_t *now;    /* of selected, or late: the one that it is at */
	struct run run; /* its id, name, attempt */
	enum step step;
	int64_t bytes; /* of it */

	json_t *late;    /* emptied, but there was no room to delete their rows: tried at the end */
	size_t n_late;   /* of them that are tried */

	bool forget;  /* also runs whose folders are not there */
	json_t *left; /* those; they stay */

	int64_t stuck;                    /* runs that stay, for reasons of their own */
	char why_stuck[RUN_REASON_BYTES]; /* the first of them */
};

struct pruner {
	struct daemon *daemon;
	struct event *timer;
	struct batch *batch;        /* at work; NULL: none */
	struct worker_job leftover; /* in the trash from before */
	struct retention retention;
	int64_t ended; /* runs, since the settings were kept to */
	bool soon;     /* the timer was set for a run that has ended */
};

static void next_run(struct batch *b);
static void arm(struct pruner *p, int seconds);
static void delete_rows(struct batch *b);

static void end_batch(struct batch *b)
{
	struct pruner *p = b->pruner;

	if (p->batch == b)
		p->batch = NULL;
	json_decref(b->selected);
	json_decref(b->removed);
	json_decref(b->late);
	json_decref(b->left);
	free(b);
}

/* rc tells what became of the run that it was at. */
static void fail_batch(struct batch *b, int rc)
{
	const bool more = json_array_size(b->removed) > 0;
	char why[FAILURE_TEXT_BYTES];

	if (b->step == STEP_DELETE)
		failure_text(b->pruner->daemon->store, rc, why);
	else
		snprintf(why, sizeof(why), "%.320s: %s", b->pruner->daemon->state_dir,
			rc == -EBUSY ? strerror(EBUSY) : store_error_text(rc)); /* a mount point */
	if (rc != -ECANCELED)
		log_write(LOG_WARNING, "run %lld: it could not be removed: %s",
			(long long)b->run.id, why);
	if (b->reply != NULL)
		reply_error(b->reply, PROTOCOL_STORE, NULL,
			"run %lld: it could not be removed%s: %s%s", (long long)b->run.id,
			b->step == STEP_DELETE ? ", but its files are" : "", why,
			more ? "; others were" : "");
	end_batch(b);
}

/* Where the next ones are looked for: what stays is not to be in their way. */
static int64_t reached(const struct batch *b)
{
	if (b->now != NULL)
		return request_integer(b->now, "id", 1) - 1;
	return request_integer(b->selected, "next", 0);
}

static void finish_retention(struct batch *b)
{
	struct pruner *p = b->pruner;
	const json_t *last = json_array_get(b->left, json_array_size(b->left) - 1);
	bool again;

	if (last != NULL)
		retention_leave(&p->retention, json_string_value(json_object_get(last, "dir")));
	again = retention_again(&p->retention, reached(b));
	if (b->now == NULL && !again)
		p->ended -= b->ended;
	/* soon: of a run that has ended since; it waits for the timer that is set here */
	arm(p, again || p->soon ? SOON_S : PERIOD_S);
}

static void finish_batch(struct batch *b)
{
	json_t *next = json_object_get(b->selected, "next");

	if (b->reply != NULL && b->stuck > 0)
		reply_error(b->reply, PROTOCOL_STORE, NULL,
			"%s; %lld of the runs that were tried stay, %lld are removed", b->why_stuck,
			(long long)b->stuck, (long long)json_array_size(b->removed));
	else if (b->reply != NULL)
		reply_result(b->reply,
			json_pack("{sO sI sb sO sO sO}", "runs", b->removed, "bytes",
				(json_int_t)b->freed, "dry_run", b->dry, "left", b->left, "kept",
				json_object_get(b->selected, "kept"), "next", next));
	else
		finish_retention(b);
	end_batch(b);
}

/* ---- one run ---- */

/* -ENOMEDIUM: it had a folder, and that is not to be found: its disk may not be mounted. */
static int look_for(const struct batch *b)
{
	const bool begun = json_is_true(json_object_get(b->now, "begun"));
	const char *state_dir = b->pruner->daemon->state_dir;

	return begun && !b->forget && !trash_finds(state_dir, &b->run) ? -ENOMEDIUM : 0;
}

static int work(struct worker_job *job)
{
	struct batch *b = (struct batch *)job;
	const char *state_dir = b->pruner->daemon->state_dir;

	if ((b->step == STEP_MOVE || b->step == STEP_MEASURE) && look_for(b) < 0)
		return -ENOMEDIUM;
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
	case STEP_DELETE:
		break; /* the store's */
	}
	return 0;
}

static void go(struct batch *b, enum step step)
{
	b->step = step;
	if (step == STEP_DELETE)
		delete_rows(b);
	else
		worker_add(b->pruner->daemon->worker, &b->job);
}

/* The run is done with. */
static void add_removed(struct batch *b)
{
	json_t *run = b->now;

	json_array_append_new(b->removed,
		json_pack("{sO sO sO sO sI}", "id", json_object_get(run, "id"), "name",
			json_object_get(run, "name"), "state", json_object_get(run, "state"),
			"ended_at", json_object_get(run, "ended_at"), "bytes",
			(json_int_t)b->bytes));
	b->freed += b->bytes;
	next_run(b);
}

/* It stays. */
static void leave(struct batch *b)
{
	const char *of_run[] = {"id", "name", "dir"};
	json_t *left = json_object();

	for (size_t i = 0; i < sizeof(of_run) / sizeof(of_run[0]); i++)
		json_object_set(left, of_run[i], json_object_get(b->now, of_run[i]));
	json_array_append_new(b->left, left);
	next_run(b);
}

/* ---- a full disk ---- */

/* It stays until the files of the others are gone as well. */
static void put_off(struct batch *b)
{
	json_object_set_new(b->now, "bytes", json_integer(b->bytes));
	json_array_append(b->late, b->now);
	next_run(b);
}

/* On a full disk: whether the rows are deleted later, when the files of other runs are gone. */
static bool delete_later(struct batch *b, int rc)
{
	if (!failure_is_full(rc) || b->step != STEP_DELETE || b->n_late > 0)
		return false;
	put_off(b);
	return true;
}

/* ---- step by step ---- */

/*
 * Whether rc is about this run's folder alone (a link in its place, a file that nobody may remove,
 * something mounted there): it stays, and the others go on.
 */
static bool pass_over(struct batch *b, int rc)
{
	const char *folder = b->step == STEP_MOVE ? STATE_RUNS : STATE_TRASH;
	char why[RUN_REASON_BYTES];

	if ((b->step != STEP_MOVE && b->step != STEP_EMPTY) || rc == -ECANCELED || rc == -EIO ||
		rc == -EROFS || failure_is_full(rc))
		return false;
	snprintf(why, sizeof(why), "run %lld: %.600s/%s/%lld-%s: it could not be removed: %s",
		(long long)b->run.id, b->pruner->daemon->state_dir, folder, (long long)b->run.id,
		b->run.name, strerror(-rc));
	log_write(LOG_WARNING, "%s", why);
	if (b->stuck++ == 0)
		memcpy(b->why_stuck, why, sizeof(why));
	next_run(b);
	return true;
}

static void on_deleted(void *arg, int rc)
{
	struct batch *b = arg;
	enum run_state state = RUN_DONE;

	if (rc < 0) {
		if (!delete_later(b, rc))
			fail_batch(b, rc);
		return;
	}
	if (run_state_parse(json_string_value(json_object_get(b->now, "state")), &state) == 0)
		b->pruner->daemon->counts[state]--;
	log_write(LOG_INFO, "run %lld: removed, %lld bytes freed", (long long)b->run.id,
		(long long)b->bytes);
	go(b, STEP_REMOVE);
}

static void delete_rows(struct batch *b)
{
	int rc = record_delete(b->pruner->daemon->store, b->run.id, on_deleted, b);

	if (rc < 0)
		fail_batch(b, rc);
}

static void done(struct worker_job *job, int rc)
{
	struct batch *b = (struct batch *)job;

	if (b->step == STEP_EMPTY && rc == -EAGAIN)
		go(b, STEP_EMPTY);
	else if (b->step == STEP_REMOVE || (rc == 0 && b->step == STEP_MEASURE))
		add_removed(b); /* an empty directory that stays in the trash does no harm */
	else if (rc == 0 && b->step == STEP_EMPTY && json_array_size(b->late) > 0)
		put_off(b);
	else if (rc == 0)
		go(b, b->step == STEP_MOVE ? STEP_EMPTY : STEP_DELETE);
	else if (rc == -ENOMEDIUM)
		leave(b);
	else if (!delete_later(b, rc) && !pass_over(b, rc))
		fail_batch(b, rc);
}

/* The next of those that are selected; after them, of those whose rows are still there. */
static json_t *take_next(struct batch *b)
{
	json_t *runs = json_object_get(b->selected, "runs"), *run;

	/* in memory: it has been queued again, or its end has not been told */
	while ((run = json_array_get(runs, b->i)) != NULL) {
		b->i++;
		if (queue_find(b->pruner->daemon->queue, request_integer(run, "id", 0)) == NULL)
			return run;
	}
	return json_array_get(b->late, b->n_late++);
}

/* What is measured is not to be disturbed, as long as the queue lets the engines rest at all. */
static bool must_wait(const struct pruner *p)
{
	return p->ended < ENDED_MAX && scheduler_busy(p->daemon->scheduler);
}

static void next_run(struct batch *b)
{
	struct daemon *d = b->pruner->daemon;
	const char *name;

	b->now = take_next(b);
	if (b->now == NULL || d->stopping || (b->reply == NULL && must_wait(b->pruner)) ||
		(b->reply != NULL && !reply_wanted(b->reply))) {
		finish_batch(b);
		return;
	}
	name = json_string_value(json_object_get(b->now, "name"));
	b->run = (struct run){.id = request_integer(b->now, "id", 0),
		.attempt = request_integer(b->now, "attempt", 1)};
	snprintf(b->run.name, sizeof(b->run.name), "%s", name ? name : "");
	b->bytes = b->n_late > 0 ? request_integer(b->now, "bytes", 0) : 0;
	go(b, b->dry ? STEP_MEASURE : b->n_late > 0 ? STEP_DELETE : STEP_MOVE);
}

static void on_selected(void *arg, int rc, json_t *result)
{
	struct batch *b = arg;

	b->selected = result;
	if (rc == 0) {
		next_run(b);
		return;
	}
	if (b->reply != NULL)
		request_unread(b->reply, b->pruner->daemon->store, 0, rc);
	end_batch(b);
}

/* 0, or -ENOMEM. */
static int start_batch(struct pruner *p, struct reply *reply, bool dry, bool forget,
	const struct record_prunable *what)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return -ENOMEM;
	b->job.work = work;
	b->job.done = done;
	b->pruner = p;
	b->reply = reply;
	b->ended = p->ended;
	b->dry = dry;
	b->forget = forget;
	b->removed = json_array();
	b->late = json_array();
	b->left = json_array();
	if (!dry)
		p->batch = b;
	if (record_prunable(p->daemon->store, p->daemon->state_dir, what, on_selected, b) == 0)
		return 0;
	end_batch(b);
	return -ENOMEM;
}

bool prune_has(const struct pruner *p, int64_t id)
{
	const struct batch *b = p->batch;
	json_t *run;
	size_t i;

	if (b == NULL)
		return false;
	if (b->selected == NULL)
		return true; /* it may be among them */
	if (b->now != NULL && b->run.id == id)
		return true;
	json_array_foreach(b->late, i, run)
		if (request_integer(run, "id", 0) == id)
			return true;
	json_array_foreach(json_object_get(b->selected, "runs"), i, run)
		if (i >= b->i && request_integer(run, "id", 0) == id)
			return true;
	return false;
}

/* ---- asked for ---- */

void prune_request(struct daemon *d, struct reply *reply, json_t *params)
{
	bool dry = json_is_true(json_object_get(params, "dry_run"));
	bool forget = json_is_true(json_object_get(params, "forget"));
	struct record_prunable what;

	if (!prune_params_take(reply, params, &what))
		return;
	if (!dry && d->stopping)
		reply_error(reply, PROTOCOL_BUSY, NULL, "gpt2d is stopping");
	else if (!dry && d->pruner->batch != NULL)
		reply_error(
			reply, PROTOCOL_BUSY, NULL, "other runs are being removed at the moment");
	else if (start_batch(d->pruner, reply, dry, forget, &what) < 0)
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
}

/* ---- by the settings ---- */

static void on_timer(evutil_socket_t fd, short events, void *arg)
{
	struct pruner *p = arg;
	const struct settings *s = p->daemon->settings;
	struct record_prunable what;

	p->soon = false;
	arm(p, PERIOD_S);
	retention_look(&p->retention, s);
	if (p->batch != NULL || p->daemon->stopping || must_wait(p) ||
		!retention_select(&p->retention, s, &what))
		return;
	start_batch(p, 0, false, false, &what);
}

static void arm(struct pruner *p, int seconds)
{
	struct timeval t = {.tv_sec = seconds};

	evtimer_add(p->timer, &t);
}

void prune_soon(struct pruner *p)
{
	const struct settings *s = p->daemon->settings;

	p->ended++;
	if ((s->retain_runs == 0 && s->retain_days == 0) || p->soon)
		return; /* runs that end more often than that must not put it off for ever */
	p->soon = true;
	arm(p, SOON_S);
}

/* ---- what is left ---- */

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
		log_write(LOG_WARNING, "%s/" STATE_TRASH ": %s", p->daemon->state_dir,
			strerror(-rc));
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
	retention_init(&p->retention, d->state_dir, d->last_change_ns);
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
