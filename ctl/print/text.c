#include "ctl/print/text.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/progress.h"
#include "ctl/print/states.h"
#include "proto/waiting.h"

const char *text_reason(const char *state, const char *reason)
{
	const size_t n = strlen(state);

	return strncmp(reason, state, n) == 0 && strncmp(reason + n, ": ", 2) == 0 ? reason + n + 2
										   : reason;
}

void text_state(const struct term *t, const json_t *run)
{
	char state[32], reason[600];

	format_string(run, "state", "?", state, sizeof(state));
	format_string(run, "reason", "", reason, sizeof(reason));
	fprintf(t->file, "%s%s%s%s%s\n", term_colour(t, states_colour(state)), state,
		term_colour(t, TERM_PLAIN), *reason ? ": " : "", text_reason(state, reason));
}

const char *text_user(int64_t uid, char out[TEXT_USER_BYTES])
{
	const struct passwd *user = getpwuid((uid_t)uid);
	char name[64];

	if (user) {
		term_clean(user->pw_name, name, sizeof(name));
		snprintf(out, TEXT_USER_BYTES, "%s (uid %lld)", name, (long long)uid);
	} else {
		snprintf(out, TEXT_USER_BYTES, "uid %lld", (long long)uid);
	}
	return out;
}

void text_hold(const struct term *t, const char *label, const json_t *hold)
{
	char by[TEXT_USER_BYTES];

	if (!json_is_object(hold))
		return;
	fputs(label, t->file);
	members_print(t->file, hold, " since {since:time|-} by ");
	fputs(text_user(format_int(hold, "uid", -1), by), t->file);
	members_print(t->file, hold, "[: {reason}]\n");
}

void text_store(const struct term *t, const json_t *store)
{
	if (json_is_object(store)) {
		fputs(term_colour(t, TERM_RED), t->file);
		members_print(t->file, store,
			"gpt2d cannot write {path} since {since:time|-}: {error}; {advice|}");
		fprintf(t->file, "%s\ngpt2d reports how a run ended once it can write again\n",
			term_colour(t, TERM_PLAIN));
	} else {
		fputs("gpt2d can write again\n", t->file);
	}
	fflush(t->file);
}

/* ---- the queue ---- */

bool text_waits(const char *waiting)
{
	const char *moment = waiting_code(WAITING_PREPARING);
	const size_t n = strlen(moment);

	return *waiting && (strncmp(waiting, moment, n) != 0 || waiting[n] != ':');
}

const char *text_waiting(const json_t *object, char *out, size_t bytes)
{
	const char *text = format_string(object, "waiting", "", out, bytes);
	const char *code = waiting_code(WAITING_BEHIND);
	const size_t n = strlen(code);

	return strncmp(text, code, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

void text_outlook(const struct term *t, const json_t *outlook)
{
	char waiting[900];

	if (!json_is_object(outlook))
		return;
	members_print(t->file, outlook,
		"waits     {position|0} ahead[, starts in about {starts_in_s:duration}]; ");
	fprintf(t->file, "%s\n", text_waiting(outlook, waiting, sizeof(waiting)));
}

/* Why row i of the queue waits, whose reason is that of the first row, printed above. */
static const char *row_waits(size_t i, const char *waiting)
{
	static const struct {
		const char *code, *text;
	} heads[] = {
		{"drained: ", "waits for gpt2ctl resume"},
		{"released: ", "waits for gpt2ctl warm"},
		{"ranks: ", "waits for more ranks"},
	};

	for (size_t k = 0; k < sizeof(heads) / sizeof(heads[0]) && i == 0; k++) {
		if (strncmp(waiting, heads[k].code, strlen(heads[k].code)) == 0)
			return heads[k].text;
	}
	return i == 0 ? "next" : "the same";
}

void text_queue(const struct term *t, const json_t *status, size_t rows)
{
	const json_t *queue = json_object_get(status, "queue"), *run;
	const int64_t queued = format_int(status, "queued", 0);
	char head[900], waiting[900], *in;
	const char *why, *own;
	struct table table;
	size_t i;

	why = text_waiting(status, head, sizeof(head));
	fprintf(t->file, "queued  %lld%s%s\n", (long long)queued, *why ? ": " : "", why);
	table_init(&table);
	table_columns(&table, ">\t\t\t");
	json_array_foreach(queue, i, run) {
		if (i == rows)
			break;
		own = text_waiting(run, waiting, sizeof(waiting));
		members_cells(&table, run, "{id}\t{name|}\tpriority {priority}");
		in = members_text(run, "[in about {starts_in_s:duration}, ]");
		table_cell(&table, "%s%s", in,
			strcmp(head, waiting) != 0 ? own : row_waits(i, waiting));
		free(in);
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	if (queued > (int64_t)i)
		fprintf(t->file, "        and %lld more: gpt2ctl %s\n",
			(long long)(queued - (int64_t)i),
			i < json_array_size(queue) ? "status --queue 100" : "list --state queued");
}

/* ---- the run in progress ---- */

void text_progress(const struct term *t, const json_t *progress)
{
	const double fraction = progress_fraction(progress);
	char bar[128];

	if (!json_is_object(progress))
		return;
	term_bar(t, fraction, 24, bar, sizeof(bar));
	fputs("        ", t->file);
	if (*bar)
		fprintf(t->file, "[%s%s%s] ", term_colour(t, TERM_CYAN), bar,
			term_colour(t, TERM_PLAIN));
	fprintf(t->file, "%*d%%", *bar ? 3 : 0, format_percent(fraction));
	if (format_int(progress, "segments", 1) > 1)
		members_print(t->file, progress, "  segment {segment|1}/{segments|1} {arm|}");
	members_print(t->file, progress,
		"\n        step {step|0}/{steps|0}[  loss {loss:.4}][  {tokens_per_sec:si} tok/s]"
		"[  {eta_s:duration} left]\n");
}

void text_running(const struct term *t, const json_t *status)
{
	const json_t *running = json_object_get(status, "running");
	const json_t *run = json_object_get(running, "run");
	char state[32];

	if (!json_is_object(run)) {
		fputs("running none\n", t->file);
		return;
	}
	format_string(run, "state", "?", state, sizeof(state));
	members_print(t->file, run, "running {id} {name|}: ");
	fprintf(t->file, "%s%s%s\n", term_colour(t, states_colour(state)), state,
		term_colour(t, TERM_PLAIN));
	members_print(t->file, running,
		"[        the run ends after the step in progress: {stopping}\n]");
	if (strcmp(state, "running") == 0 && !json_is_object(json_object_get(running, "progress")))
		members_print(t->file, run,
			"        no step has ended yet[, started {started_at:time}]\n");
	text_progress(t, json_object_get(running, "progress"));
}

void text_stopping(const struct term *t, const json_t *reply, const char *otherwise)
{
	if (format_int(reply, "running", 0) <= 0)
		return;
	members_print(t->file, reply, "run {running} ");
	fputs(json_is_true(json_object_get(reply, "stopping")) ? "is being stopped" : otherwise,
		t->file);
	members_print(t->file, reply, "; wait for its end with: gpt2ctl wait {running}\n");
}

/* ---- plans, warnings ---- */

void text_plan(const json_t *plan, char *out, size_t out_bytes)
{
	const int64_t reduce = format_int(plan, "reduce_elems", -1);
	const int64_t n = format_int(plan, "n_reduce", 0);
	const int64_t gather = format_int(plan, "gather_elems", -1);
	const int64_t n_gather = format_int(plan, "n_gather", 0);
	const int64_t elem_bytes = format_int(plan, "elem_bytes", 4);
	char count[FORMAT_BYTES], size[FORMAT_BYTES];
	int used;

	if (reduce < 0) {
		snprintf(out, out_bytes, "-");
		return;
	}
	used = snprintf(out, out_bytes, "%lld bucket%s of %s el (%s)", (long long)n,
		n == 1 ? "" : "s", format_count(reduce, count),
		format_size(format_product(reduce, elem_bytes), size));
	if (n_gather > 0 && used > 0 && (size_t)used < out_bytes &&
		(gather != reduce || n_gather != n))
		snprintf(out + used, out_bytes - (size_t)used, ", gathered in %lld of %s el",
			(long long)n_gather, format_count(gather, count));
}

bool text_has(const json_t *array, const json_t *value)
{
	const json_t *other;
	size_t i;

	json_array_foreach(array, i, other) {
		if (json_equal(other, value))
			return true;
	}
	return false;
}

static const json_t *warnings_of(const json_t *row)
{
	return json_object_get(json_object_get(row, "check"), "warnings");
}

/* Whether each arm's check has the warning. */
static bool all_warn(const json_t *checks, const json_t *warning)
{
	const json_t *row;
	size_t i;

	json_array_foreach(checks, i, row) {
		if (!text_has(warnings_of(row), warning))
			return false;
	}
	return true;
}

json_t *text_warnings(const json_t *spec, const json_t *checks)
{
	json_t *all = json_array();
	const json_t *row, *warning;
	char name[80];
	size_t i, k;

	if (json_object_size(json_object_get(spec, "arms")) == 1)
		json_array_append_new(all,
			json_string(
				"the spec has one arm, so nothing is compared: add another arm"));
	json_array_foreach(checks, i, row) {
		json_array_foreach(warnings_of(row), k, warning) {
			const char *text = json_string_value(warning);

			if (text && !all_warn(checks, warning))
				json_array_append_new(all,
					json_sprintf("arm %s: %s",
						format_string(row, "arm", "", name, sizeof(name)),
						text));
			else if (text && i == 0)
				json_array_append(all, (json_t *)warning);
		}
	}
	return all;
}

void text_print_warnings(const struct term *t, const json_t *warnings)
{
	const json_t *warning;
	char clean[1200];
	size_t i;

	json_array_foreach(warnings, i, warning) {
		term_clean(json_is_string(warning) ? json_string_value(warning) : "?", clean,
			sizeof(clean));
		fprintf(t->file, "%swarning%s: %s\n", term_colour(t, TERM_YELLOW),
			term_colour(t, TERM_PLAIN), clean);
	}
}
