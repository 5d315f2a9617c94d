/* gpt2ctl submit: checks a spec and sends it to gpt2d's queue. */
#include "ctl/verbs/submit.h"

#include <stdlib.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/dry_run.h"
#include "ctl/verbs/follow.h"
#include "ctl/verbs/import_deepspeed.h"
#include "proto/host/memory.h"

const struct option_row submit_options[] = {
	{"deepspeed", 0, OPTION_FLAG, NULL, 0, 0,
		"FILE is a DeepSpeed configuration, see import deepspeed"},
	{"strict", 0, OPTION_FLAG, NULL, 0, 0,
		"with --deepspeed: refuse a file with a key that is unsupported or unknown"},
	{"follow", 'f', OPTION_FLAG, NULL, 0, 0,
		"show its progress; the exit status is the run's result"},
	{"dry-run", 'n', OPTION_FLAG, NULL, 0, 0,
		"queue nothing; print the effective bucket plan, memory, data and work of each "
		"arm"},
	{"verbose", 'v', OPTION_FLAG, NULL, 0, 0, "with --dry-run: also print the resolved spec"},
	{"priority", 'p', OPTION_INT, "N", -PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX,
		"start before queued runs of a lower priority (default 0; above 0: admins only)"},
	{"print-id", 0, OPTION_FLAG, NULL, 0, 0,
		"print only the run ID on stdout; progress goes to stderr"},
	{"name", 0, OPTION_STRING, "NAME", 0, 0, "the run's name; overrides the spec"},
	{"set", 0, OPTION_STRING, "KEY=VALUE", 0, 0,
		"override a key of the spec, as zero_optimization.reduce_bucket_size=2e7; may be "
		"repeated",
		true},
	{"sweep", 0, OPTION_STRING, "KEY=VALUE,...", 0, 0,
		"run the spec as the arm base and an arm with each of these values; several "
		"--sweep make a grid",
		true},
	{"repetitions", 0, OPTION_INT, "N", 1, SPEC_REPETITIONS_MAX,
		"blocks of an experiment (design.repetitions)"},
	{"margin", 0, OPTION_REAL, "FRACTION", 1e-6, 1,
		"ratios closer to 1 than this are the same (design.margin)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* Options that stand for a key. */
static const struct {
	const char *option, *key;
} shorthands[] = {{"repetitions", "design.repetitions"}, {"margin", "design.margin"}};

enum { SHORTHANDS = sizeof(shorthands) / sizeof(shorthands[0]) };

/* ---- parsing ---- */

/* name="..." for --set, the caller's; NULL: it is not UTF-8. */
static char *set_name(const char *name)
{
	json_t *text = json_string(name);
	char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
	char *set = quoted ? memory_printed("name=%s", quoted) : NULL;

	json_decref(text);
	free(quoted);
	return set;
}

/* The changes of the options; texts that it owns come last in sets. */
static int take_options(const struct options *args, struct spec_options *how, const char **sets,
	struct ctl_error *e)
{
	const char *name = options_string(args, "name", NULL), *value;
	char *named;

	for (size_t i = 0; i < SHORTHANDS; i++) {
		value = options_string(args, shorthands[i].option, NULL);
		if (value)
			sets[how->n_sets++] = memory_printed("%s=%s", shorthands[i].key, value);
	}
	if (!name)
		return 0;
	named = set_name(name);
	if (!named)
		return ctl_error_set(e, CTL_USAGE, "--name: not UTF-8");
	sets[how->n_sets++] = named;
	return 0;
}

char *submit_parse(struct ctl *ctl, const struct spec_source *source, struct ctl_error *e)
{
	const struct options *args = source->args;
	const char *sweep = options_has(args, "keys") ? "keys" : "sweep"; /* keys: of tune */
	size_t given, n_sweeps;
	const char **sets = options_all(args, "set", &given);
	const char **sweeps = options_all(args, sweep, &n_sweeps);
	struct spec_options how = {.base_dir = source->folder,
		.world = source->world,
		.sets = sets,
		.n_sets = given,
		.sweeps = sweeps,
		.n_sweeps = n_sweeps};
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	struct spec *spec = NULL;
	char *canonical = NULL;

	if (take_options(args, &how, sets, e) == 0) {
		if (spec_parse(source->text, source->n, &how, &spec, errors) != 0)
			spec_source_report(&ctl->output, source, errors);
		else
			canonical = spec_canonical(spec);
	}
	spec_free(spec);
	for (size_t i = given; i < how.n_sets; i++)
		free((char *)sets[i]);
	free(errors);
	free(sweeps);
	free(sets);
	return canonical;
}

/* ---- sending ---- */

#define SEE_LOGS "see the messages of gpt2d and its engines: gpt2ctl logs"

/* gpt2d's error for a spec has rows like ours. */
static int refused(
	struct ctl *ctl, const struct spec_source *source, const json_t *spec, struct ctl_error *e)
{
	const json_t *rows = json_object_get(e->data, "errors");

	if (e->exit == CTL_USAGE && json_array_size(rows) > 0) {
		spec_source_report_rows(&ctl->output, source, json_object_get(spec, "arms"), rows);
		ctl_error_clear(e);
		return CTL_USAGE;
	}
	/* the message about a failing store has its own advice */
	if (json_is_false(json_object_get(e->data, "queued")) && e->code != PROTOCOL_STORE)
		ctl_error_add(e, "the run is not queued");
	if (e->code == PROTOCOL_INTERNAL)
		ctl_error_add(e, SEE_LOGS);
	return e->exit;
}

/* Adds to the reply more facts for people: arms, directory, warnings. */
static void complete(struct client *c, const json_t *spec, json_t *reply)
{
	json_t *params =
		json_pack("{s:I, s:i}", "id", (json_int_t)format_int(reply, "id", 0), "limit", 1);
	json_t *names = json_array(), *shown = NULL, *arm;
	struct ctl_error e = {0};
	const char *name;

	json_object_foreach(json_object_get(spec, "arms"), name, arm)
		json_array_append_new(names, json_string(name));
	json_object_set_new(reply, "arms", names);
	/* an error changes nothing: the run is queued */
	if (client_request(c, METHOD_SHOW, params, CLIENT_REPLY_S, &shown, &e) == 0) {
		json_object_set(
			reply, "dir", json_object_get(json_object_get(shown, "run"), "dir"));
		json_object_set_new(
			reply, "warnings", text_warnings(spec, json_object_get(shown, "checks")));
	}
	ctl_error_clear(&e);
	json_decref(shown);
}

static void print_submitted(struct output *o, const json_t *reply)
{
	const json_t *arms = json_object_get(reply, "arms"), *arm;
	const char *waiting = json_string_value(json_object_get(reply, "waiting"));
	char name[80], why[900];
	size_t i;

	members_print(o->out.file, reply, "run {id} {name|} queued");
	if (format_int(reply, "position", 0) > 0)
		members_print(o->out.file, reply, ", {position} ahead");
	fputc('\n', o->out.file);
	if (json_array_size(arms) > 1) {
		fputs("arms      ", o->out.file);
		json_array_foreach(arms, i, arm) {
			term_clean(json_is_string(arm) ? json_string_value(arm) : "?", name,
				sizeof(name));
			fprintf(o->out.file, "%s%s", i ? ", " : "", name);
		}
		fputc('\n', o->out.file);
	}
	members_print(o->out.file, reply,
		"segments  {segments}\nspec      {spec_sha256:16|-}\n[artifacts {dir}\n]");
	if (waiting && text_waits(waiting))
		fprintf(o->out.file, "waits     %s\n", text_waiting(reply, why, sizeof(why)));
	text_print_warnings(&o->out, json_object_get(reply, "warnings"));
}

static int send(
	struct ctl *ctl, const struct spec_source *source, const char *text, struct ctl_error *e)
{
	const struct options *args = source->args;
	const bool dry_run = options_has(args, "dry-run"), print_id = options_has(args, "print-id");
	struct output *o = &ctl->output;
	struct client *c = NULL;
	json_t *params = json_pack("{s:s}", "spec", text), *reply = NULL;
	json_t *spec = json_loads(text, 0, NULL);
	int64_t id;
	int exit;

	if (!dry_run && options_has(args, "priority"))
		json_object_set_new(
			params, "priority", json_integer(options_int(args, "priority", 0)));
	if (!dry_run && source->rerun_of > 0)
		json_object_set_new(params, "rerun_of", json_integer(source->rerun_of));
	interrupt_begin(); /* a signal must not hide whether the run is queued */
	exit = client_open(&ctl->link, &c, e);
	if (exit)
		json_decref(params);
	else
		exit = client_request(c, dry_run ? METHOD_DRY_RUN : METHOD_SUBMIT, params,
			CLIENT_CHECK_S, &reply, e);
	if (exit) {
		exit = refused(ctl, source, spec, e);
		goto out;
	}
	if (dry_run) {
		if (!o->json)
			dry_run_print(o, reply, options_has(args, "verbose"));
		output_print(o, "dry-run", reply, NULL);
		goto out;
	}
	id = format_int(reply, "id", 0);
	if (print_id) {
		fprintf(o->out.file, "%lld\n", (long long)id);
	} else {
		complete(c, spec, reply);
		output_print(o, "submit", reply, print_submitted);
	}
	/* a script that takes this exit status for a refusal would train twice */
	if (!output_flush(o))
		fprintf(o->err.file, "gpt2ctl: run %lld is queued\n", (long long)id);
	if (options_has(args, "follow"))
		exit = follow_run(ctl, c, id, !print_id, print_id ? &o->err : &o->out, e);
out:
	json_decref(spec);
	json_decref(reply);
	client_close(c);
	return exit;
}

int submit_check(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const char *verb = ctl->link.verb;

	if (options_has(args, "dry-run") &&
		(options_has(args, "follow") || options_has(args, "print-id")))
		ctl_error_set(e, CTL_USAGE,
			"%s: --dry-run cannot be used with --follow or --print-id", verb);
	else if (options_has(args, "verbose") && !options_has(args, "dry-run"))
		ctl_error_set(e, CTL_USAGE, "%s: --verbose requires --dry-run", verb);
	else if (options_has(args, "strict") && !options_has(args, "deepspeed"))
		ctl_error_set(e, CTL_USAGE, "%s: --strict requires --deepspeed", verb);
	else if (ctl->output.json && options_has(args, "print-id"))
		ctl_error_set(e, CTL_USAGE, "%s: --print-id cannot be used with --json", verb);
	return e->exit;
}

int submit_send(struct ctl *ctl, const struct spec_source *source, struct ctl_error *e)
{
	char *spec = submit_parse(ctl, source, e);
	const int exit = spec ? send(ctl, source, spec, e) : CTL_USAGE;

	free(spec);
	return exit;
}

/* Whether the file has keys of both formats, and none that only a spec has. */
static bool looks_like_deepspeed(const struct spec_source *source)
{
	json_t *root = json_loadb(source->text, source->n, 0, NULL);
	const bool yes = (json_object_get(root, "zero_optimization") ||
				 json_object_get(root, "train_micro_batch_size_per_gpu") ||
				 json_object_get(root, "train_batch_size")) &&
		!json_object_get(root, "model") && !json_object_get(root, "data") &&
		!json_object_get(root, "seq_len") && !json_object_get(root, "work");

	json_decref(root);
	return yes;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct deepspeed_import import = {0};
	struct output *o = &ctl->output;
	struct spec_source source;
	int exit = submit_check(ctl, args, e);

	if (exit)
		return exit;
	if (spec_source_load(args, &source, e) != 0)
		return e->exit;
	if (options_has(args, "deepspeed"))
		exit = import_deepspeed_convert(ctl, &source, &import);
	if (!exit)
		exit = submit_send(ctl, &source, e);
	if (exit == CTL_USAGE && !o->json && !options_has(args, "deepspeed") &&
		looks_like_deepspeed(&source))
		fputs("if this is a DeepSpeed configuration, use --deepspeed\n", o->err.file);
	deepspeed_finish(&import);
	spec_source_unload(&source);
	return exit;
}

const struct verb verb_submit = {
	.name = "submit",
	.args = "FILE|-",
	.min_args = 1,
	.max_args = 1,
	.summary = "queue a run or an experiment",
	.text = "FILE is a run spec, see gpt2d-spec(5); \"-\" is standard input. gpt2ctl prints "
		"all errors of the spec as FILE:LINE:COLUMN: KEY: MESSAGE before it connects to "
		"gpt2d. "
		"Relative data paths start from the spec's directory; for \"-\" and for a pipe, "
		"as with <(jq . spec.json), from the current directory. submit prints the run ID "
		"once the run is on disk in gpt2d's queue. With --deepspeed, FILE is read as "
		"import deepspeed reads it; --set gives what a DeepSpeed file cannot have: "
		"gpt2ctl submit --deepspeed ds_config.json --set model=gpt2 --set "
		"data.train=train.bin --set seq_len=1024 --set work.optimizer_steps=100.",
	.options = submit_options,
	.run = run,
};
