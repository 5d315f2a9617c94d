/* gpt2ctl status: the daemon, its engine, the run in progress, the queue. */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
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
	members_print(t->file, daemon,
		"gpt2d {version} (build {build}): {state}\n"
		"process {pid}, up {uptime_s:duration|-}, {rss_bytes:size} resident, clients "
		"{clients}\n"
		"socket  {socket|-}\n"
		"state   {state_dir|-}\n");
}

static void print_store(const struct term *t, const json_t *store)
{
	if (!json_is_object(store))
		return;
	fputs(term_colour(t, TERM_RED), t->file);
	members_print(t->file, store,
		"store   {path} has been failing since {since:time|-}: {error}\n"
		"        until it recovers, no run starts and submissions are refused: {advice|}");
	fprintf(t->file, "%s\n", term_colour(t, TERM_PLAIN));
}

static void print_ranks(const struct term *t, const json_t *ranks)
{
	const bool nodes = ranks_on_nodes(ranks);
	struct table table;
	const json_t *rank;
	size_t i;

	table_init(&table);
	table_columns(&table, nodes ? "\t\t\t\t" : "\t\t\t");
	json_array_foreach(ranks, i, rank) {
		members_cells(&table, rank, nodes ? "rank {rank}\tnode {node|0}" : "rank {rank}");
		members_cells(&table, rank,
			format_int(rank, "pid", 0) > 0 ? "{state}\tpid {pid}" : "{state}\t");
		/* a device is an object of the engine, or a name */
		members_cells(&table, rank,
			json_is_object(json_object_get(rank, "device")) ? "{device.name|}"
									: "{device|}");
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	ranks_print_others(t, ranks, INT_MAX);
}

static void print_engine(const struct term *t, const json_t *engine)
{
	const json_t *ranks = json_object_get(engine, "ranks");
	const json_t *idle = json_object_get(engine, "idle");
	const char *reason = json_string_value(json_object_get(engine, "reason"));

	members_print(t->file, engine, "engine  {program|-}\n        {state}, ");
	fprintf(t->file, "ranks %zu, ", json_array_size(ranks));
	members_print(
		t->file, engine, "threads per rank {threads}, restarts {restarts}[: {reason}]\n");
	if (json_is_object(idle))
		members_print(t->file, idle,
			"        released since {since:time|-}, after {after_s} s without work "
			"(idle_release); the next run and gpt2ctl warm start them\n");
	if (reason && strncmp(reason, "engine_", strlen("engine_")) == 0)
		fputs("        messages of the engines: gpt2ctl logs\n", t->file);
	members_print(t->file, engine, "[        on {device}: {device_why}\n]");
	if (format_real(engine, "retry_in_s") > 0.0)
		members_print(
			t->file, engine, "        gpt2d restarts them in {retry_in_s:duration}\n");
	print_ranks(t, ranks);
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
	ranks_print_nodes(&o->out, json_object_get(reply, "world"), INT_MAX);
	print_engine(&o->out, json_object_get(reply, "engine"));
	text_running(&o->out, reply);
	text_queue(&o->out, reply, queue_rows);
	print_counts(&o->out, reply);
}

/*
 * Connects as soon as gpt2d runs, within the time limit, which applies to all waits: 0, or an exit
 * status with e. 0 seconds: as in other verbs.
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

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct client *c = NULL;
	json_t *reply = NULL;
	const double seconds = options_real(args, "wait", 0.0);
	int exit;

	if (seconds > 0.0)
		interrupt_begin();
	exit = open_within(ctl, seconds, &c, e);
	if (!exit)
		exit = client_request(c, METHOD_STATUS, json_object(), CLIENT_REPLY_S, &reply, e);
	client_close(c);
	if (exit)
		return e->exit;
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
