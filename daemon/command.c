#include "daemon/command.h"

#include <event2/event.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "daemon/runs/artifacts.h"
#include "daemon/engines/checker.h"
#include "daemon/config/clock.h"
#include "daemon/command_hold.h"
#include "daemon/command_run.h"
#include "daemon/control/control.h"
#include "daemon/daemon.h"
#include "daemon/shutdown.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/engines/engine_program.h"
#include "daemon/store/failure.h"
#include "daemon/control/follow.h"
#include "daemon/runs/hold.h"
#include "daemon/openmetrics.h"
#include "daemon/outlook.h"
#include "daemon/runs/prune.h"
#include "daemon/runs/queue.h"
#include "daemon/control/request.h"
#include "daemon/control/role.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"
#include "daemon/runs/submit.h"
#include "daemon/runs/usage.h"
#include "proto/host/procfs.h"
#include "proto/protocol.h"
#include "proto/suggest.h"
#include "proto/version.h"

enum { ARGS_MAX = 8 };

enum arg_type { ARG_INTEGER, ARG_TEXT, ARG_BOOL };

struct arg {
	const char *name;
	enum arg_type type;
	bool required;
};

struct verb {
	const char *name;
	void (*handle)(struct daemon *d, struct reply *reply, json_t *params);
	enum role role;
	struct arg args[ARGS_MAX];
	const char *help;
};

/* ---- hello, version ---- */

static void do_hello(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t protocol = request_integer(params, "protocol", 0);
	const char *build = json_string_value(json_object_get(params, "build"));
	char theirs[400], ours[400];

	procfs_describe(reply_peer(reply)->pid, theirs, sizeof(theirs));
	procfs_describe(getpid(), ours, sizeof(ours));
	if (protocol != PROTOCOL_VERSION) {
		reply_error_and_close(reply, PROTOCOL_VERSION_MISMATCH, NULL,
			"client speaks protocol %lld, gpt2d %s speaks %d (client: %s; gpt2d: %s)",
			(long long)protocol, version_build, PROTOCOL_VERSION, theirs, ours);
		return;
	}
	if (build != NULL && strcmp(build, version_build) != 0) {
		reply_error_and_close(reply, PROTOCOL_VERSION_MISMATCH, NULL,
			"client is build %.64s, gpt2d is build %s (client: %s; gpt2d: %s):"
			" restart gpt2d, or call the gpt2ctl of its build",
			build, version_build, theirs, ours);
		return;
	}
	client_set_greeted(reply_client(reply));
	reply_result(reply,
		json_pack("{si ss ss sI so sI ss sI sI}", "protocol", PROTOCOL_VERSION, "build",
			version_build, "version", VERSION_RELEASE, "pid", (json_int_t)getpid(),
			"started_at", clock_json(d->started_utc_ns), "uid", (json_int_t)geteuid(),
			"engine", d->program->path, "ranks", (json_int_t)d->settings->ranks,
			"cancel_timeout_s", (json_int_t)d->settings->cancel_timeout_s));
}

static void do_version(struct daemon *d, struct reply *reply, json_t *params)
{
	reply_result(reply,
		json_pack("{si ss ss s{ss ss ss}}", "protocol", PROTOCOL_VERSION, "build",
			version_build, "version", VERSION_RELEASE, "libraries", "libevent",
			event_get_version(), "jansson", jansson_version_str(), "sqlite3",
			sqlite3_libversion()));
}

/* ---- submit, dry-run ---- */

static void do_submit(struct daemon *d, struct reply *reply, json_t *params)
{
	submit_request(d->submitter, reply, params, false);
}

static void do_dry_run(struct daemon *d, struct reply *reply, json_t *params)
{
	submit_request(d->submitter, reply, params, true);
}

void command_queued(void *arg, struct reply *reply, struct run *run)
{
	struct daemon *d = arg;
	json_t *outlook = outlook_run(d, run);

	reply_result(reply,
		json_pack("{sI ss ss ss sI sI sO}", "id", (json_int_t)run->id, "name", run->name,
			"state", run_state_name(run->state), "spec_sha256", run->spec_sha256,
			"segments", (json_int_t)run->segments, "position",
			(json_int_t)queue_before(d->queue, run), "waiting",
			json_object_get(outlook, "waiting")));
	json_decref(outlook);
	scheduler_wake(d->scheduler);
}

/* ---- status ---- */

static const char *daemon_state(const struct daemon *d)
{
	if (d->stopping)
		return "stopping";
	if (hold_is_set(d->holds, HOLD_RELEASED))
		return "released";
	return hold_is_set(d->holds, HOLD_DRAINED) ? "drained" : "running";
}

static json_t *daemon_json(const struct daemon *d)
{
	json_t *daemon = json_pack("{sI sI ss ss ss sf ss ss sI}", "pid", (json_int_t)getpid(),
		"uid", (json_int_t)geteuid(), "version", VERSION_RELEASE, "build", version_build,
		"state", daemon_state(d), "uptime_s",
		(double)(clock_mono_ns() - d->started_ns) / 1e9, "socket", d->socket, "state_dir",
		d->state_dir, "clients", (json_int_t)control_clients(d->control));

	usage_add(daemon, getpid());
	return daemon;
}

static json_t *engine_json(const struct daemon *d)
{
	const struct engine_program *p = d->program;
	json_t *engine = engine_pool_json(d->pool), *rank;
	size_t i;

	json_array_foreach(json_object_get(engine, "ranks"), i, rank)
		usage_add(rank, (pid_t)json_integer_value(json_object_get(rank, "pid")));
	json_object_set_new(engine, "device", json_string(engine_program_device_name(p->device)));
	json_object_set_new(engine, "device_why", p->why[0] ? json_string(p->why) : json_null());
	json_object_set_new(engine, "idle", scheduler_idle_json(d->scheduler));
	return engine;
}

json_t *command_status(const struct daemon *d)
{
	struct run *run = scheduler_running(d->scheduler);
	json_t *counts = json_object(), *running = json_null();

	for (int i = 0; i < RUN_STATES; i++)
		json_object_set_new(
			counts, run_state_name((enum run_state)i), json_integer(d->counts[i]));
	if (run != NULL)
		running = json_pack("{so so ss?}", "run", run_json(run, d->state_dir), "progress",
			follow_progress(d->follow, run->id), "stopping",
			scheduler_stop_reason(d->scheduler));
	return json_pack("{so so so so so so sI so so so so}", "daemon", daemon_json(d), "host",
		usage_host(), "store", store_failure_json(d->store), "engine", engine_json(d),
		"running", running, "waiting", outlook_head(d), "queued",
		(json_int_t)queue_length(d->queue), "queue", outlook_queue(d), "drained",
		hold_json(d->holds, HOLD_DRAINED), "released", hold_json(d->holds, HOLD_RELEASED),
		"counts", counts);
}

static void do_status(struct daemon *d, struct reply *reply, json_t *params)
{
	reply_result(reply, command_status(d));
}

/* ---- logs ---- */

static void do_logs(struct daemon *d, struct reply *reply, json_t *params)
{
	run_log_request(d->run_log, reply, params);
}

/* ---- shutdown ---- */

static void do_shutdown(struct daemon *d, struct reply *reply, json_t *params)
{
	const bool now = json_is_true(json_object_get(params, "now"));
	struct run *run = scheduler_running(d->scheduler);

	reply_result(reply,
		json_pack("{so sb}", "running", run ? json_integer(run->id) : json_null(),
			"stopping", run && (now || scheduler_stop_reason(d->scheduler) != NULL)));
	shutdown_begin(d, now);
}

/* ---- metrics ---- */

static void do_metrics(struct daemon *d, struct reply *reply, json_t *params)
{
	openmetrics_request(d->openmetrics, reply, params);
}

/* ---- artifacts ---- */

static struct artifacts_options artifacts_options(const struct daemon *d)
{
	return (struct artifacts_options){.store = d->store,
		.worker = d->worker,
		.queue = d->queue,
		.state_dir = d->state_dir};
}

static void do_artifacts(struct daemon *d, struct reply *reply, json_t *params)
{
	const struct artifacts_options options = artifacts_options(d);

	artifacts_list(&options, reply, params);
}

static void do_artifact_read(struct daemon *d, struct reply *reply, json_t *params)
{
	const struct artifacts_options options = artifacts_options(d);

	artifacts_read(&options, reply, params);
}

/* ---- prune, keep ---- */

static void do_prune(struct daemon *d, struct reply *reply, json_t *params)
{
	prune_request(d->pruner, reply, params);
}

static void do_keep(struct daemon *d, struct reply *reply, json_t *params)
{
	prune_keep(d->pruner, reply, params);
}

/*
 * ---- the table ----
 *
 * A new command needs: its name and a comment in proto/protocol.h, its members in proto/schema, a
 * row here, a function for the row, and an example in proto/gpt2d-protocol.7.in.
 */

static const struct verb verbs[] = {
	{METHOD_HELLO, do_hello, ROLE_ANYBODY,
		{{"protocol", ARG_INTEGER, true}, {"build", ARG_TEXT, false},
			{"client", ARG_TEXT, false}},
		"say who one is; the first request of a connection"},
	{METHOD_SUBMIT, do_submit, ROLE_ANYBODY,
		{{"spec", ARG_TEXT, true}, {"priority", ARG_INTEGER, false},
			{"rerun_of", ARG_INTEGER, false}},
		"queue a run"},
	{METHOD_DRY_RUN, do_dry_run, ROLE_ANYBODY, {{"spec", ARG_TEXT, true}},
		"resolve and check a spec, queue nothing"},
	{METHOD_STATUS, do_status, ROLE_ANYBODY, {{0}}, "daemon, engines, running run, queue"},
	{METHOD_SHOW, command_show, ROLE_ANYBODY,
		{{"id", ARG_INTEGER, true}, {"after", ARG_INTEGER, false},
			{"limit", ARG_INTEGER, false}},
		"a run with its spec, checks, segments and transitions"},
	{METHOD_LIST, command_list, ROLE_ANYBODY,
		{{"after", ARG_INTEGER, false}, {"limit", ARG_INTEGER, false},
			{"state", ARG_TEXT, false}, {"newest", ARG_BOOL, false}},
		"runs by id"},
	{METHOD_FOLLOW, command_follow, ROLE_ANYBODY,
		{{"id", ARG_INTEGER, true}, {"after", ARG_INTEGER, false}},
		"the events of a run until it ends"},
	{METHOD_ARTIFACTS, do_artifacts, ROLE_ANYBODY,
		{{"id", ARG_INTEGER, true}, {"segment", ARG_INTEGER, false},
			{"after", ARG_INTEGER, false}, {"limit", ARG_INTEGER, false}},
		"the files of a run, with their hashes"},
	{METHOD_ARTIFACT_READ, do_artifact_read, ROLE_ANYBODY,
		{{"id", ARG_INTEGER, true}, {"path", ARG_TEXT, true},
			{"offset", ARG_INTEGER, false}, {"bytes", ARG_INTEGER, false}},
		"a piece of a file of a run"},
	{METHOD_LOGS, do_logs, ROLE_ANYBODY,
		{{"id", ARG_INTEGER, false}, {"after", ARG_INTEGER, false},
			{"limit", ARG_INTEGER, false}, {"level", ARG_TEXT, false}},
		"what engines and gpt2d said of a run, or gpt2d of itself"},
	{METHOD_METRICS, do_metrics, ROLE_ANYBODY, {{0}}, "figures for a monitoring system"},
	{METHOD_PRUNE, do_prune, ROLE_OWNER,
		{{"keep", ARG_INTEGER, false}, {"older_than_s", ARG_INTEGER, false},
			{"state", ARG_TEXT, false}, {"dry_run", ARG_BOOL, false},
			{"forget", ARG_BOOL, false}, {"after", ARG_INTEGER, false},
			{"limit", ARG_INTEGER, false}},
		"remove runs that have ended, with their files"},
	{METHOD_KEEP, do_keep, ROLE_OWNER, {{"id", ARG_INTEGER, true}, {"kept", ARG_BOOL, false}},
		"have a run left alone by prune, or not any more"},
	{METHOD_CANCEL, command_cancel, ROLE_OWNER,
		{{"id", ARG_INTEGER, true}, {"queued", ARG_BOOL, false}}, "end a run"},
	{METHOD_PRIORITY, command_priority, ROLE_OWNER,
		{{"id", ARG_INTEGER, true}, {"priority", ARG_INTEGER, true}}, "move a queued run"},
	{METHOD_DRAIN, command_drain, ROLE_ADMIN,
		{{"reason", ARG_TEXT, false}, {"wait", ARG_BOOL, false}}, "start no more runs"},
	{METHOD_RESUME, command_resume, ROLE_ADMIN, {{0}}, "start runs again"},
	{METHOD_RELEASE, command_release, ROLE_ADMIN,
		{{"reason", ARG_TEXT, false}, {"wait", ARG_BOOL, false}, {"now", ARG_BOOL, false}},
		"end the engines, keep the queue"},
	{METHOD_WARM, command_warm, ROLE_ADMIN, {{"wait", ARG_BOOL, false}},
		"take the engines again"},
	{METHOD_SHUTDOWN, do_shutdown, ROLE_ADMIN, {{"now", ARG_BOOL, false}},
		"end gpt2d, after the running run or now"},
	{METHOD_VERSION, do_version, ROLE_ANYBODY, {{0}}, "versions of gpt2d and its libraries"},
};

enum { VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static bool fits(enum arg_type type, const json_t *value, const char **expected)
{
	switch (type) {
	case ARG_INTEGER:
		*expected = "an integer";
		return json_is_integer(value);
	case ARG_TEXT:
		*expected = "a string";
		return json_is_string(value);
	case ARG_BOOL:
		*expected = "true or false";
		return json_is_boolean(value);
	}
	return false;
}

/* Every parameter known, of its type, and the required ones there: whether. Else it is answered. */
static bool check_args(const struct verb *verb, struct reply *reply, json_t *params)
{
	const char *key, *expected = "", *names[ARGS_MAX], *nearest;
	size_t n = 0;
	json_t *value;

	for (; n < ARGS_MAX && verb->args[n].name; n++) {
		names[n] = verb->args[n].name;
		value = json_object_get(params, names[n]);
		if (value ? !fits(verb->args[n].type, value, &expected) : verb->args[n].required) {
			reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "%s: %s: %s%s",
				verb->name, names[n], value ? expected : "is missing",
				value ? " is expected" : "");
			return false;
		}
	}
	json_object_foreach(params, key, value) {
		size_t i = 0;

		while (i < n && strcmp(names[i], key) != 0)
			i++;
		if (i < n)
			continue;
		nearest = suggest_nearest(key, names, n);
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"%s: %.64s: no such parameter%s%s", verb->name, key,
			nearest ? ", the nearest is " : "", nearest ? nearest : "");
		return false;
	}
	return true;
}

static void unknown_verb(struct reply *reply, const char *method)
{
	const char *names[VERBS], *nearest;

	for (size_t i = 0; i < VERBS; i++)
		names[i] = verbs[i].name;
	nearest = suggest_nearest(method, names, VERBS);
	reply_error(reply, PROTOCOL_METHOD_NOT_FOUND, NULL, "%.64s: no such method%s%s", method,
		nearest ? ", the nearest is " : "", nearest ? nearest : "");
}

void command_handle(struct daemon *d, struct reply *reply, const struct rpc_message *message)
{
	struct client *client = reply_client(reply);
	const struct verb *verb = NULL;

	for (size_t i = 0; i < VERBS; i++)
		if (strcmp(verbs[i].name, message->method) == 0)
			verb = &verbs[i];
	if (!client_greeted(client) && (verb == NULL || verb->handle != do_hello))
		reply_error_and_close(reply, PROTOCOL_INVALID_REQUEST, NULL, "%s is expected first",
			METHOD_HELLO);
	else if (verb == NULL)
		unknown_verb(reply, message->method);
	else if (!role_may_ask(reply_peer(reply), verb->role))
		reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
			"%s: only root, the user of gpt2d (uid %u) and members of admin_group may",
			verb->name, (unsigned)geteuid());
	else if (check_args(verb, reply, message->params))
		verb->handle(d, reply, message->params);
}
