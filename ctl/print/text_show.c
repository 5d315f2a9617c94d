/* submit and show, for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/results/slow_rank.h"
#include "ctl/print/states.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"

void text_submitted(struct ctl *ctl, const json_t *reply)
{
	const int64_t segments = format_int(reply, "segments", 1);
	const int64_t before = format_int(reply, "position", 0);
	const json_t *arms = json_object_get(reply, "arms"), *arm;
	char name[80], dir[4096], hash[80], waiting[900];
	size_t i;

	fprintf(ctl->out.file, "run %lld %s queued%s", (long long)format_int(reply, "id", 0),
		format_string(reply, "name", "", name, sizeof(name)), before > 0 ? "" : "\n");
	if (before > 0)
		fprintf(ctl->out.file, ", %lld before it\n", (long long)before);
	if (json_array_size(arms) > 1) {
		fputs("arms      ", ctl->out.file);
		json_array_foreach(arms, i, arm) {
			term_clean(json_is_string(arm) ? json_string_value(arm) : "?", name,
				sizeof(name));
			fprintf(ctl->out.file, "%s%s", i ? ", " : "", name);
		}
		fputc('\n', ctl->out.file);
	}
	fprintf(ctl->out.file, "segments  %lld\n", (long long)segments);
	fprintf(ctl->out.file, "spec      %.16s\n",
		format_string(reply, "spec_sha256", "-", hash, sizeof(hash)));
	format_string(reply, "dir", "", dir, sizeof(dir));
	if (*dir)
		fprintf(ctl->out.file, "artifacts %s\n", dir);
	format_string(reply, "waiting", "", waiting, sizeof(waiting));
	if (text_waits(waiting))
		fprintf(ctl->out.file, "waits     %s\n", waiting);
	text_print_warnings(&ctl->out, json_object_get(reply, "warnings"));
}

static void print_head(const struct term *t, const json_t *run)
{
	char name[80], state[32], reason[600], uid[32], text[4096];

	format_string(run, "state", "?", state, sizeof(state));
	format_string(run, "reason", "", reason, sizeof(reason));
	fprintf(t->file, "run %lld %s: %s%s%s%s%s\n", (long long)format_int(run, "id", 0),
		format_string(run, "name", "", name, sizeof(name)),
		term_colour(t, states_colour(state)), state, term_colour(t, TERM_PLAIN),
		*reason ? ": " : "", text_reason(state, reason));
	fprintf(t->file, "submitted %s\n", text_time(run, "submitted_at", text, sizeof(text)));
	fprintf(t->file, "started   %s\n", text_time(run, "started_at", text, sizeof(text)));
	fprintf(t->file, "ended     %s\n", text_time(run, "ended_at", text, sizeof(text)));
	fprintf(t->file, "ranks %lld  segments %lld/%lld  attempt %lld  uid %s\n",
		(long long)format_int(run, "gpus", 0),
		(long long)format_int(run, "segments_done", 0),
		(long long)format_int(run, "segments", 0), (long long)format_int(run, "attempt", 1),
		format_string(run, "uid", "-", uid, sizeof(uid)));
	if (format_int(run, "priority", 0) != 0)
		fprintf(t->file, "priority  %lld\n", (long long)format_int(run, "priority", 0));
	if (format_int(run, "rerun_of", 0) > 0)
		fprintf(t->file, "rerun of  run %lld\n", (long long)format_int(run, "rerun_of", 0));
	if (json_is_true(json_object_get(run, "kept")))
		fputs("kept      it stays when old runs are removed\n", t->file);
	fprintf(t->file, "spec      %s\n",
		format_string(run, "spec_sha256", "-", text, sizeof(text)));
	fprintf(t->file, "artifacts %s\n", format_string(run, "dir", "-", text, sizeof(text)));
	if (strncmp(reason, "engine_", strlen("engine_")) == 0)
		fprintf(t->file, "what engines said: gpt2ctl logs %lld\n",
			(long long)format_int(run, "id", 0));
}

/* A plan takes most of a line. */
static void print_arms(const struct term *t, const json_t *checks)
{
	char name[80], hash[80], plan[160];
	const json_t *check;
	size_t i;

	if (json_array_size(checks) > 0)
		fputc('\n', t->file);
	json_array_foreach(checks, i, check) {
		text_plan(json_object_get(json_object_get(check, "check"), "plan"), plan,
			sizeof(plan));
		fprintf(t->file, "arm %s  spec %.16s\n  %s\n",
			format_string(check, "arm", "", name, sizeof(name)),
			format_string(check, "spec_sha256", "-", hash, sizeof(hash)), plan);
	}
}

static void real_cell(struct table *t, double value, char *(*format)(double, char *))
{
	char text[FORMAT_BYTES];

	table_cell(t, "%s", isfinite(value) ? format(value, text) : "-");
}

/* Whether the summary of one of them has it. */
static bool any_has(const json_t *segments, const char *key)
{
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		if (isfinite(format_real(json_object_get(segment, "summary"), key)))
			return true;
	}
	return false;
}

static void print_segments(const struct term *t, const json_t *segments)
{
	const bool loss = any_has(segments, "loss_last");
	const bool val_loss = any_has(segments, "val_loss");
	char arm[80], state[32], reason[600];
	const json_t *segment, *summary;
	struct table table;
	size_t i;

	if (json_array_size(segments) == 0)
		return;
	table_init(&table);
	table_column(&table, "SEGMENT", true);
	table_column(&table, "BLOCK", true);
	table_column(&table, "ARM", false);
	table_column(&table, "STATE", false);
	table_column(&table, "TOK/S", true);
	table_column(&table, "EXPOSED COMM", true);
	if (loss)
		table_column(&table, "LOSS", true);
	if (val_loss)
		table_column(&table, "VAL LOSS", true);
	table_column(&table, "REASON", false);
	json_array_foreach(segments, i, segment) {
		summary = json_object_get(segment, "summary");
		table_cell(
			&table, "%lld", (long long)format_int(segment, "segment", (int64_t)i) + 1);
		table_cell(&table, "%lld", (long long)format_int(segment, "block", 0) + 1);
		table_cell(&table, "%s", format_string(segment, "arm", "", arm, sizeof(arm)));
		table_cell(
			&table, "%s", format_string(segment, "state", "?", state, sizeof(state)));
		real_cell(&table, format_real(summary, "tok_s_global"), format_si);
		real_cell(&table, format_real(summary, "exposed_comm_mean_s"), format_duration);
		if (loss)
			real_cell(&table, format_real(summary, "loss_last"), format_loss);
		if (val_loss)
			real_cell(&table, format_real(summary, "val_loss"), format_loss);
		table_cell(
			&table, "%s", format_string(segment, "reason", "", reason, sizeof(reason)));
	}
	fputc('\n', t->file);
	table_print(&table, t, "");
	table_finish(&table);
}

static void print_transitions(const struct term *t, const json_t *transitions)
{
	char at[64], state[32], reason[600];
	const json_t *row;
	struct table table;
	size_t i;

	if (json_array_size(transitions) == 0)
		return;
	table_init(&table);
	table_column(&table, "TIME", false);
	table_column(&table, "STATE", false);
	table_column(&table, "REASON", false);
	json_array_foreach(transitions, i, row) {
		table_cell(&table, "%s", text_time(row, "at", at, sizeof(at)));
		table_cell(&table, "%s", format_string(row, "state", "?", state, sizeof(state)));
		table_cell(&table, "%s", format_string(row, "reason", "", reason, sizeof(reason)));
	}
	fputc('\n', t->file);
	table_print(&table, t, "");
	table_finish(&table);
}

void text_show(struct ctl *ctl, const json_t *reply)
{
	json_t *slow = slow_rank_find(json_object_get(reply, "segments"));
	const struct term *t = &ctl->out;

	print_head(t, json_object_get(reply, "run"));
	text_outlook(t, json_object_get(reply, "outlook"));
	text_progress_line(t, json_object_get(reply, "progress"));
	print_arms(t, json_object_get(reply, "checks"));
	print_segments(t, json_object_get(reply, "segments"));
	slow_rank_print(t, slow);
	print_transitions(t, json_object_get(reply, "transitions"));
	json_decref(slow);
}
