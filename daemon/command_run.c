#include "daemon/command_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/queue.h>

#include "daemon/config/log.h"
#include "daemon/control/follow.h"
#include "daemon/control/reply.h"
#include "daemon/control/role.h"
#include "daemon/daemon.h"
#include "daemon/outlook.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/scheduler.h"
#include "daemon/store/record.h"
#include "daemon/store/run.h"
#include "daemon/store/store.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum { PAGE_MAX = 10000, PAGE_STANDARD = 1000 };

/* ---- show, list ---- */

struct question {
	struct daemon *daemon;
	struct reply *reply;
	int64_t id; /* 0: a list */
};

static struct question *question_create(struct daemon *d, struct reply *reply, int64_t id)
{
	struct question *q = memory_zeroed(1, sizeof(*q));

	*q = (struct question){d, reply, id};
	return q;
}

static void on_list(void *arg, int rc, json_t *result)
{
	struct question *q = arg;

	if (rc < 0)
		reply_unread(q->reply, q->daemon->store, 0, rc);
	else
		reply_result(q->reply, result);
	free(q);
}

static void on_show(void *arg, int rc, json_t *result)
{
	struct question *q = arg;
	struct daemon *d = q->daemon;
	struct run *run = queue_find(d->queue, q->id);

	if (rc < 0) {
		reply_unread(q->reply, d->store, q->id, rc);
	} else {
		json_object_set_new(result, "progress", follow_progress(d->follow, q->id));
		json_object_set_new(result, "outlook", run ? outlook_run(d, run) : json_null());
		reply_result(q->reply, result);
	}
	free(q);
}

/* False: it has its reply. */
static bool page_limit(struct reply *reply, json_t *params, int64_t *limit)
{
	*limit = rpc_integer(params, "limit", PAGE_STANDARD);
	if (*limit >= 1 && *limit <= PAGE_MAX)
		return true;
	reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "limit: %lld, 1 to %d is allowed",
		(long long)*limit, PAGE_MAX);
	return false;
}

void command_show(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = rpc_integer(params, "id", 0), limit;
	int64_t after = rpc_integer(params, "after", 0);

	if (!page_limit(reply, params, &limit))
		return;
	if (after < 0) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"after: %lld, the number of a segment or 0 is expected", (long long)after);
		return;
	}
	record_show(
		d->store, d->state_dir, id, after, limit, on_show, question_create(d, reply, id));
}

static void refuse_state(struct reply *reply, const char *name)
{
	char states[128] = "";
	size_t used = 0;

	for (int i = 0; i < RUN_STATES && used < sizeof(states); i++)
		used += (size_t)snprintf(states + used, sizeof(states) - used, "%s%s",
			i > 0 ? ", " : "", run_state_name((enum run_state)i));
	reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
		"state: \"%.32s\" is not a run's state (%s)", name, states);
}

void command_list(struct daemon *d, struct reply *reply, json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "state"));
	enum run_state state = RUN_QUEUED;
	struct record_list list = {
		.after = rpc_integer(params, "after", 0),
		.newest = json_is_true(json_object_get(params, "newest")),
		.state = -1,
	};

	if (!page_limit(reply, params, &list.limit))
		return;
	if (name != NULL && run_state_parse(name, &state) < 0) {
		refuse_state(reply, name);
		return;
	}
	if (name != NULL)
		list.state = (int)state;
	record_list(d->store, d->state_dir, &list, on_list, question_create(d, reply, 0));
}

/* ---- follow ---- */

/* A run that had already ended: the reply, and at once its last event. */
static void reply_ended(struct reply *reply, json_t *result)
{
	struct client *client = reply_client(reply);
	json_t *run = json_object_get(result, "run");

	reply_result(reply,
		json_pack("{sO sn sn sn si si}", "run", run, "progress", "outlook", "store", "seq",
			0, "first", 1));
	if (client != NULL)
		follow_ended(client, json_integer_value(json_object_get(run, "id")),
			json_pack("{sO sO sO}", "state", json_object_get(run, "state"), "reason",
				json_object_get(run, "reason"), "dir",
				json_object_get(run, "dir")));
	json_decref(result);
}

static void on_ended(void *arg, int rc, json_t *result)
{
	struct question *q = arg;

	if (rc < 0)
		reply_unread(q->reply, q->daemon->store, q->id, rc);
	else
		reply_ended(q->reply, result);
	free(q);
}

static void follow_open(struct daemon *d, struct reply *reply, struct run *run, json_t *params)
{
	int64_t seq = 0, first = 0;
	struct client *client = reply_client(reply);
	int rc = follow_add(d->follow, run->id, client, &seq, &first);

	if (rc == -EALREADY) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"run %lld: is already followed on this connection", (long long)run->id);
	} else if (rc == -E2BIG) {
		reply_error(reply, PROTOCOL_BUSY, NULL, "too many runs followed on a connection");
	} else {
		reply_result(reply,
			json_pack("{so so so so sI sI}", "run", run_json(run, d->state_dir),
				"progress", follow_progress(d->follow, run->id), "outlook",
				outlook_run(d, run), "store", store_failure_json(d->store), "seq",
				(json_int_t)seq, "first", (json_int_t)first));
		follow_replay(d->follow, run->id, client, rpc_integer(params, "after", seq));
	}
}

void command_follow(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = rpc_integer(params, "id", 0);
	struct run *run = queue_find(d->queue, id);

	if (run != NULL)
		follow_open(d, reply, run, params);
	else
		record_show(
			d->store, d->state_dir, id, -1, 1, on_ended, question_create(d, reply, id));
}

/* ---- cancel ---- */

/*
 * A client waits for the end of the run that it cancelled. The reply is sent when the run's end is
 * durable, or when the run turns out to be trained.
 */
struct cancel {
	TAILQ_ENTRY(cancel) link;
	int64_t run;
	struct reply *reply;
	bool already; /* the run was ending before */
};

static void reply_cancel(struct reply *reply, int64_t id, const char *state, bool already)
{
	reply_result(reply,
		json_pack("{sI ss sb}", "id", (json_int_t)id, "state", state, "already", already));
}

static struct cancel *find_cancel(const struct daemon *d, int64_t run)
{
	struct cancel *c;

	TAILQ_FOREACH(c, &d->cancels, link)
		if (c->run == run)
			break;
	return c;
}

static struct reply *take_cancel(struct daemon *d, struct cancel *c)
{
	struct reply *reply = c->reply;

	TAILQ_REMOVE(&d->cancels, c, link);
	free(c);
	return reply;
}

static void reply_cancels(struct daemon *d, const struct run *run)
{
	struct cancel *c;
	bool already;

	while ((c = find_cancel(d, run->id)) != NULL) {
		already = c->already || run->state != RUN_CANCELLED;
		reply_cancel(take_cancel(d, c), run->id, run_state_name(run->state), already);
	}
}

static void refuse_cancels(struct daemon *d, const struct run *run)
{
	struct store_failure failure = {0};
	struct cancel *c;

	store_failure(d->store, &failure);
	while ((c = find_cancel(d, run->id)) != NULL)
		reply_error(take_cancel(d, c), PROTOCOL_STORE, NULL,
			"run %lld: is %s, but that is not on disk: %s: %s; gpt2d retries as long"
			" as it runs",
			(long long)run->id, run_state_name(run->state), failure.path,
			store_error_text(failure.rc));
}

void command_cancel_observe(void *arg, struct run *run, enum lifecycle_event event)
{
	struct daemon *d = arg;

	if (event == LIFECYCLE_STORED && run->state >= RUN_FINISHING)
		reply_cancels(d, run);
	else if (run_state_ended(run->state) && store_failing(d->store))
		refuse_cancels(d, run);
}

static void refuse_ended(struct run *run, void *arg)
{
	if (run->end_pending)
		refuse_cancels(arg, run);
}

void command_cancel_store_fails(struct daemon *d)
{
	queue_each(d->queue, refuse_ended, d);
}

void command_cancel_drop(struct daemon *d)
{
	while (!TAILQ_EMPTY(&d->cancels))
		reply_drop(take_cancel(d, TAILQ_FIRST(&d->cancels)));
}

static void on_cancel_ended(void *arg, int rc, json_t *result)
{
	struct question *q = arg;
	struct reply *reply = q->reply;
	json_t *run = json_object_get(result, "run");
	uid_t owner = (uid_t)rpc_integer(run, "uid", 0);

	if (rc < 0)
		reply_unread(reply, q->daemon->store, q->id, rc);
	else if (!role_may_change(reply_peer(reply), owner))
		reply_not_owner(reply, q->id, owner);
	else
		reply_cancel(reply, q->id, json_string_value(json_object_get(run, "state")), true);
	json_decref(result);
	free(q);
}

static void cancel_run(struct daemon *d, struct reply *reply, struct run *run)
{
	struct cancel *c;

	if (run->state == RUN_FINISHING) {
		reply_cancel(reply, run->id, run_state_name(run->state), true);
		return;
	}
	c = memory_zeroed(1, sizeof(*c));
	*c = (struct cancel){.run = run->id, .reply = reply};
	TAILQ_INSERT_TAIL(&d->cancels, c, link);
	if (scheduler_cancel(d->scheduler, run) < 0)
		c->already = true;
	if (run->end_pending && store_failing(d->store))
		refuse_cancels(d, run);
}

void command_cancel(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = rpc_integer(params, "id", 0);
	struct run *run = queue_find(d->queue, id);

	if (run == NULL)
		record_show(d->store, d->state_dir, id, -1, 1, on_cancel_ended,
			question_create(d, reply, id));
	else if (!role_may_change(reply_peer(reply), run->uid))
		reply_not_owner(reply, id, run->uid);
	else if (run->state != RUN_QUEUED && !run->end_pending &&
		json_is_true(json_object_get(params, "queued")))
		reply_cancel(reply, id, run_state_name(run->state), true);
	else
		cancel_run(d, reply, run);
}

/* ---- priority ---- */

struct reorder {
	struct daemon *daemon;
	struct reply *reply;
	int64_t id, priority, before;
};

/* The run may have started or ended while its priority was written. */
static void on_priority(void *arg, int rc)
{
	struct reorder *r = arg;
	struct daemon *d = r->daemon;
	struct reply *reply = r->reply;
	struct run *run = queue_find(d->queue, r->id);
	char why[FAILURE_TEXT_BYTES];
	json_t *result;

	if (rc == 0 && run != NULL) {
		queue_set_priority(d->queue, run, r->priority);
		log_write(LOG_INFO, "run %lld: priority %lld, was %lld", (long long)r->id,
			(long long)r->priority, (long long)r->before);
	}
	if (rc < 0) {
		store_failure_text(d->store, rc, why);
		reply_error(reply, PROTOCOL_STORE, NULL,
			"run %lld: the priority is still %lld: gpt2d could not store the change: "
			"%s",
			(long long)r->id, (long long)r->before, why);
	} else if (run == NULL) {
		reply_error(reply, PROTOCOL_NO_SUCH_RUN, NULL,
			"run %lld: has ended; its priority has no effect", (long long)r->id);
	} else {
		result = json_pack("{sI ss ss sI sI}", "id", (json_int_t)r->id, "name", run->name,
			"state", run_state_name(run_reported(run)), "priority",
			(json_int_t)r->priority, "before", (json_int_t)r->before);
		json_object_set_new(result, "outlook", outlook_run(d, run));
		reply_result(reply, result);
	}
	free(r);
	scheduler_wake(d->scheduler);
}

static void reorder(struct daemon *d, struct reply *reply, struct run *run, int64_t priority)
{
	struct reorder *r = memory_zeroed(1, sizeof(*r));

	*r = (struct reorder){d, reply, run->id, priority, run->priority};
	record_priority(d->store, run->id, priority, on_priority, r);
}

static void refuse_rank(struct reply *reply, int64_t id, int64_t priority)
{
	char why[256];

	role_say_unranked(priority, why, sizeof(why));
	reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL, "run %lld: %s", (long long)id, why);
}

/* A run that has ended, or is unknown. */
static void on_not_queued(void *arg, int rc, json_t *result)
{
	struct question *q = arg;
	const char *state =
		json_string_value(json_object_get(json_object_get(result, "run"), "state"));

	if (rc < 0)
		reply_unread(q->reply, q->daemon->store, q->id, rc);
	else
		reply_error(q->reply, PROTOCOL_WRONG_STATE, NULL,
			"run %lld: is %s, only a queued run can be moved; see: "
			"gpt2ctl list --state queued",
			(long long)q->id, state);
	json_decref(result);
	free(q);
}

void command_priority(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = json_integer_value(json_object_get(params, "id"));
	int64_t priority = json_integer_value(json_object_get(params, "priority"));
	struct run *run = queue_find(d->queue, id);

	if (priority < -PROTOCOL_PRIORITY_MAX || priority > PROTOCOL_PRIORITY_MAX)
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"priority: %lld, %d to %d is allowed", (long long)priority,
			-PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX);
	else if (run == NULL)
		record_show(d->store, d->state_dir, id, -1, 1, on_not_queued,
			question_create(d, reply, id));
	else if (!role_may_change(reply_peer(reply), run->uid))
		reply_not_owner(reply, id, run->uid);
	else if (run->state != RUN_QUEUED)
		reply_error(reply, PROTOCOL_WRONG_STATE, NULL,
			"run %lld: is %s, only a queued run can be moved", (long long)id,
			run->end_pending ? "ending" : run_state_name(run->state));
	else if (role_may_rank(reply_peer(reply), priority, run->priority))
		reorder(d, reply, run, priority);
	else
		refuse_rank(reply, id, priority);
}
