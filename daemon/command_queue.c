#include "daemon/command_queue.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/control/reply.h"
#include "daemon/daemon.h"
#include "daemon/store/failure.h"
#include "daemon/runs/hold.h"
#include "daemon/config/log.h"
#include "daemon/runs/outlook.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/store/record_hold.h"
#include "daemon/control/request.h"
#include "daemon/control/role.h"
#include "daemon/runs/scheduler.h"
#include "proto/protocol.h"

/* ---- drain, resume, release, warm ---- */

/* True when it may; else it has been answered. */
static bool check_reason(struct reply *reply, const char *verb, const struct hold_request *request)
{
	const size_t max = sizeof(((struct record_hold *)0)->reason) - 1;

	if (request->reason != NULL && strlen(request->reason) > max) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"%s: reason: %zu bytes, at most %zu are kept; say it shorter", verb,
			strlen(request->reason), max);
		return false;
	}
	return true;
}

static struct hold_request request_of(enum hold hold, json_t *params)
{
	const char *reason = json_string_value(json_object_get(params, "reason"));

	return (struct hold_request){
		.hold = hold,
		.reason = reason,
		.now = json_is_true(json_object_get(params, "now")),
		.wait = json_is_true(json_object_get(params, "wait")),
	};
}

void command_drain(struct daemon *d, struct reply *reply, json_t *params)
{
	struct hold_request request = request_of(HOLD_DRAINED, params);

	if (check_reason(reply, METHOD_DRAIN, &request))
		hold_place(d->holds, &request, reply);
}

void command_resume(struct daemon *d, struct reply *reply, json_t *params)
{
	struct hold_request request = request_of(HOLD_DRAINED, params);

	if (check_reason(reply, METHOD_RESUME, &request))
		hold_lift(d->holds, &request, reply);
}

void command_release(struct daemon *d, struct reply *reply, json_t *params)
{
	struct hold_request request = request_of(HOLD_RELEASED, params);

	if (check_reason(reply, METHOD_RELEASE, &request))
		hold_place(d->holds, &request, reply);
}

void command_warm(struct daemon *d, struct reply *reply, json_t *params)
{
	struct hold_request request = request_of(HOLD_RELEASED, params);

	if (check_reason(reply, METHOD_WARM, &request))
		hold_lift(d->holds, &request, reply);
}

/* ---- priority ---- */

struct reorder {
	struct daemon *daemon;
	struct reply *reply;
	int64_t id, priority, before;
};

/* The run may have begun while it was written: then it is said so, and nothing else happens. */
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
		failure_text(d->store, rc, why);
		reply_error(reply, PROTOCOL_STORE, NULL,
			"run %lld: the priority is %lld as before, it could not be stored: %s",
			(long long)r->id, (long long)r->before, why);
	} else if (run == NULL) {
		reply_error(reply, PROTOCOL_NO_SUCH_RUN, NULL,
			"run %lld: has ended meanwhile; its priority is of no more use",
			(long long)r->id);
	} else {
		result = json_pack("{sI ss ss sI sI}", "id", (json_int_t)r->id, "name", run->name,
			"state", run_state_name(run_told(run)), "priority", (json_int_t)r->priority,
			"before", (json_int_t)r->before);
		json_object_set_new(result, "outlook", outlook_run(d, run));
		reply_result(reply, result);
	}
	free(r);
	scheduler_wake(d->scheduler);
}

static void reorder(struct daemon *d, struct reply *reply, struct run *run, int64_t priority)
{
	struct reorder *r = malloc(sizeof(*r));

	if (r != NULL) {
		*r = (struct reorder){d, reply, run->id, priority, run->priority};
		if (record_priority(d->store, run->id, priority, on_priority, r) == 0)
			return;
	}
	free(r);
	reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
}

static void refuse_rank(struct reply *reply, int64_t id, int64_t priority)
{
	char why[256];

	role_say_unranked(priority, why, sizeof(why));
	reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL, "run %lld: %s", (long long)id, why);
}

/* A run that has ended, or never was. */
static void on_not_queued(void *arg, int rc, json_t *result)
{
	struct reorder *r = arg;
	const char *state =
		json_string_value(json_object_get(json_object_get(result, "run"), "state"));

	if (rc < 0)
		request_unread(r->reply, r->daemon->store, r->id, rc);
	else
		reply_error(r->reply, PROTOCOL_WRONG_STATE, NULL,
			"run %lld: is %s, only a queued run has a place to change; those that are: "
			"gpt2ctl list --state queued",
			(long long)r->id, state);
	json_decref(result);
	free(r);
}

static void look_for(struct daemon *d, struct reply *reply, int64_t id)
{
	struct reorder *r = malloc(sizeof(*r));

	if (r != NULL) {
		*r = (struct reorder){d, reply, id, 0, 0};
		if (record_show(d->store, d->state_dir, id, -1, 1, on_not_queued, r) == 0)
			return;
	}
	free(r);
	reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
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
		look_for(d, reply, id);
	else if (!role_may_change(reply_peer(reply), run->uid))
		request_not_owner(reply, id, run->uid);
	else if (run->state != RUN_QUEUED)
		reply_error(reply, PROTOCOL_WRONG_STATE, NULL,
			"run %lld: is %s, only a queued run has a place to change", (long long)id,
			run->unstored ? "ending" : run_state_name(run->state));
	else if (role_may_rank(reply_peer(reply), priority, run->priority))
		reorder(d, reply, run, priority);
	else
		refuse_rank(reply, id, priority);
}
