#include "daemon/command_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runs/cancel.h"
#include "daemon/control/reply.h"
#include "daemon/daemon.h"
#include "daemon/store/failure.h"
#include "daemon/control/follow.h"
#include "daemon/runs/outlook.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/control/request.h"
#include "daemon/control/role.h"
#include "daemon/store/run.h"
#include "daemon/store/store.h"
#include "daemon/store/unstored.h"
#include "proto/json_text.h"
#include "proto/protocol.h"

enum { PAGE_MAX = 10000, PAGE_STANDARD = 1000 };

/* ---- show, list ---- */

struct question {
	struct daemon *daemon;
	struct reply *reply;
	int64_t id;
	bool follow;
	int state; /* of a list: enum run_state, or -1: all */
};

static struct question *question_create(struct daemon *d, struct reply *reply, int64_t id)
{
	struct question *q = calloc(1, sizeof(*q));

	if (q != NULL)
		*q = (struct question){d, reply, id, false, -1};
	return q;
}

/* A run that had ended before: the reply, and at once its last event. */
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

static void on_result(void *arg, int rc, json_t *result)
{
	struct question *q = arg;
	struct daemon *d = q->daemon;
	struct reply *reply = q->reply;
	struct run *run;

	if (rc < 0)
		request_unread(reply, q->daemon->store, q->id, rc);
	else if (q->follow)
		reply_ended(reply, result);
	else {
		if (q->id)
			unstored_show(d, result);
		else
			unstored_list(d, result, q->state);
		run = q->id ? queue_find(d->queue, q->id) : NULL;
		if (q->id)
			json_object_set_new(
				result, "progress", follow_progress(d->follow, q->id));
		if (q->id)
			json_object_set_new(
				result, "outlook", run ? outlook_run(d, run) : json_null());
		reply_result(reply, result);
	}
	free(q);
}

/* False: it has been answered. */
static bool page_limit(struct reply *reply, json_t *params, int64_t *limit)
{
	*limit = request_integer(params, "limit", PAGE_STANDARD);
	if (*limit >= 1 && *limit <= PAGE_MAX)
		return true;
	reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "limit: %lld, 1 to %d is allowed",
		(long long)*limit, PAGE_MAX);
	return false;
}

void command_show(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = request_integer(params, "id", 0), limit;
	int64_t after = request_integer(params, "after", -1);
	struct question *q;

	if (!page_limit(reply, params, &limit))
		return;
	if (after < -1) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"after: %lld, a segment's number or -1 is expected", (long long)after);
		return;
	}
	q = question_create(d, reply, id);
	if (q == NULL || record_show(d->store, d->state_dir, id, after, limit, on_result, q) < 0) {
		free(q);
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
	}
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

/* The runs in memory, those in a state and the others: JSON arrays of ids. */
struct sorted {
	enum run_state state;
	json_t *in, *out;
};

static void sort_run(struct run *run, void *arg)
{
	struct sorted *s = arg;

	json_array_append_new(run_told(run) == s->state ? s->in : s->out, json_integer(run->id));
}

/* In memory it is known what is not stored while the store cannot be written. */
static int ask_list(struct daemon *d, struct record_list *list, struct question *q)
{
	struct sorted s = {(enum run_state)list->state, json_array(), json_array()};
	char *also, *except;
	int rc;

	if (list->state >= 0 && store_failing(d->store))
		queue_each(d->queue, sort_run, &s);
	list->also = also = json_text_write(s.in, JSON_COMPACT, NULL);
	list->except = except = json_text_write(s.out, JSON_COMPACT, NULL);
	rc = also && except ? record_list(d->store, d->state_dir, list, on_result, q) : -ENOMEM;
	free(also);
	free(except);
	json_decref(s.in);
	json_decref(s.out);
	return rc;
}

void command_list(struct daemon *d, struct reply *reply, json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "state"));
	struct question *q;
	enum run_state state = RUN_QUEUED;
	struct record_list list = {
		.after = request_integer(params, "after", 0),
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
	q = question_create(d, reply, 0);
	if (q != NULL)
		q->state = list.state;
	if (q == NULL || ask_list(d, &list, q) < 0) {
		free(q);
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
	}
}

/* ---- follow ---- */

static void follow_open(struct daemon *d, struct reply *reply, struct run *run, json_t *params)
{
	int64_t seq = 0, first = 0;
	struct client *client = reply_client(reply);
	int rc = follow_add(d->follow, run->id, client, &seq, &first);

	if (rc == -EALREADY) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"run %lld: is followed already on this connection", (long long)run->id);
	} else if (rc == -E2BIG) {
		reply_error(reply, PROTOCOL_BUSY, NULL, "too many runs followed on a connection");
	} else {
		reply_result(reply,
			json_pack("{so so so so sI sI}", "run", run_json(run, d->state_dir),
				"progress", follow_progress(d->follow, run->id), "outlook",
				outlook_run(d, run), "store", failure_json(d->store), "seq",
				(json_int_t)seq, "first", (json_int_t)first));
		follow_replay(d->follow, run->id, client, request_integer(params, "after", seq));
	}
}

void command_follow(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = request_integer(params, "id", 0);
	struct run *run = queue_find(d->queue, id);
	struct question *q;

	if (run != NULL) {
		follow_open(d, reply, run, params);
		return;
	}
	q = question_create(d, reply, id);
	if (q != NULL)
		q->follow = true;
	if (q == NULL || record_show(d->store, d->state_dir, id, -1, 1, on_result, q) < 0) {
		free(q);
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
	}
}

/* ---- cancel ---- */

static void reply_cancel(struct reply *reply, int64_t id, const char *state, bool already)
{
	reply_result(reply,
		json_pack("{sI ss sb}", "id", (json_int_t)id, "state", state, "already", already));
}

static void on_cancel_ended(void *arg, int rc, json_t *result)
{
	struct question *q = arg;
	struct reply *reply = q->reply;
	json_t *run = json_object_get(result, "run");
	uid_t owner = (uid_t)request_integer(run, "uid", 0);

	if (rc < 0)
		request_unread(reply, q->daemon->store, q->id, rc);
	else if (!role_may_change(reply_peer(reply), owner))
		request_not_owner(reply, q->id, owner);
	else
		reply_cancel(reply, q->id, json_string_value(json_object_get(run, "state")), true);
	json_decref(result);
	free(q);
}

void command_cancel(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t id = request_integer(params, "id", 0);
	struct run *run = queue_find(d->queue, id);
	struct question *q;

	if (run == NULL) {
		q = question_create(d, reply, id);
		if (q == NULL ||
			record_show(d->store, d->state_dir, id, -1, 1, on_cancel_ended, q) < 0) {
			free(q);
			reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
		}
	} else if (!role_may_change(reply_peer(reply), run->uid)) {
		request_not_owner(reply, id, run->uid);
	} else if (run->state != RUN_QUEUED && !run->unstored &&
		json_is_true(json_object_get(params, "queued"))) {
		reply_cancel(reply, id, run_state_name(run->state), true);
	} else {
		cancel_begin(d, reply, run);
	}
}
