/* status and list, for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/states.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"

const char *text_reason(const char *state, const char *reason)
{
	const size_t n = strlen(state);

	return strncmp(reason, state, n) == 0 && strncmp(reason + n, ": ", 2) == 0 ? reason + n + 2
										   : reason;
}

const char *text_unstored(const char *reason)
{
	static const char code[] = "unstored: ";

	return strncmp(reason, code, strlen(code)) == 0 ? reason + strlen(code) : NULL;
}

const char *text_time(const json_t *object, const char *key, char *out, size_t out_bytes)
{
	const char *text = json_string_value(json_object_get(object, key));
	char clean[64];

	if (!text) {
		snprintf(out, out_bytes, "-");
		return out;
	}
	term_clean(text, clean, sizeof(clean));
	/* "2026-01-08T19:50:57.123Z": the seconds are enough */
	if (strlen(clean) >= 20 && clean[10] == 'T')
		snprintf(out, out_bytes, "%.10s %.8sZ", clean, clean + 11);
	else
		snprintf(out, out_bytes, "%s", clean);
	return out;
}

/* ---- status ---- */

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

/* A device is an object of the engine's, or a name. */
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
			"        since %s, idle for %lld s (idle_release); for a run, and by "
			"gpt2ctl warm, they start again\n",
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
		fputs("        what they said: gpt2ctl logs\n", t->file);
	if (*format_string(engine, "device_why", "", why, sizeof(why)))
		fprintf(t->file, "        on %s: %s\n",
			format_string(engine, "device", "?", device, sizeof(device)), why);
	if (isfinite(retry) && retry > 0.0)
		fprintf(t->file, "        started again in %s\n", format_duration(retry, wait));
	table_init(&table);
	table_column(&table, "", false);
	table_column(&table, "", false);
	table_column(&table, "", false);
	table_column(&table, "", false);
	json_array_foreach(ranks, i, rank) {
		device_name(rank, device, sizeof(device));
		table_cell(&table, "rank %lld", (long long)format_int(rank, "rank", (int64_t)i));
		table_cell(&table, "%s",
			format_string(rank, "state", "?", rank_state, sizeof(rank_state)));
		if (format_int(rank, "pid", 0) > 0)
			table_cell(&table, "pid %lld", (long long)format_int(rank, "pid", 0));
		else /* it has no process */
			table_cell(&table, "%s", "");
		table_cell(&table, "%s", device);
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	text_other_processes(t, ranks, TEXT_ROWS_ALL);
}

void text_progress_line(const struct term *t, const json_t *progress)
{
	const int64_t segment = format_int(progress, "segment", 0);
	const int64_t segments = format_int(progress, "segments", 1);
	const int64_t step = format_int(progress, "step", 0);
	const int64_t steps = format_int(progress, "steps", 0);
	const double total = (double)segments * (double)steps;
	const double fraction =
		total > 0.0 ? ((double)segment * (double)steps + (double)step) / total : 0.0;
	const double loss = format_real(progress, "loss");
	const double rate = format_real(progress, "tokens_per_sec");
	const double eta = format_real(progress, "eta_s");
	char bar[128], text[FORMAT_BYTES], arm[80];

	if (!json_is_object(progress))
		return;
	term_bar(t, fraction, 24, bar, sizeof(bar));
	fputs("        ", t->file);
	if (*bar)
		fprintf(t->file, "[%s%s%s] ", term_colour(t, TERM_CYAN), bar,
			term_colour(t, TERM_PLAIN));
	fprintf(t->file, "%*d%%", *bar ? 3 : 0, format_percent(fraction));
	if (segments > 1)
		fprintf(t->file, "  segment %lld/%lld %s", (long long)segment + 1,
			(long long)segments, format_string(progress, "arm", "", arm, sizeof(arm)));
	fprintf(t->file, "\n        step %lld/%lld", (long long)step, (long long)steps);
	if (isfinite(loss))
		fprintf(t->file, "  loss %.4f", loss);
	if (isfinite(rate))
		fprintf(t->file, "  %s tok/s", format_si(rate, text));
	if (isfinite(eta))
		fprintf(t->file, "  %s left", format_duration(eta, text));
	fputc('\n', t->file);
}

/* None is with the engines. One whose end is not on disk counts as in the state it had before. */
static void print_none(const struct term *t, const json_t *counts)
{
	const int64_t n = format_int(counts, "starting", 0) + format_int(counts, "running", 0) +
		format_int(counts, "finishing", 0);

	fputs("running none", t->file);
	if (n > 0)
		fprintf(t->file, "; the end of %lld run%s is not on disk yet: gpt2ctl list",
			(long long)n, n == 1 ? "" : "s");
	fputc('\n', t->file);
}

void text_running(const struct term *t, const json_t *status)
{
	const json_t *running = json_object_get(status, "running");
	const json_t *run = json_object_get(running, "run");
	char name[80], state[32], why[600];

	if (!json_is_object(run)) {
		print_none(t, json_object_get(status, "counts"));
		return;
	}
	format_string(run, "state", "?", state, sizeof(state));
	fprintf(t->file, "running %lld %s: %s%s%s\n", (long long)format_int(run, "id", 0),
		format_string(run, "name", "", name, sizeof(name)),
		term_colour(t, states_colour(state)), state, term_colour(t, TERM_PLAIN));
	if (*format_string(running, "stopping", "", why, sizeof(why)))
		fprintf(t->file, "        it is being ended, after the step in progress: %s\n",
			why);
	text_progress_line(t, json_object_get(running, "progress"));
}

const char *text_row_waits(size_t i, const char *head, const char *waiting)
{
	static const struct {
		const char *code, *text;
	} heads[] = {
		{"drained: ", "waits for gpt2ctl resume"},
		{"released: ", "waits for gpt2ctl warm"},
		{"ranks: ", "waits for more ranks"}, /* there are too few: it is not next */
	};

	if (strcmp(head, waiting) != 0)
		return waiting;
	if (i > 0)
		return "the same";
	for (size_t k = 0; k < sizeof(heads) / sizeof(heads[0]); k++) {
		if (strncmp(waiting, heads[k].code, strlen(heads[k].code)) == 0)
			return heads[k].text;
	}
	return "next";
}

/* The first few that wait; the head's reason stands before them. */
static void print_queue(const struct term *t, const json_t *reply, size_t rows)
{
	const json_t *queue = json_object_get(reply, "queue"), *run;
	const int64_t queued = format_int(reply, "queued", 0);
	char name[80], head[900], waiting[900], in[FORMAT_BYTES];
	struct table table;
	double starts;
	size_t i;

	format_string(reply, "waiting", "", head, sizeof(head));
	table_init(&table);
	table_column(&table, "", true);
	table_column(&table, "", false);
	table_column(&table, "", false);
	table_column(&table, "", false);
	json_array_foreach(queue, i, run) {
		if (i == rows)
			break;
		starts = format_real(run, "starts_in_s");
		format_string(run, "waiting", "", waiting, sizeof(waiting));
		table_cell(&table, "%lld", (long long)format_int(run, "id", 0));
		table_cell(&table, "%s", format_string(run, "name", "", name, sizeof(name)));
		table_cell(&table, "priority %lld", (long long)format_int(run, "priority", 0));
		if (starts >= 0)
			table_cell(&table, "in about %s", format_duration(starts, in));
		else
			table_cell(&table, "%s", text_row_waits(i, head, waiting));
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	if (queued > (int64_t)i)
		fprintf(t->file, "        and %lld more%s\n", (long long)(queued - (int64_t)i),
			i < json_array_size(queue) ? ": gpt2ctl status --queue 100"
						   : ", by id: gpt2ctl list --state queued");
}

static void print_counts(const struct term *t, const json_t *reply, size_t queue_rows)
{
	const json_t *counts = json_object_get(reply, "counts"), *n;
	char waiting[900];
	const char *state, *comma = "";

	format_string(reply, "waiting", "", waiting, sizeof(waiting));
	fprintf(t->file, "queued  %lld%s%s\n", (long long)format_int(reply, "queued", 0),
		*waiting ? ": " : "", waiting);
	print_queue(t, reply, queue_rows);
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

void text_status(struct ctl *ctl, const json_t *reply, size_t queue_rows)
{
	print_daemon(&ctl->out, json_object_get(reply, "daemon"));
	text_hold(&ctl->out, "drained", json_object_get(reply, "drained"));
	text_hold(&ctl->out, "released", json_object_get(reply, "released"));
	print_store(&ctl->out, json_object_get(reply, "store"));
	print_engine(&ctl->out, json_object_get(reply, "engine"));
	text_running(&ctl->out, reply);
	print_counts(&ctl->out, reply, queue_rows);
}

/* ---- list ---- */

void text_list(struct ctl *ctl, const json_t *reply)
{
	const json_t *runs = json_object_get(reply, "runs"), *run;
	char name[80], state[32], at[64], reason[600];
	struct table t;
	size_t i;

	if (json_array_size(runs) == 0) {
		fputs("no runs\n", ctl->out.file);
		return;
	}
	table_init(&t);
	table_column(&t, "ID", true);
	table_column(&t, "NAME", false);
	table_column(&t, "STATE", false);
	table_column(&t, "SEGMENTS", true);
	table_column(&t, "SUBMITTED", false);
	table_column(&t, "PRIORITY", true);
	table_column(&t, "REASON", false);
	json_array_foreach(runs, i, run) {
		table_cell(&t, "%lld", (long long)format_int(run, "id", 0));
		table_cell(&t, "%s", format_string(run, "name", "", name, sizeof(name)));
		table_cell(&t, "%s", format_string(run, "state", "?", state, sizeof(state)));
		table_cell(&t, "%lld/%lld", (long long)format_int(run, "segments_done", 0),
			(long long)format_int(run, "segments", 0));
		table_cell(&t, "%s", text_time(run, "submitted_at", at, sizeof(at)));
		table_cell(&t, "%lld", (long long)format_int(run, "priority", 0));
		format_string(run, "reason", "", reason, sizeof(reason));
		table_cell(&t, "%s", text_reason(state, reason));
	}
	if (json_is_true(json_object_get(reply, "older")))
		fputs("older runs are left out: --limit 0 shows all\n", ctl->out.file);
	table_print(&t, &ctl->out, "");
	table_finish(&t);
}
