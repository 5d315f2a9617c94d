/* gpt2ctl top, for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"
#include "ctl/print/view.h"

enum { SPARK_MAX = 120, NAME_BYTES = 80 };

/* ---- losses as a row of bars ---- */

/* Mean of losses [from, to), of those that are finite. */
static double mean_of(const double *losses, size_t from, size_t to)
{
	double sum = 0.0;
	int n = 0;

	for (size_t i = from; i < to; i++) {
		if (!isfinite(losses[i]))
			continue;
		sum += losses[i];
		n++;
	}
	return n > 0 ? sum / n : (double)NAN;
}

static void put_bar(const struct term *t, double height)
{
	static const char plain[] = "_.-=+*%#";
	const bool known = height >= 0.0 && height <= 1.0; /* NaN is neither */
	const int eighth = known ? (int)(height * 7.0 + 0.5) : 0;

	if (!known)
		fputc('?', t->file);
	else if (t->utf8) /* U+2581 to U+2588 */
		fprintf(t->file, "\xe2\x96%c", (char)(0x81 + eighth));
	else
		fputc(plain[eighth], t->file);
}

/* Ends with the loss of progress, as the line above does: events are older, or newer. */
static void print_losses(const struct view *v, const struct term *t, const json_t *progress)
{
	const size_t room = t->width > 58 ? (size_t)t->width - 48 : 10;
	const size_t limit = room < SPARK_MAX ? room : SPARK_MAX;
	const size_t cells = v->n_losses < limit ? v->n_losses : limit;
	double value[SPARK_MAX], low = INFINITY, high = -INFINITY;

	if (cells < 2 || format_int(progress, "segment", -1) != v->segment)
		return;
	for (size_t i = 0; i < cells; i++) {
		value[i] =
			mean_of(v->losses, i * v->n_losses / cells, (i + 1) * v->n_losses / cells);
		low = fmin(low, value[i]);
		high = fmax(high, value[i]);
	}
	fprintf(t->file, "loss    %s", term_colour(t, TERM_CYAN));
	for (size_t i = 0; i < cells && t->bars; i++)
		put_bar(t, high > low ? (value[i] - low) / (high - low) : value[i] - low);
	fprintf(t->file, "%s%s%.4f at step %lld to %.4f\n", term_colour(t, TERM_PLAIN),
		t->bars ? " " : "", v->losses[0], (long long)v->first_step,
		format_real(progress, "loss"));
}

/* ---- parts ---- */

static void print_head(const struct view *v, const struct term *t)
{
	const json_t *daemon = json_object_get(v->status, "daemon");
	const json_t *host = json_object_get(v->status, "host");
	const json_t *store = json_object_get(v->status, "store");
	char version[64], state[32], up[FORMAT_BYTES], free[FORMAT_BYTES], all[FORMAT_BYTES];
	char load[32], rss[FORMAT_BYTES], error[600], advice[700];
	const double load_1m = format_real(host, "load_1m");
	const int64_t limit_bytes = format_int(host, "memory_limit_bytes", INT64_MAX);
	const bool limited = limit_bytes < format_int(host, "memory_bytes", 0);
	char limit[FORMAT_BYTES];

	fprintf(t->file, "%sgpt2d %s%s %s, up %s, cpu %s, %s, clients %lld\n",
		term_colour(t, TERM_BOLD),
		format_string(daemon, "version", "?", version, sizeof(version)),
		term_colour(t, TERM_PLAIN),
		format_string(daemon, "state", "?", state, sizeof(state)),
		format_duration(format_real(daemon, "uptime_s"), up),
		text_load(daemon, load, sizeof(load)), text_size(daemon, "rss_bytes", rss),
		(long long)format_int(daemon, "clients", 0));
	fprintf(t->file, "host    %lld processors, load %.2f, %s of %s free%s%s\n",
		(long long)format_int(host, "processors", 0), isfinite(load_1m) ? load_1m : 0.0,
		text_size(host, "memory_available_bytes", free),
		text_size(host, "memory_bytes", all), limited ? ", limit " : "",
		limited ? text_size(host, "memory_limit_bytes", limit) : "");
	if (json_is_object(store))
		fprintf(t->file, "%sstore   %s: %s%s\n", term_colour(t, TERM_RED),
			format_string(store, "error", "?", error, sizeof(error)),
			format_string(store, "advice", "", advice, sizeof(advice)),
			term_colour(t, TERM_PLAIN));
}

static void print_engine(const struct view *v, const struct term *t, size_t rows)
{
	const json_t *engine = json_object_get(v->status, "engine");
	const json_t *idle = json_object_get(engine, "idle");
	char state[32], at[64], reason[600];

	format_string(engine, "reason", "", reason, sizeof(reason));
	fprintf(t->file, "engine  %s, restarts %lld%s%s%s%s\n",
		format_string(engine, "state", "?", state, sizeof(state)),
		(long long)format_int(engine, "restarts", 0),
		json_is_object(idle) ? ", idle (idle_release) since " : "",
		json_is_object(idle) ? text_time(idle, "since", at, sizeof(at)) : "",
		*reason ? ": " : "", reason);
	text_ranks(t, engine, rows);
	text_other_processes(t, json_object_get(engine, "ranks"), 1);
}

static void print_queue(const struct view *v, const struct term *t, size_t rows)
{
	const int64_t queued = format_int(v->status, "queued", 0);
	char head[600], waiting[600], name[NAME_BYTES], at[FORMAT_BYTES];
	const json_t *run;
	struct table table;
	size_t i;

	format_string(v->status, "waiting", "", head, sizeof(head));
	fprintf(t->file, "queued  %lld%s%s\n", (long long)queued, *head ? ": " : "", head);
	table_init(&table);
	for (int c = 0; c < 5; c++)
		table_column(&table, "", c == 0);
	json_array_foreach(json_object_get(v->status, "queue"), i, run) {
		const double in = format_real(run, "starts_in_s");

		if (i == rows)
			break;
		table_cell(&table, "%lld", (long long)format_int(run, "id", 0));
		table_cell(&table, "%s", format_string(run, "name", "", name, sizeof(name)));
		table_cell(&table, "priority %lld", (long long)format_int(run, "priority", 0));
		table_cell(&table, "%s%s", isfinite(in) ? "in " : "",
			isfinite(in) ? format_duration(in, at) : "");
		format_string(run, "waiting", "", waiting, sizeof(waiting));
		table_cell(&table, "%s", text_row_waits(i, head, waiting));
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	if ((int64_t)i < queued)
		fprintf(t->file, "        and %lld more\n", (long long)(queued - (int64_t)i));
}

/* Of the rows that are not needed elsewhere, ranks get up to a half, the queue what is left. */
void text_top(const struct term *t, const struct view *v, int rows)
{
	const int fixed = 2 + 4 + 3 + 2, left = rows > fixed + 2 ? rows - fixed : 2;
	const size_t n_ranks =
		json_array_size(json_object_get(json_object_get(v->status, "engine"), "ranks"));
	const size_t half = (size_t)left / 2, ranks = n_ranks < half ? n_ranks : half;
	const json_t *running = json_object_get(v->status, "running");

	print_head(v, t);
	text_running(t, v->status);
	if (json_is_object(json_object_get(running, "run")))
		print_losses(v, t, json_object_get(running, "progress"));
	print_engine(v, t, ranks);
	print_queue(v, t, (size_t)left - ranks);
}
