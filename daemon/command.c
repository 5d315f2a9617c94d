#include "daemon/command.h"

#include <event2/event.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/runs/artifacts.h"
#include "daemon/engines/checker.h"
#include "proto/host/clock.h"
#include "daemon/command_hold.h"
#include "daemon/command_run.h"
#include "daemon/control/control.h"
#include "daemon/daemon.h"
#include "daemon/shutdown.h"
#include "daemon/nodes/world.h"
#include "daemon/engines/engine_program.h"
#include "daemon/control/follow.h"
#include "daemon/runs/generation.h"
#include "daemon/runs/hold.h"
#include "daemon/metrics.h"
#include "daemon/outlook.h"
#include "daemon/runs/prune.h"
#include "daemon/runs/queue.h"
#include "daemon/control/role.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"
#include "daemon/runs/submit.h"
#include "proto/host/cgroup.h"
#include "proto/host/procfs.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/schema/schema.h"
#include "proto/suggest.h"
#include "proto/text.h"
#include "proto/version.h"

enum { MEMBERS_MAX = 8 };

struct verb {
	const char *name;
	void (*handle)(struct daemon *d, struct reply *reply, json_t *params);
	enum role role;
	bool member; /* a member of several nodes also serves it */
};

/* ---- hello, version ---- */

static void do_hello(struct daemon *d, struct reply *reply, json_t *params)
{
	int64_t protocol = rpc_integer(params, "protocol", 0);
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
			"engine", d->program->path, "ranks",
			(json_int_t)settings_world(d->settings), "cancel_timeout_s",
			(json_int_t)d->settings->cancel_timeout_s));
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
			json_integer_value(json_object_get(outlook, "position")), "waiting",
			json_object_get(outlook, "waiting")));
	json_decref(outlook);
	scheduler_wake(d->scheduler);
}

/* ---- status ---- */

/* Field 3 and following of proc(5): the name before may contain blanks and parentheses. */
static const char *after_name(const char *stat)
{
	const char *end = strrchr(stat, ')');

	return end ? end + 1 : NULL;
}

static int read_stat(pid_t pid, double *cpu_s, int64_t *rss_bytes)
{
	char path[64], line[1024] = "";
	const char *rest;
	uint64_t user, kernel;
	int64_t pages;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	f = fopen(path, "re");
	if (f == NULL)
		return -1;
	rest = fgets(line, sizeof(line), f) ? after_name(line) : NULL;
	fclose(f);
	if (rest == NULL ||
		sscanf(rest,
			" %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64
			" %*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64,
			&user, &kernel, &pages) != 3)
		return -1;
	*cpu_s = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
	*rss_bytes = pages * sysconf(_SC_PAGESIZE);
	return 0;
}

/* Adds cpu_s, of all threads of the process, and rss_bytes; null: the process does not exist. */
static void add_usage(json_t *object, pid_t pid)
{
	double cpu_s = 0.0;
	int64_t rss_bytes = 0;
	const int rc = pid > 0 ? read_stat(pid, &cpu_s, &rss_bytes) : -1;

	json_object_set_new(object, "cpu_s", rc == 0 ? json_real(cpu_s) : json_null());
	json_object_set_new(
		object, "rss_bytes", rc == 0 ? json_integer((json_int_t)rss_bytes) : json_null());
}

/* A row of /proc/meminfo in bytes, or null. */
static json_t *meminfo(const char *name)
{
	char line[256];
	int64_t kib;
	json_t *value = NULL;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && !value && fgets(line, sizeof(line), f))
		if (strncmp(line, name, strlen(name)) == 0 &&
			sscanf(line + strlen(name), ": %" SCNd64, &kib) == 1)
			value = json_integer((json_int_t)kib * 1024);
	if (f)
		fclose(f);
	return value ? value : json_null();
}

static json_t *host_json(void)
{
	struct cgroup_memory group;
	double load;

	return json_pack("{sI so so so so}", "processors",
		(json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "load_1m",
		getloadavg(&load, 1) == 1 ? json_real(load) : json_null(), "memory_bytes",
		meminfo("MemTotal"), "memory_available_bytes", meminfo("MemAvailable"),
		"memory_limit_bytes",
		cgroup_memory_read("", &group) == 0 ? json_integer((json_int_t)group.limit_bytes)
						    : json_null());
}

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

	add_usage(daemon, getpid());
	return daemon;
}

/* The process that shares the GPU. Its name may have bytes that are not UTF-8. */
static void add_other(json_t *gpu)
{
	const pid_t pid = (pid_t)json_integer_value(json_object_get(gpu, "other_pid"));
	char name[32];
	uid_t uid;

	if (pid <= 0 || !procfs_owner(pid, &uid, name, sizeof(name)))
		return;
	text_clean(name);
	json_object_set_new(gpu, "other_uid", json_integer((json_int_t)uid));
	json_object_set_new(gpu, "other_command", json_string(name));
}

static json_t *engine_json(const struct daemon *d)
{
	const struct engine_program *p = d->program;
	json_t *engine = world_engine_json(d->world), *rank, *pid;
	size_t i;

	json_array_foreach(json_object_get(engine, "ranks"), i, rank) {
		/* a process ID of another node is another process on this node */
		pid = json_integer_value(json_object_get(rank, "node")) ==
				settings_node(d->settings)
			? json_object_get(rank, "pid")
			: NULL;
		add_usage(rank, (pid_t)json_integer_value(pid));
		if (pid != NULL)
			add_other(json_object_get(rank, "gpu"));
	}
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
	return json_pack("{so so so so so so so sI so so so so}", "daemon", daemon_json(d), "host",
		host_json(), "world", world_json(d->world), "store", store_failure_json(d->store),
		"engine", engine_json(d), "running", running, "waiting", outlook_head(d), "queued",
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
	metrics_request(d->metrics, reply);
}

/* ---- topo ---- */

static void do_topo(struct daemon *d, struct reply *reply, json_t *params)
{
	reply_result(reply, json_pack("{so}", "nodes", engine_pool_topology(d->pool)));
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

/* ---- checkpoint, generate ---- */

static void do_checkpoint(struct daemon *d, struct reply *reply, json_t *params)
{
	const struct checkpoints_options options = {d->store, d->worker, d->state_dir};

	checkpoints_request(&options, reply, params);
}

static void do_generate(struct daemon *d, struct reply *reply, json_t *params)
{
	const struct run *run = scheduler_running(d->scheduler);

	if (d->stopping)
		reply_error(reply, PROTOCOL_BUSY, NULL, "gpt2d is stopping");
	else
		generation_request(d->generation, reply, params, run ? run->id : 0);
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
 * A new request needs: its name and a comment in proto/protocol.h, its members in proto/schema, a
 * row here, a function for the row, and an example in proto/gpt2d-protocol.7.in.
 */

static const struct verb verbs[] = {
	{METHOD_HELLO, do_hello, ROLE_ANYBODY, true},
	{METHOD_SUBMIT, do_submit, ROLE_ANYBODY},
	{METHOD_DRY_RUN, do_dry_run, ROLE_ANYBODY},
	{METHOD_STATUS, do_status, ROLE_ANYBODY, true},
	{METHOD_SHOW, command_show, ROLE_ANYBODY},
	{METHOD_LIST, command_list, ROLE_ANYBODY},
	{METHOD_FOLLOW, command_follow, ROLE_ANYBODY},
	{METHOD_ARTIFACTS, do_artifacts, ROLE_ANYBODY},
	{METHOD_ARTIFACT_READ, do_artifact_read, ROLE_ANYBODY},
	{METHOD_CHECKPOINT, do_checkpoint, ROLE_ANYBODY},
	{METHOD_GENERATE, do_generate, ROLE_ANYBODY},
	{METHOD_LOGS, do_logs, ROLE_ANYBODY, true},
	{METHOD_METRICS, do_metrics, ROLE_ANYBODY, true},
	{METHOD_TOPO, do_topo, ROLE_ANYBODY},
	{METHOD_PRUNE, do_prune, ROLE_OWNER},
	{METHOD_KEEP, do_keep, ROLE_OWNER},
	{METHOD_CANCEL, command_cancel, ROLE_OWNER},
	{METHOD_PRIORITY, command_priority, ROLE_OWNER},
	{METHOD_DRAIN, command_drain, ROLE_ADMIN},
	{METHOD_RESUME, command_resume, ROLE_ADMIN},
	{METHOD_RELEASE, command_release, ROLE_MEMBER},
	{METHOD_WARM, command_warm, ROLE_MEMBER},
	{METHOD_SHUTDOWN, do_shutdown, ROLE_ADMIN, true},
	{METHOD_VERSION, do_version, ROLE_ANYBODY, true},
};

enum { VERBS = sizeof(verbs) / sizeof(verbs[0]) };

/* The first member of the request in the tables of messages. */
static const struct schema_row *members_of(const char *method)
{
	static const struct schema_row *const tables[] = {schema_messages, schema_weights};
	const struct schema_row *row = NULL;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (row = tables[i]; row->key != NULL; row++)
			if (strcmp(row->type, SCHEMA_REQUEST) == 0 && strcmp(row->key, method) == 0)
				return row + 1;
	return row;
}

static bool fits(const char *type, const json_t *value, const char **expected)
{
	if (*type == '?')
		type++;
	if (strncmp(type, "bool", 4) == 0) {
		*expected = "true or false";
		return json_is_boolean(value);
	}
	if (strncmp(type, "int", 3) == 0 || strncmp(type, "count", 5) == 0) {
		*expected = "an integer";
		return json_is_integer(value);
	}
	if (strncmp(type, "real", 4) == 0) {
		*expected = "a number";
		return json_is_number(value);
	}
	if (*type == '[') {
		*expected = "an array";
		return json_is_array(value);
	}
	*expected = "a string";
	return json_is_string(value);
}

static bool refuse_member(struct reply *reply, const char *method, const char *key,
	const char *const *names, size_t n)
{
	const char *nearest = suggest_nearest(key, names, n);

	reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "%s: %.64s: no such parameter%s%s",
		method, key, nearest ? ", the nearest is " : "", nearest ? nearest : "");
	return false;
}

/* Checks that all members are known and have their types; otherwise refuses the request. */
static bool check_params(const char *method, struct reply *reply, json_t *params)
{
	const struct schema_row *row = members_of(method);
	const char *key, *expected = "", *names[MEMBERS_MAX];
	json_t *value;
	size_t n = 0, i;

	for (; row->key != NULL && row->type[0] != '#'; row++) {
		names[n++] = row->key;
		value = json_object_get(params, row->key);
		if (value ? fits(row->type, value, &expected) : row->type[0] == '?')
			continue;
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "%s: %s: %s%s", method, row->key,
			value ? expected : "is missing", value ? " is expected" : "");
		return false;
	}
	json_object_foreach(params, key, value) {
		for (i = 0; i < n && strcmp(names[i], key) != 0;)
			i++;
		if (i == n)
			return refuse_member(reply, method, key, names, n);
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
	char why[200];

	for (size_t i = 0; i < VERBS; i++)
		if (strcmp(verbs[i].name, message->method) == 0)
			verb = &verbs[i];
	if (!client_greeted(client) && (verb == NULL || verb->handle != do_hello)) {
		reply_error_and_close(reply, PROTOCOL_INVALID_REQUEST, NULL, "%s is expected first",
			METHOD_HELLO);
	} else if (verb == NULL) {
		unknown_verb(reply, message->method);
	} else if (!role_may_ask(reply_peer(reply), verb->role)) {
		role_say_refused(verb->name, verb->role, why, sizeof(why));
		reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL, "%s", why);
	} else if (!verb->member && world_leader(d->world) != NULL) {
		reply_error(reply, PROTOCOL_WRONG_NODE, NULL,
			"%s: this gpt2d is node %d, a member; ask the gpt2d of the leader, %s",
			verb->name, settings_node(d->settings), world_leader(d->world));
	} else if (check_params(verb->name, reply, message->params)) {
		verb->handle(d, reply, message->params);
	}
}
