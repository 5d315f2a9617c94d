#include "daemon/runs/prune.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/control/reply.h"
#include "daemon/control/role.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/trash.h"
#include "daemon/store/record.h"
#include "daemon/store/store.h"
#include "daemon/runs/worker.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/state_files.h"

enum {
	PERIOD_S = 60,
	SOON_S = 1,
	ENDED_MAX = 32, /* after this many ended runs retention does not wait for idle engines */
	BATCH_STANDARD = 50,
	BATCH_MAX = 1000,
};

enum outcome { WAITING, MOVED, EMPTIED, MISSING, STUCK, REMOVED };

/* A run of a batch. */
struct item {
	struct batch *batch;
	struct run run; /* its id, name, state and attempt */
	const json_t *row;
	bool begun; /* it had a folder */
	enum outcome outcome;
	int64_t bytes;
};

/* The runs that one request, or retention, removes. */
struct batch {
	struct worker_job job;
	struct pruner *pruner;
	struct reply *reply; /* NULL: retention */
	bool dry, forget;
	json_t *selected; /* {runs, next, kept}, of record_prunable */
	struct item *item;
	size_t n, at;               /* at: the one that the worker has */
	int64_t deletions;          /* still at the store */
	int64_t ended;              /* of the pruner, when the batch began */
	char why[RUN_REASON_BYTES]; /* the first run that cannot be removed */
};

struct pruner {
	struct prune_options options;
	struct event *timer;
	struct batch *batch;        /* the batch being removed; NULL: none */
	struct worker_job leftover; /* trash from before the start */

	struct clock_trust clock;
	bool doubt_logged;
	int64_t after; /* retention continues above this id */
	int64_t ended; /* runs that ended since retention was last complete */
	bool soon;     /* the timer is set for a run that has ended */
	char missing[PATH_MAX], missing_logged[PATH_MAX]; /* the last run without a folder */
};

static void advance(struct batch *b);

static void arm(struct pruner *p, int seconds)
{
	const struct timeval t = {.tv_sec = seconds};

	evtimer_add(p->timer, &t);
}

/* Measurements are not disturbed, unless the engines are never idle. */
static bool must_wait(const struct pruner *p)
{
	return p->ended < ENDED_MAX && p->options.busy(p->options.arg);
}

/* ---- the end of a batch ---- */

static void free_batch(struct batch *b)
{
	if (b->pruner->batch == b)
		b->pruner->batch = NULL;
	json_decref(b->selected);
	free(b->item);
	free(b);
}

/* Some members of a run, {id, name, ...}. */
static json_t *part_of(const json_t *row, const char *const *keys)
{
	json_t *part = json_object();

	for (; *keys != NULL; keys++)
		json_object_set(part, *keys, json_object_get(row, *keys));
	return part;
}

static void reply_batch(struct batch *b)
{
	static const char *const of_removed[] = {"id", "name", "state", "ended_at", NULL};
	static const char *const of_missing[] = {"id", "name", "dir", NULL};
	json_t *removed = json_array(), *missing = json_array(), *row;
	int64_t bytes = 0, stuck = 0;

	for (size_t i = 0; i < b->n; i++) {
		const struct item *item = &b->item[i];

		stuck += item->outcome == STUCK;
		if (item->outcome == MISSING)
			json_array_append_new(missing, part_of(item->row, of_missing));
		if (item->outcome != REMOVED)
			continue;
		row = part_of(item->row, of_removed);
		json_object_set_new(row, "bytes", json_integer((json_int_t)item->bytes));
		json_array_append_new(removed, row);
		bytes += item->bytes;
	}
	if (stuck > 0)
		reply_error(b->reply, PROTOCOL_STORE, NULL,
			"%s; runs that could not be removed: %lld, removed: %zu", b->why,
			(long long)stuck, json_array_size(removed));
	else
		reply_result(b->reply,
			json_pack("{sO sI sb sO sO sO}", "runs", removed, "bytes",
				(json_int_t)bytes, "dry_run", b->dry, "left", missing, "kept",
				json_object_get(b->selected, "kept"), "next",
				json_object_get(b->selected, "next")));
	json_decref(removed);
	json_decref(missing);
}

static void log_missing(struct pruner *p)
{
	if (p->missing[0] != '\0' && strcmp(p->missing, p->missing_logged) != 0)
		log_write(LOG_WARNING,
			"retain_runs, retain_days: runs without a folder stay (the last is %s): is "
			"a disk not mounted? gpt2ctl prune --forget removes their records",
			p->missing);
	memcpy(p->missing_logged, p->missing, sizeof(p->missing));
	p->missing[0] = '\0';
}

static void end_retention(struct batch *b)
{
	struct pruner *p = b->pruner;
	const bool complete = b->at == b->n;
	const int64_t next = rpc_integer(b->selected, "next", 0);

	for (size_t i = 0; i < b->n; i++)
		if (b->item[i].outcome == MISSING)
			snprintf(p->missing, sizeof(p->missing), "%s",
				json_string_value(json_object_get(b->item[i].row, "dir")));
	if (complete)
		p->after = next;
	if (complete && next == 0) { /* all runs were checked */
		p->ended -= b->ended;
		log_missing(p);
	}
	arm(p, complete && (next > 0 || p->ended > 0) ? SOON_S : PERIOD_S);
}

static void end_batch(struct batch *b)
{
	if (b->reply != NULL)
		reply_batch(b);
	else
		end_retention(b);
	free_batch(b);
}

/* ---- steps of a removal ---- */

static void keep_stuck(struct item *item, const char *why)
{
	struct batch *b = item->batch;

	item->outcome = STUCK;
	log_write(LOG_WARNING, "run %lld: %s", (long long)item->run.id, why);
	if (b->why[0] == '\0')
		snprintf(b->why, sizeof(b->why), "run %lld: %.990s", (long long)item->run.id, why);
}

/*
 * Last: removes the empty folders, which had to stay until the rows were deleted, for the next
 * start.
 */
static int remove_folders(struct worker_job *job)
{
	struct batch *b = (struct batch *)job;

	for (size_t i = 0; i < b->n; i++)
		if (b->item[i].outcome == REMOVED)
			trash_remove(b->pruner->options.state_dir, &b->item[i].run);
	return 0;
}

static void on_folders_removed(struct worker_job *job, int rc)
{
	end_batch((struct batch *)job);
}

static void on_deleted(void *arg, int rc)
{
	struct item *item = arg;
	struct batch *b = item->batch;
	const struct prune_options *o = &b->pruner->options;
	char fault[FAILURE_TEXT_BYTES], why[FAILURE_TEXT_BYTES + 64];

	if (rc < 0) {
		store_failure_text(o->store, rc, fault);
		snprintf(why, sizeof(why), "its files are removed, its record is not: %s", fault);
		keep_stuck(item, why);
	} else {
		item->outcome = REMOVED;
		o->removed(item->run.state, o->arg);
		log_write(LOG_INFO, "run %lld: removed, %lld bytes freed", (long long)item->run.id,
			(long long)item->bytes);
	}
	if (--b->deletions > 0)
		return;
	b->job = (struct worker_job){.work = remove_folders, .done = on_folders_removed};
	worker_add(o->worker, &b->job);
}

static void delete_rows(struct batch *b)
{
	b->deletions = 1;
	for (size_t i = 0; i < b->n; i++)
		if (b->item[i].outcome == EMPTIED) {
			b->deletions++;
			record_delete(b->pruner->options.store, b->item[i].run.id, on_deleted,
				&b->item[i]);
		}
	if (--b->deletions == 0)
		end_batch(b);
}

/* In the worker: removes the files of one run. */
static int remove_files(struct worker_job *job)
{
	struct batch *b = (struct batch *)job;
	struct item *item = &b->item[b->at];
	const char *state_dir = b->pruner->options.state_dir;
	int rc;

	if (item->begun && !b->forget && !trash_finds(state_dir, &item->run)) {
		item->outcome = MISSING;
		return 0;
	}
	item->bytes = trash_bytes(state_dir, &item->run);
	if (b->dry) {
		item->outcome = REMOVED;
		return 0;
	}
	rc = trash_move(state_dir, &item->run);
	if (rc == 0) {
		item->outcome = MOVED;
		rc = trash_empty(state_dir, &item->run);
	}
	if (rc == 0)
		item->outcome = EMPTIED;
	return rc;
}

static void on_files_removed(struct worker_job *job, int rc)
{
	struct batch *b = (struct batch *)job;
	struct item *item = &b->item[b->at];
	char why[PATH_MAX];

	if (rc == -ECANCELED) { /* gpt2d ends */
		delete_rows(b);
		return;
	}
	if (rc < 0) {
		snprintf(why, sizeof(why), "%.600s/%s/%lld-%s: cannot be removed: %s",
			b->pruner->options.state_dir,
			item->outcome == MOVED ? STATE_TRASH : STATE_RUNS, (long long)item->run.id,
			item->run.name, strerror(-rc));
		keep_stuck(item, why);
	}
	b->at++;
	advance(b);
}

/* Passes the next run to the worker, or all rows to the store. */
static void advance(struct batch *b)
{
	const bool wanted = b->reply ? reply_wanted(b->reply) : !must_wait(b->pruner);

	if (b->at == b->n || !wanted) {
		delete_rows(b);
		return;
	}
	b->job = (struct worker_job){.work = remove_files, .done = on_files_removed};
	worker_add(b->pruner->options.worker, &b->job);
}

/* ---- its beginning ---- */

static void take_items(struct batch *b)
{
	const json_t *runs = json_object_get(b->selected, "runs"), *row;
	size_t i;

	b->item = memory_zeroed(json_array_size(runs) + 1, sizeof(*b->item));
	json_array_foreach(runs, i, row) {
		struct item *item = &b->item[b->n];

		item->batch = b;
		item->row = row;
		item->begun = json_is_true(json_object_get(row, "begun"));
		item->run.id = rpc_integer(row, "id", 0);
		item->run.attempt = rpc_integer(row, "attempt", 1);
		snprintf(item->run.name, sizeof(item->run.name), "%s",
			json_string_value(json_object_get(row, "name")));
		run_state_parse(json_string_value(json_object_get(row, "state")), &item->run.state);
		/* a run in memory was queued again, or its end is not reported yet */
		if (queue_find(b->pruner->options.queue, item->run.id) == NULL)
			b->n++;
	}
}

static void on_selected(void *arg, int rc, json_t *result)
{
	struct batch *b = arg;

	if (rc == 0) {
		b->selected = result;
		take_items(b);
		advance(b);
		return;
	}
	if (b->reply != NULL)
		reply_unread(b->reply, b->pruner->options.store, 0, rc);
	free_batch(b);
}

static void start_batch(struct pruner *p, struct reply *reply, bool dry, bool forget,
	const struct record_prunable *what)
{
	struct batch *b = memory_zeroed(1, sizeof(*b));

	b->pruner = p;
	b->reply = reply;
	b->ended = p->ended;
	b->dry = dry;
	b->forget = forget;
	if (!dry)
		p->batch = b;
	record_prunable(p->options.store, p->options.state_dir, what, on_selected, b);
}

/* Whether a run is being removed, or may be soon. */
static bool is_pruning(const struct pruner *p, int64_t id)
{
	const struct batch *b = p->batch;

	if (b == NULL)
		return false;
	for (size_t i = 0; i < b->n; i++)
		if (b->item[i].run.id == id)
			return true;
	return b->selected == NULL;
}

/* ---- the method "prune" ---- */

static bool in_range(const json_t *params, const char *key, int64_t max)
{
	const int64_t value = rpc_integer(params, key, 0);

	return value >= 0 && value <= max;
}

/* Selects the runs of params. False: the request was refused. */
static bool take_params(struct reply *reply, const json_t *params, struct record_prunable *what)
{
	const struct client_peer *peer = reply_peer(reply);
	const char *state = json_string_value(json_object_get(params, "state"));
	const int64_t older_s = rpc_integer(params, "older_than_s", -1);
	enum run_state parsed = RUN_DONE;

	*what = (struct record_prunable){.keep = rpc_integer(params, "keep", -1),
		.ended_before_ns = older_s < 0 || older_s > PROTOCOL_OLDER_S_MAX
			? INT64_MAX
			: clock_utc_ns() - older_s * CLOCK_S_NS,
		.uid = peer->admin ? -1 : (int64_t)peer->uid,
		.state = -1,
		.after = rpc_integer(params, "after", 0),
		.limit = rpc_integer(params, "limit", BATCH_STANDARD),
		.count_kept = true};
	if (!in_range(params, "keep", INT64_MAX) || !in_range(params, "after", INT64_MAX) ||
		!in_range(params, "older_than_s", PROTOCOL_OLDER_S_MAX))
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"keep, after: 0 and above are allowed; older_than_s: 0 to %" PRId64,
			PROTOCOL_OLDER_S_MAX);
	else if (role_is_nobody(peer))
		reply_of_nobody(reply);
	else if (what->limit < 1 || what->limit > BATCH_MAX)
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "limit: 1 to %d is allowed",
			BATCH_MAX);
	else if (json_object_get(params, "keep") == NULL && state == NULL && older_s < 0)
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"prune: expected keep, older_than_s or state");
	else if (state != NULL && (run_state_parse(state, &parsed) < 0 || !run_state_ended(parsed)))
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"state: \"%.32s\" is not a final state (done, failed, "
			"cancelled, interrupted)",
			state);
	else {
		if (state != NULL)
			what->state = (int)parsed;
		return true;
	}
	return false;
}

void prune_request(struct pruner *p, struct reply *reply, json_t *params)
{
	const bool dry = json_is_true(json_object_get(params, "dry_run"));
	const bool forget = json_is_true(json_object_get(params, "forget"));
	struct record_prunable what;

	if (!take_params(reply, params, &what))
		return;
	if (!dry && p->batch != NULL)
		reply_error(reply, PROTOCOL_BUSY, NULL, "gpt2d is removing other runs");
	else
		start_batch(p, reply, dry, forget, &what);
}

/* ---- the method "keep" ---- */

struct keeping {
	struct pruner *pruner;
	struct reply *reply;
	int64_t id;
	bool kept;
};

static void on_kept(void *arg, int rc)
{
	struct keeping *k = arg;
	struct run *run = queue_find(k->pruner->options.queue, k->id);
	char why[FAILURE_TEXT_BYTES];

	store_failure_text(k->pruner->options.store, rc, why);
	if (rc == 0 && run != NULL)
		run->kept = k->kept;
	if (rc == 0)
		reply_result(
			k->reply, json_pack("{sI sb}", "id", (json_int_t)k->id, "kept", k->kept));
	else if (rc == -ENOENT)
		reply_no_run(k->reply, k->id);
	else
		reply_error(k->reply, PROTOCOL_STORE, NULL,
			"run %lld: nothing is changed: gpt2d could not store it: %s",
			(long long)k->id, why);
	free(k);
}

static void on_owner(void *arg, int rc, json_t *result)
{
	struct keeping *k = arg;
	struct store *store = k->pruner->options.store;
	uid_t owner = (uid_t)rpc_integer(json_object_get(result, "run"), "uid", 0);

	json_decref(result);
	if (rc < 0) {
		reply_unread(k->reply, store, k->id, rc);
	} else if (!role_may_change(reply_peer(k->reply), owner)) {
		reply_not_owner(k->reply, k->id, owner);
	} else if (is_pruning(k->pruner, k->id)) {
		reply_error(k->reply, PROTOCOL_BUSY, NULL, "run %lld: is being removed",
			(long long)k->id);
	} else {
		record_keep(store, k->id, k->kept, on_kept, k);
		return;
	}
	free(k);
}

void prune_keep(struct pruner *p, struct reply *reply, json_t *params)
{
	const json_t *kept = json_object_get(params, "kept");
	struct keeping *k = memory_zeroed(1, sizeof(*k));

	*k = (struct keeping){
		p, reply, rpc_integer(params, "id", 0), kept == NULL || json_is_true(kept)};
	record_show(p->options.store, p->options.state_dir, k->id, -1, 1, on_owner, k);
}

/* ---- retention ---- */

static void log_leap(const struct pruner *p)
{
	char now[CLOCK_TEXT_BYTES], then[CLOCK_TEXT_BYTES];

	clock_text(clock_utc_ns(), now);
	clock_text(p->clock.expected_ns, then);
	log_write(LOG_WARNING,
		"retain_days: the clock is at %s (expected about %s): gpt2d removes no run for its"
		" age until it has run for %d h, or the clock is back; gpt2ctl prune"
		" --older-than removes them at once",
		now, then, CLOCK_DOUBT_S / 3600);
}

/* A clock that has jumped ahead makes all runs look old. */
static bool clock_is_trusted(struct pruner *p)
{
	bool trusted;

	clock_trust_update(&p->clock, clock_boot_ns(), clock_utc_ns());
	trusted = clock_trust_has(&p->clock);
	if (p->options.settings->retain_days > 0 && !trusted && !p->doubt_logged)
		log_leap(p);
	else if (trusted && p->doubt_logged)
		log_write(LOG_INFO, "retain_days: gpt2d trusts the clock again");
	p->doubt_logged = !trusted && (p->doubt_logged || p->options.settings->retain_days > 0);
	return trusted;
}

static void on_timer(evutil_socket_t fd, short events, void *arg)
{
	struct pruner *p = arg;
	const struct settings *s = p->options.settings;
	const int64_t days = clock_is_trusted(p) ? s->retain_days : 0;
	const struct record_prunable what = {.keep = s->retain_runs > 0 ? s->retain_runs : -1,
		.ended_before_ns = days > 0 ? clock_utc_ns() - days * 86400 * CLOCK_S_NS : 0,
		.either = true,
		.uid = -1,
		.state = -1,
		.after = p->after,
		.limit = BATCH_STANDARD};

	p->soon = false;
	arm(p, PERIOD_S);
	if (p->batch != NULL || (s->retain_runs == 0 && days == 0) || must_wait(p))
		return;
	start_batch(p, NULL, false, false, &what);
}

void prune_soon(struct pruner *p)
{
	const struct settings *s = p->options.settings;

	p->ended++;
	if ((s->retain_runs == 0 && s->retain_days == 0) || p->soon)
		return; /* runs that end more often do not postpone it */
	p->soon = true;
	arm(p, SOON_S);
}

/* ---- start and end ---- */

static struct pruner *pruner_of(struct worker_job *leftover)
{
	return (struct pruner *)(void *)((char *)leftover - offsetof(struct pruner, leftover));
}

static int empty_leftover(struct worker_job *job)
{
	return trash_empty_all(pruner_of(job)->options.state_dir);
}

static void on_leftover_emptied(struct worker_job *job, int rc)
{
	const struct pruner *p = pruner_of(job);

	if (rc < 0 && rc != -ECANCELED)
		log_write(
			LOG_WARNING, "%s/" STATE_TRASH ": %s", p->options.state_dir, strerror(-rc));
}

struct pruner *prune_create(const struct prune_options *options)
{
	struct pruner *p = memory_zeroed(1, sizeof(*p));

	p->options = *options;
	p->timer = evtimer_new(options->base, on_timer, p);
	clock_trust_begin(&p->clock, options->last_change_ns, clock_boot_ns(), clock_utc_ns());
	arm(p, SOON_S);
	p->leftover = (struct worker_job){.work = empty_leftover, .done = on_leftover_emptied};
	worker_add(options->worker, &p->leftover);
	return p;
}

void prune_destroy(struct pruner *p)
{
	if (p == NULL)
		return;
	event_free(p->timer);
	free(p);
}
