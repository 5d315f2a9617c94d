/* gpt2ctl status: the daemon, its engine, the run in progress, the queue. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/nodes.h"
#include "ctl/print/ranks.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/host/clock.h"

enum { QUEUE_DEFAULT = 10, QUEUE_MAX = 100 };

static const struct option_row options[] = {
	{"wait", 'w', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"wait until gpt2d answers, for instance after its start; if no gpt2d runs after "
		"this time, the exit status is 3; if gpt2d runs and does not answer, it is 124"},
	{"queue", 'n', OPTION_INT, "N", 0, QUEUE_MAX,
		"print the first N queued runs, in the order in which they start (default 10)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_daemon(const struct term *t, const json_t *daemon)
{
	char build[128], version[64], state[32], up[FORMAT_BYTES], size[FORMAT_BYTES], dir[4096];

	fprintf(t->file,
		"gpt2d %s (build %s): %s\n"
		"process %lld, up %s, %s resident, clients %lld\n",
		format_string(daemon, "version", "?", version, sizeof(version)),
		format_string(daemon, "build", "?", build, sizeof(build)),
		format_string(daemon, "state", "?", state, sizeof(state)),
		(long long)format_int(daemon, "pid", 0),
		format_duration(format_real(daemon, "uptime_s"), up),
		format_size(format_int(daemon, "rss_bytes", 0), size),
		(long long)format_int(daemon, "clients", 0));
	fprintf(t->file, "socket  %s\n", format_string(daemon, "socket", "-", dir, sizeof(dir)));
	fprintf(t->file, "state   %s\n", format_string(daemon, "state_dir", "-", dir, sizeof(dir)));
}

static void print_store(const struct term *t, const json_t *store)
{
	char path[4096], error[256], advice[700], at[64];

	if (!json_is_object(store))
		return;
	fprintf(t->file,
		"%sstore   %s has been failing since %s: %s\n"
		"        until it recovers, no run starts and submissions are refused: %s%s\n",
		term_colour(t, TERM_RED), format_string(store, "path", "?", path, sizeof(path)),
		text_time(store, "since", at, sizeof(at)),
		format_string(store, "error", "?", error, sizeof(error)),
		format_string(store, "advice", "", advice, sizeof(advice)),
		term_colour(t, TERM_PLAIN));
}

/* A device is an object of the engine, or a name. */
static void device_name(const json_t *rank, char *out, size_t out_bytes)
{
	const json_t *device = json_object_get(rank, "device");

	if (json_is_object(device))
		format_string(device, "name", "", out, out_bytes);
	else
		format_string(rank, "device", "", out, out_bytes);
}

static void print_idle(const struct term *t, const json_t *idle)
{
	char at[64];

	if (json_is_object(idle))
		fprintf(t->file,
			"        released since %s, after %lld s without work (idle_release); the "
			"next run and gpt2ctl warm start them\n",
			text_time(idle, "since", at, sizeof(at)),
			(long long)format_int(idle, "after_s", 0));
}

static void print_engine(const struct term *t, const json_t *engine)
{
	char state[32], reason[600], program[4096], rank_state[32], device[256];
	char why[512];
	char wait[FORMAT_BYTES];
	const json_t *ranks = json_object_get(engine, "ranks"), *rank;
	const double retry = format_real(engine, "retry_in_s");
	const bool nodes = ranks_on_nodes(ranks);
	struct table table;
	size_t i;

	format_string(engine, "reason", "", reason, sizeof(reason));
	fprintf(t->file,
		"engine  %s\n"
		"        %s, ranks %zu, threads per rank %lld, restarts %lld%s%s\n",
		format_string(engine, "program", "-", program, sizeof(program)),
		format_string(engine, "state", "?", state, sizeof(state)), json_array_size(ranks),
		(long long)format_int(engine, "threads", 0),
		(long long)format_int(engine, "restarts", 0), *reason ? ": " : "", reason);
	print_idle(t, json_object_get(engine, "idle"));
	if (strncmp(reason, "engine_", strlen("engine_")) == 0)
		fputs("        messages of the engines: gpt2ctl logs\n", t->file);
	if (*format_string(engine, "device_why", "", why, sizeof(why)))
		fprintf(t->file, "        on %s: %s\n",
			format_string(engine, "device", "?", device, sizeof(device)), why);
	if (isfinite(retry) && retry > 0.0)
		fprintf(t->file, "        gpt2d restarts them in %s\n",
			format_duration(retry, wait));
	table_init(&table);
	for (int column = 0; column < 4 + nodes; column++)
		table_column(&table, "", false);
	json_array_foreach(ranks, i, rank) {
		device_name(rank, device, sizeof(device));
		table_cell(&table, "rank %lld", (long long)format_int(rank, "rank", (int64_t)i));
		if (nodes)
			table_cell(&table, "node %lld", (long long)format_int(rank, "node", 0));
		table_cell(&table, "%s",
			format_string(rank, "state", "?", rank_state, sizeof(rank_state)));
		if (format_int(rank, "pid", 0) > 0)
			table_cell(&table, "pid %lld", (long long)format_int(rank, "pid", 0));
		else
			table_cell(&table, "%s", "");
		table_cell(&table, "%s", device);
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	ranks_print_others(t, ranks, INT_MAX);
}

static void print_counts(const struct term *t, const json_t *reply)
{
	const json_t *counts = json_object_get(reply, "counts"), *n;
	const char *state, *comma = "";

	if (json_object_size(counts) == 0)
		return;
	fputs("runs    ", t->file);
	json_object_foreach((json_t *)counts, state, n) {
		if (json_integer_value(n) == 0)
			continue;
		fprintf(t->file, "%s%lld %s", comma, (long long)json_integer_value(n), state);
		comma = ", ";
	}
	fprintf(t->file, "%s\n", *comma ? "" : "none yet");
}

static void print_status(struct output *o, const json_t *reply, size_t queue_rows)
{
	print_daemon(&o->out, json_object_get(reply, "daemon"));
	text_hold(&o->out, "drained", json_object_get(reply, "drained"));
	text_hold(&o->out, "released", json_object_get(reply, "released"));
	print_store(&o->out, json_object_get(reply, "store"));
	nodes_print(&o->out, json_object_get(reply, "world"), INT_MAX);
	print_engine(&o->out, json_object_get(reply, "engine"));
	text_running(&o->out, reply);
	text_queue(&o->out, reply, queue_rows);
	print_counts(&o->out, reply);
}

/*
 * Connect as soon as gpt2d runs, within the time, which limits all waits: 0, or an exit status with
 * e. 0 seconds: as every verb does.
 */
static int open_within(struct ctl *ctl, double seconds, struct client **c, struct ctl_error *e)
{
	const int64_t until_ns = clock_mono_ns() + (int64_t)(seconds * 1e9);
	struct client_options link = ctl->link;
	const struct timespec pause = {0, 50000000};
	int exit;

	if (seconds > 0.0)
		link.until_ns = until_ns;
	while ((exit = client_open(&link, c, e)) == CTL_NO_DAEMON && clock_mono_ns() < until_ns) {
		ctl_error_clear(e);
		if (interrupt_seen())
			return ctl_error_set(e, CTL_CANCELLED, "interrupted");
		nanosleep(&pause, NULL);
	}
	return exit;
}

static int run(struct ctl *ctl, const struct options *args)
{
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *reply = NULL;
	const double seconds = options_real(args, "wait", 0.0);
	int exit;

	if (seconds > 0.0)
		interrupt_begin();
	exit = open_within(ctl, seconds, &c, &e);
	if (!exit)
		exit = client_request(c, METHOD_STATUS, json_object(), CLIENT_REPLY_S, &reply, &e);
	client_close(c);
	if (exit)
		return verb_fail(ctl, &e);
	if (seconds > 0.0)
		interrupt_end();
	if (ctl->output.json)
		output_print(&ctl->output, "status", reply, NULL);
	else
		print_status(
			&ctl->output, reply, (size_t)options_int(args, "queue", QUEUE_DEFAULT));
	json_decref(reply);
	return CTL_OK;
}

const struct verb verb_status = {
	.name = "status",
	.args = "",
	.summary = "print the state of gpt2d, its engine, the run in progress, and the queue",
	.text = "In a script, after the start of gpt2d: gpt2ctl status --quiet --wait 30 || exit",
	.options = options,
	.run = run,
};
