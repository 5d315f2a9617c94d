/* gpt2ctl show: a run with its arms, segments and transitions. */
#include "ctl/verbs/show.h"

#include <math.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/print/ranks.h"
#include "ctl/verbs/verb.h"
#include "proto/host/memory.h"
#include "proto/spec/spec.h"
#include "proto/spec/spec_table.h"

int show_fetch(struct ctl *ctl, const char *word, json_t **reply, struct ctl_error *e)
{
	struct client *c = NULL;
	int64_t id;
	int exit = verb_parse_id(word, &id, e);

	if (!exit)
		exit = client_open(&ctl->link, &c, e);
	if (!exit)
		exit = client_request_pages(c, METHOD_SHOW,
			json_pack("{s:I}", "id", (json_int_t)id), CLIENT_REPLY_S, NULL, reply, e);
	client_close(c);
	return exit;
}

struct spec *show_spec(const json_t *reply, struct ctl_error *e)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	const struct spec_options how = {.base_dir = "/"};
	char *text = json_dumps(json_object_get(reply, "spec"), JSON_REAL_PRECISION(17));
	struct spec *spec = NULL;

	if (!text)
		ctl_error_set(e, CTL_TRANSPORT, "gpt2d sent no spec");
	else if (spec_parse(text, strlen(text), &how, &spec, errors) != 0)
		ctl_error_set(e, CTL_VERSION_MISMATCH,
			"the run's spec is not valid for this gpt2ctl: %.80s: %.200s",
			errors->error[0].key, errors->error[0].message);
	free(text);
	free(errors);
	return spec;
}

static void print_head(const struct term *t, const json_t *run)
{
	char reason[600];

	format_string(run, "reason", "", reason, sizeof(reason));
	members_print(t->file, run, "run {id} {name|}: ");
	text_state(t, run);
	members_print(t->file, run,
		"submitted {submitted_at:time|-}\n"
		"started   {started_at:time|-}\n"
		"ended     {ended_at:time|-}\n"
		"ranks {gpus}  segments {segments_done}/{segments}  attempt {attempt|1}  uid "
		"{uid|-}\n");
	if (format_int(run, "priority", 0) != 0)
		members_print(t->file, run, "priority  {priority}\n");
	members_print(t->file, run, "[rerun of  run {rerun_of}\n]");
	if (json_is_true(json_object_get(run, "kept")))
		fputs("kept      protected from pruning\n", t->file);
	members_print(t->file, run, "spec      {spec_sha256|-}\nartifacts {dir|-}\n");
	if (strncmp(reason, "engine_", strlen("engine_")) == 0)
		members_print(t->file, run, "messages of the engines: gpt2ctl logs {id}\n");
}

struct difference {
	const struct term *term;
	const char *first; /* arm */
};

static void print_difference(
	const struct spec_row *row, const char *own, const char *baseline, void *arg)
{
	const struct difference *d = arg;
	char clean[2][512];

	term_clean(strcmp(own, "null") == 0 ? "absent" : own, clean[0], sizeof(clean[0]));
	term_clean(strcmp(baseline, "null") == 0 ? "absent" : baseline, clean[1], sizeof(clean[1]));
	fprintf(d->term->file, "  %s: %s (%s: %s)\n", row->key, clean[0], d->first, clean[1]);
}

void show_differences(const struct term *t, const struct spec *spec, size_t arm)
{
	struct difference difference = {t, spec->arms[0].name};

	spec_differences(spec, arm, 0, print_difference, &difference);
}

/* Ranks and stage of an arm, and the keys in which it differs from the first. */
static void print_keys(const struct term *t, const struct spec *spec, const char *arm)
{
	size_t i = 0;

	while (i < spec->n_arms && strcmp(spec->arms[i].name, arm) != 0)
		i++;
	if (i == spec->n_arms)
		return;
	fprintf(t->file, "  ranks %lld, stage %lld\n", (long long)spec->arms[i].config.gpus,
		(long long)spec->arms[i].config.zero_stage);
	show_differences(t, spec, i);
}

/* A plan takes most of a line. */
static void print_arms(const struct term *t, const json_t *reply)
{
	const json_t *checks = json_object_get(reply, "checks"), *check;
	char name[80], plan[160];
	struct ctl_error e = {0};
	struct spec *spec = NULL;
	size_t i;

	if (json_array_size(checks) > 0)
		fputc('\n', t->file);
	if (json_array_size(checks) > 1)
		spec = show_spec(reply, &e);
	json_array_foreach(checks, i, check) {
		text_plan(json_object_get(json_object_get(check, "check"), "plan"), plan,
			sizeof(plan));
		members_print(t->file, check, "arm {arm|}  spec {spec_sha256:16|-}\n");
		fprintf(t->file, "  %s\n", plan);
		if (spec)
			print_keys(t, spec, format_string(check, "arm", "", name, sizeof(name)));
	}
	spec_free(spec);
	ctl_error_clear(&e);
}

/* Whether a segment's summary has the figure. */
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
	const json_t *segment;
	struct table table;
	size_t i;

	if (json_array_size(segments) == 0)
		return;
	table_init(&table);
	table_columns(&table, ">SEGMENT\t>BLOCK\tARM\tSTATE\t>TOK/S\t>EXPOSED COMM");
	if (loss)
		table_columns(&table, ">LOSS");
	if (val_loss)
		table_columns(&table, ">VAL LOSS");
	table_columns(&table, "REASON");
	json_array_foreach(segments, i, segment) {
		members_cells(&table, segment,
			"{segment}\t{block|0}\t{arm|}\t{state}\t{summary.tok_s_global:si|-}\t"
			"{summary.exposed_comm_mean_s:duration|-}");
		if (loss)
			members_cells(&table, segment, "{summary.loss_last:loss|-}");
		if (val_loss)
			members_cells(&table, segment, "{summary.val_loss:loss|-}");
		members_cells(&table, segment,
			json_string_length(json_object_get(segment, "reason")) > 0
				? "{reason}"
				: "[block void: {void}]");
	}
	fputc('\n', t->file);
	table_print(&table, t, "");
	table_finish(&table);
}

/* Over all segments; an arm may write some and another none. */
static void print_checkpoints(const struct term *t, int64_t id, const json_t *segments)
{
	int64_t written = 0, lost = 0, last = 0;
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const json_t *made =
			json_object_get(json_object_get(segment, "summary"), "checkpoints");

		written += format_int(made, "written", 0);
		lost += format_int(made, "lost", 0);
		if (format_int(made, "written", 0) > 0)
			last = format_int(made, "last_step", 0);
	}
	if (written + lost == 0)
		return;
	fprintf(t->file, "checkpoints written %lld", (long long)written);
	if (written > 0)
		fprintf(t->file, ", the last one after step %lld", (long long)last);
	if (lost > 0)
		fprintf(t->file, "; lost %lld, see: gpt2ctl logs %lld", (long long)lost,
			(long long)id);
	fputc('\n', t->file);
}

static void print_transitions(const struct term *t, const json_t *transitions)
{
	if (json_array_size(transitions) == 0)
		return;
	fputc('\n', t->file);
	members_table(t, "", transitions, "TIME\tSTATE\tREASON", "{at:time|-}\t{state}\t{reason|}");
}

static void print_show(struct output *o, const json_t *reply)
{
	json_t *slow = ranks_find_slow(json_object_get(reply, "segments"));
	const struct term *t = &o->out;

	print_head(t, json_object_get(reply, "run"));
	text_outlook(t, json_object_get(reply, "outlook"));
	text_progress(t, json_object_get(reply, "progress"));
	print_arms(t, reply);
	print_segments(t, json_object_get(reply, "segments"));
	ranks_print_slow(t, slow);
	print_checkpoints(t, format_int(json_object_get(reply, "run"), "id", 0),
		json_object_get(reply, "segments"));
	print_transitions(t, json_object_get(reply, "transitions"));
	json_decref(slow);
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	json_t *reply;

	if (show_fetch(ctl, args->words[0], &reply, e) != 0)
		return e->exit;
	output_print(&ctl->output, "show", reply, print_show);
	json_decref(reply);
	return CTL_OK;
}

const struct verb verb_show = {
	.name = "show",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "a run: state and reason, times, arms, segments, artifacts",
	.text = "A segment that is done has the training loss of its last step, and the "
		"validation loss (VAL LOSS) if the spec has work.validation_steps.",
	.run = run,
};
