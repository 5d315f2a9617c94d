#include "daemon/startup.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engines/checker.h"
#include "daemon/config/clock.h"
#include "daemon/command.h"
#include "daemon/command_hold.h"
#include "daemon/command_run.h"
#include "daemon/daemon.h"
#include "daemon/control/control.h"
#include "daemon/engines/engine_program.h"
#include "proto/host/memory.h"
#include "daemon/control/follow.h"
#include "daemon/runs/generation.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/config/log.h"
#include "daemon/config/paths.h"
#include "daemon/metrics.h"
#include "daemon/nodes/world.h"
#include "daemon/config/place.h"
#include "daemon/runs/prune.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/reconcile.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/service.h"
#include "daemon/config/settings.h"
#include "proto/state_files.h"
#include "daemon/store/record.h"
#include "daemon/store/store.h"
#include "daemon/runs/submit.h"
#include "daemon/shutdown.h"
#include "daemon/runs/worker.h"
#include "proto/host/shm_folder.h"
#include "proto/host/signals.h"
#include "proto/host/starved.h"

/* ---- callbacks of the parts ---- */

static void on_request(struct reply *reply, const struct rpc_message *message, void *arg)
{
	command_handle(arg, reply, message);
}

static void on_gone(struct client *client, void *arg)
{
	struct daemon *d = arg;

	follow_forget(d->follow, client);
	shutdown_step(d);
}

/* Once: runs can be submitted, and the engines are ready or not needed. */
static void say_ready(struct daemon *d)
{
	if (d->ready_said)
		return;
	d->ready_said = true;
	log_print("gpt2d: ready, socket %s, %lld rank%s%s", d->socket,
		(long long)settings_world(d->settings), settings_world(d->settings) == 1 ? "" : "s",
		hold_is_set(d->holds, HOLD_RELEASED) ? ", released" : "");
}

/* A member waits for nothing: it joins when the leader runs. */
static void say_member_ready(struct daemon *d)
{
	d->ready_said = true;
	log_print("gpt2d: ready, socket %s, node %d, member of %s", d->socket,
		settings_node(d->settings), world_leader(d->world));
}

/* Something changed that the scheduler may act on. Nodes change before there is a scheduler. */
static void wake(void *arg)
{
	struct daemon *d = arg;

	if (d->scheduler != NULL)
		scheduler_wake(d->scheduler);
}

static void on_engines_ready(void *arg)
{
	struct daemon *d = arg;

	say_ready(d);
	scheduler_wake(d->scheduler);
}

/* The scheduler has handled the change. */
static void on_scheduled(void *arg)
{
	struct daemon *d = arg;

	if (!d->stopping)
		checker_rest(d->checker, engine_pool_away(d->pool));
	command_hold_reply(d);
	shutdown_step(d);
}

static void on_run_changed(void *arg, struct run *run, enum lifecycle_event event)
{
	struct daemon *d = arg;

	if (event != LIFECYCLE_STORED)
		return;
	if (run_state_ended(run->state))
		prune_soon(d->pruner);
	scheduler_wake(d->scheduler);
}

static void on_engine_message(int rank, const char *method, json_t *params, void *arg)
{
	struct daemon *d = arg;

	if (!generation_message(d->generation, method, params))
		scheduler_message(d->scheduler, rank, method, params);
}

static void on_engines_lost(const char *reason, void *arg)
{
	struct daemon *d = arg;

	scheduler_lost(d->scheduler, reason);
	generation_lost(d->generation, reason);
	command_hold_engines_lost(d, reason);
}

static void on_engines_gone(void *arg)
{
	struct daemon *d = arg;

	scheduler_gone(d->scheduler);
}

static bool is_training(void *arg)
{
	const struct daemon *d = arg;

	return d->scheduler != NULL && scheduler_busy(d->scheduler);
}

static void on_engines_stopped(void *arg)
{
	struct daemon *d = arg;

	d->engines_gone = true;
	shutdown_step(d);
}

static void on_child(evutil_socket_t signal, short what, void *arg)
{
	struct daemon *d = arg;

	world_reap(d->world);
	checker_reap(d->checker);
}

static void on_terminate(evutil_socket_t signal, short what, void *arg)
{
	struct daemon *d = arg;
	int64_t left_s = d->stopping ? 0 : d->settings->stop_timeout_s;

	log_write(LOG_INFO, "signal %d: stopping", (int)signal);
	d->signalled = true;
	if (left_s > 0)
		d->drain_ns = clock_mono_ns() + left_s * CLOCK_S_NS;
	shutdown_begin(d, left_s == 0);
}

/* failure: NULL if the store can be written again. */
static void report_store(struct daemon *d, const struct store_failure *failure)
{
	json_t *store = store_failure_json(d->store);

	follow_store(d->follow, store);
	json_decref(store);
	if (failure != NULL)
		command_cancel_store_fails(d);
	if (failure != NULL && failure->rc == -EBADMSG)
		log_write(LOG_ERROR, "%s: %s: %s; nothing is written until gpt2d restarts",
			failure->path, store_error_text(failure->rc), failure->advice);
	else if (failure != NULL)
		log_write(LOG_ERROR, "%s: cannot be written: %s: %s; gpt2d retries every second",
			failure->path, store_error_text(failure->rc), failure->advice);
	else
		log_write(LOG_INFO, "%s/" STATE_DATABASE ": can be written again", d->state_dir);
}

static void on_reload(evutil_socket_t signal, short what, void *arg)
{
	struct daemon *d = arg;

	service_reload(d->words.settings, d->words.argc, d->words.argv);
	scheduler_wake(d->scheduler); /* idle_release may have changed */
}

/* After a completion, when a failure begins or ends, and every second for a silent thread. */
static void on_completions(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	struct store_failure failure;
	bool failing;
	int rc;

	store_deliver(d->store);
	failing = store_failure(d->store, &failure);
	rc = failing ? failure.rc : 0;
	if (failing != (d->store_rc < 0) || (rc == -EBADMSG && d->store_rc != rc))
		report_store(d, failing ? &failure : NULL);
	d->store_rc = rc;
	if (!failing)
		scheduler_wake(d->scheduler);
	shutdown_step(d);
}

/* ---- start ---- */

static int start_places(struct daemon *d, char *error, size_t error_bytes)
{
	const struct settings *s = d->settings;
	struct place_access access = place_access(s);
	char path[SPEC_PATH_MAX + 16];
	int rc;

	rc = paths_socket(s->socket, d->socket, sizeof(d->socket), error, error_bytes);
	if (rc == 0)
		rc = paths_state_dir(
			s->state_dir, d->state_dir, sizeof(d->state_dir), error, error_bytes);
	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s/" STATE_RUNS, d->state_dir);
	rc = place_make_dirs(path, error, error_bytes);
	if (rc == 0)
		rc = place_make_socket_dir(d->socket, &access, error, error_bytes);
	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, d->state_dir);
	if (rc == 0)
		rc = place_lock(path, &d->lock_fds[0], error, error_bytes);
	if (rc == 0)
		rc = place_lock_dir(d->state_dir, &d->lock_fds[2], error, error_bytes);
	if (rc == 0)
		rc = place_lock(d->socket, &d->lock_fds[1], error, error_bytes);
	return rc;
}

static int open_store(struct daemon *d, char *error, size_t error_bytes)
{
	char path[SPEC_PATH_MAX + 16], why[256];
	int rc;

	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, d->state_dir);
	rc = store_open(path, &d->store, why, sizeof(why));
	if (rc < 0) {
		snprintf(error, error_bytes, "%s: %s", path, why);
		return rc;
	}
	d->queue = queue_create(settings_world(d->settings));
	rc = record_last_change_now(
		d->store, clock_utc_ns() - CLOCK_DOUBT_S * CLOCK_S_NS, &d->last_change_ns);
	if (rc < 0)
		snprintf(error, error_bytes, "%s: %s", path, store_error_text(rc));
	else
		rc = reconcile_runs(&(struct reconcile_options){.store = d->store,
					    .state_dir = d->state_dir,
					    .queue = d->queue,
					    .counts = d->counts},
			error, error_bytes);
	return rc;
}

static int start_store(struct daemon *d, char *error, size_t error_bytes)
{
	struct store_failure failure;
	int rc = open_store(d, error, error_bytes);

	/* opening a locked database returns this error itself */
	if (store_is_full(rc) || (rc == -EBUSY && d->store != NULL)) {
		store_describe(d->store ? store_path(d->store) : d->state_dir, rc, &failure);
		snprintf(
			error + strlen(error), error_bytes - strlen(error), "; %s", failure.advice);
	}
	return rc;
}

/* Reads the runs from the store, and sets up what keeps them up to date. */
static int start_runs(struct daemon *d)
{
	const struct hold_options holds = {
		.base = d->base,
		.store = d->store,
		.state_dir = d->state_dir,
		.changed = wake,
		.arg = d,
	};
	int rc;

	d->run_log = run_log_create(d->store, d->queue, d->follow);
	d->lifecycle = lifecycle_create(&(struct lifecycle_options){
		.store = d->store,
		.queue = d->queue,
		.follow = d->follow,
		.state_dir = d->state_dir,
		.counts = d->counts,
	});
	rc = hold_create(&holds, &d->holds);
	if (rc < 0)
		return rc;
	lifecycle_observe(d->lifecycle, command_cancel_observe, d);
	lifecycle_observe(d->lifecycle, hold_observe, d->holds);
	lifecycle_observe(d->lifecycle, on_run_changed, d);
	return store_start(d->store);
}

static void start_signals(struct daemon *d)
{
	static const struct {
		int number;
		void (*called)(evutil_socket_t signal, short what, void *arg);
	} signals[] = {{SIGCHLD, on_child}, {SIGTERM, on_terminate}, {SIGINT, on_terminate},
		{SIGUSR1, on_terminate}, {SIGHUP, on_reload}};
	static const struct timeval second = {1, 0};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		signals_hold(signals[i].number);
		d->signals[i] = evsignal_new(d->base, signals[i].number, signals[i].called, d);
		event_add(d->signals[i], NULL);
		if (signals_came(signals[i].number))
			event_active(d->signals[i], EV_SIGNAL, 1);
	}
	d->shutdown = shutdown_event(d);
	d->completions =
		event_new(d->base, store_fd(d->store), EV_READ | EV_PERSIST, on_completions, d);
	event_add(d->completions, &second);
}

static int start_engines(struct daemon *d, char *error, size_t error_bytes)
{
	const struct settings *s = d->settings;
	struct engine_pool_options pool = {
		.base = d->base,
		.program = d->program->path,
		.backend = d->program->device == DEVICE_UNSET
			? NULL
			: engine_program_device_name(d->program->device),
		.tuning_dir = d->tuning_dir,
		.threads = d->threads,
		.peak_tflops = (int)s->peak_tflops,
		.away = hold_is_set(d->holds, HOLD_RELEASED),
		.start_timeout_s = s->start_timeout_s,
		.alive_timeout_s = s->alive_timeout_s,
		.ready = on_engines_ready,
		.message = on_engine_message,
		.lost = on_engines_lost,
		.gone = on_engines_gone,
		.released = wake,
		.stopped = on_engines_stopped,
		.arg = d,
	};
	struct checker_options checker = {
		.base = d->base,
		.program = d->program->path,
		.threads = d->threads,
		.node_ranks = (int)s->ranks,
		.timeout_s = s->check_timeout_s,
		.alive_timeout_s = s->alive_timeout_s,
		.data_roots = settings_data_roots(s),
		.runs = d->runs_dir,
	};
	int rc;

	snprintf(d->runs_dir, sizeof(d->runs_dir), "%s/" STATE_RUNS, d->state_dir);
	checker_create(&checker, &d->checker);
	snprintf(d->tuning_dir, sizeof(d->tuning_dir), "%s/" STATE_TUNING, d->state_dir);
	rc = world_create(&(struct world_options){.settings = s,
				  .state_dir = d->state_dir,
				  .checker = d->checker,
				  .pool = pool,
				  .changed = wake,
				  .busy = is_training},
		&d->world, error, error_bytes);
	if (rc < 0)
		return rc;
	d->pool = world_pool(d->world);
	return 0;
}

static void start_generation(struct daemon *d)
{
	const struct generation_options options = {
		.checkpoints = {d->store, d->worker, d->state_dir},
		.pool = d->pool,
		.holds = d->holds,
		.progress_timeout_s = &d->settings->progress_timeout_s,
		.changed = wake,
		.arg = d,
	};

	d->generation = generation_create(&options);
}

static void start_scheduler(struct daemon *d)
{
	const struct scheduler_options options = {
		.base = d->base,
		.settings = d->settings,
		.state_dir = d->state_dir,
		.store = d->store,
		.worker = d->worker,
		.queue = d->queue,
		.lifecycle = d->lifecycle,
		.holds = d->holds,
		.pool = d->pool,
		.generation = d->generation,
		.follow = d->follow,
		.run_log = d->run_log,
		.changed = on_scheduled,
		.arg = d,
	};

	d->submitter = submit_create(&(struct submit_options){
		.settings = d->settings,
		.store = d->store,
		.checker = d->checker,
		.world = d->world,
		.state_dir = d->state_dir,
		.runs_dir = d->runs_dir,
		.lifecycle = d->lifecycle,
		.queued = command_queued,
		.arg = d,
	});
	d->scheduler = scheduler_create(&options);
}

static int start_control(struct daemon *d, char *error, size_t error_bytes)
{
	struct control_options options = {
		.client =
			{
				.base = d->base,
				.buffer_bytes = d->settings->client_buffer_bytes,
				.request = on_request,
				.gone = on_gone,
				.arg = d,
			},
		.socket = d->socket,
		.settings = d->settings,
	};

	return control_create(&options, &d->control, error, error_bytes);
}

static void *allocate(size_t bytes)
{
	return memory_resized(NULL, bytes);
}

/* ---- systemd ---- */

static void describe(char *status, size_t status_bytes, void *arg)
{
	const struct daemon *d = arg;
	const struct run *run = scheduler_running(d->scheduler);
	char running[32] = "no run", since[CLOCK_TEXT_BYTES], disk[320] = "", nodes[128] = "";
	struct store_failure failure;

	if (d->stopping)
		return;
	if (run != NULL)
		snprintf(running, sizeof(running), "run %lld", (long long)run->id);
	if (store_failure(d->store, &failure)) {
		clock_text(failure.since_ns, since);
		snprintf(disk, sizeof(disk), ", %.200s: %s since %s", failure.path,
			store_error_text(failure.rc), since);
	}
	snprintf(status, status_bytes, "engines %s, %s%s%s running, %lld queued%s%s",
		engine_pool_state_name(d->pool),
		world_waits(d->world, nodes, sizeof(nodes)) ? nodes : "", nodes[0] ? ", " : "",
		running, (long long)queue_length(d->queue),
		hold_is_set(d->holds, HOLD_DRAINED) ? ", drained" : "", disk);
}

static double busy_s(void *arg)
{
	const struct daemon *d = arg;

	return store_busy_s(d->store);
}

static void start_service(struct daemon *d)
{
	const struct service_options options = {
		.base = d->base, .describe = describe, .busy_s = busy_s, .arg = d};

	d->service = service_create(&options);
}

static bool is_busy(void *arg)
{
	const struct daemon *d = arg;

	return d->stopping || scheduler_busy(d->scheduler);
}

static void on_removed(enum run_state state, void *arg)
{
	struct daemon *d = arg;

	d->counts[state]--;
}

static void start_pruner(struct daemon *d)
{
	const struct prune_options options = {
		.base = d->base,
		.store = d->store,
		.worker = d->worker,
		.queue = d->queue,
		.settings = d->settings,
		.state_dir = d->state_dir,
		.last_change_ns = d->last_change_ns,
		.busy = is_busy,
		.removed = on_removed,
		.arg = d,
	};

	d->pruner = prune_create(&options);
}

static json_t *status(void *arg)
{
	return command_status(arg);
}

static void start_metrics(struct daemon *d)
{
	const struct metrics_options options = {
		.base = d->base,
		.worker = d->worker,
		.store = d->store,
		.settings = d->settings,
		.socket = d->socket,
		.state_dir = d->state_dir,
		.status = status,
		.arg = d,
	};

	d->metrics = metrics_create(&options);
}

int startup_run(struct daemon *d, const struct settings *settings, char *error, size_t error_bytes)
{
	int rc;

	d->settings = settings;
	TAILQ_INIT(&d->cancels);
	TAILQ_INIT(&d->hold_requests);
	d->lock_fds[0] = d->lock_fds[1] = d->lock_fds[2] = -1;
	d->started_ns = clock_mono_ns();
	d->started_utc_ns = clock_utc_ns();
	error[0] = '\0';
	event_set_mem_functions(allocate, memory_resized, free);
	d->base = event_base_new();
	d->follow = follow_create(d->base);
	rc = start_places(d, error, error_bytes);
	if (rc == 0)
		rc = start_store(d, error, error_bytes);
	if (rc == 0)
		rc = start_runs(d);
	if (rc == 0)
		rc = worker_create(d->base, &d->worker);
	if (rc == 0) {
		start_pruner(d);
		start_signals(d);
		rc = start_engines(d, error, error_bytes);
	}
	if (rc == 0) {
		start_generation(d);
		start_scheduler(d);
		if (world_leader(d->world) != NULL)
			hold_place_member(d->holds, world_leader(d->world));
		rc = start_control(d, error, error_bytes);
	}
	if (rc == 0) {
		start_service(d);
		start_metrics(d);
		if (hold_is_set(d->holds, HOLD_MEMBER))
			say_member_ready(d);
		else if (hold_is_set(d->holds, HOLD_RELEASED))
			say_ready(d);
	}
	if (rc < 0 && error[0] == '\0')
		snprintf(error, error_bytes, "%s", starved_text(rc));
	return rc;
}

/* ---- end ---- */

int startup_undo(struct daemon *d)
{
	int rc;

	/* pending checks, jobs and writes end first: their callbacks use the other parts */
	shutdown_stop_checks(d);
	worker_stop(d->worker);
	rc = store_close(d->store);
	service_destroy(d->service);
	control_destroy(d->control);
	scheduler_destroy(d->scheduler);
	generation_destroy(d->generation);
	world_destroy(d->world);
	shm_folder_sweep(); /* killed engines have left their folders */
	submit_destroy(d->submitter);
	command_cancel_drop(d);
	command_hold_drop(d);
	hold_destroy(d->holds);
	lifecycle_destroy(d->lifecycle);
	follow_destroy(d->follow);
	queue_destroy(d->queue);
	run_log_destroy(d->run_log);
	prune_destroy(d->pruner);
	metrics_destroy(d->metrics);
	worker_destroy(d->worker);
	for (size_t i = 0; i < sizeof(d->signals) / sizeof(d->signals[0]); i++)
		if (d->signals[i])
			event_free(d->signals[i]);
	if (d->shutdown)
		event_free(d->shutdown);
	if (d->completions)
		event_free(d->completions);
	for (size_t i = 0; i < sizeof(d->lock_fds) / sizeof(d->lock_fds[0]); i++)
		if (d->lock_fds[i] >= 0)
			close(d->lock_fds[i]);
	if (d->base) {
		/* callbacks that libevent has deferred still use connections */
		event_base_loop(d->base, EVLOOP_NONBLOCK);
		event_base_free(d->base);
	}
	return rc;
}
