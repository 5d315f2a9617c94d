/* gpt2ctl import deepspeed: a DeepSpeed configuration as a run spec. */
#include "ctl/verbs/import_deepspeed.h"

#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/text.h"

static const struct option_row options[] = {
	{"set", 0, OPTION_STRING, "KEY=VALUE", 0, 0,
		"set a key of the spec, such as model=gpt2; may be repeated", true},
	{"strict", 0, OPTION_FLAG, NULL, 0, 0,
		"refuse a file with a key that is unsupported or unknown"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* ---- the list ---- */

static bool is_lost(const struct deepspeed_note *n)
{
	return n->kind == DEEPSPEED_UNSUPPORTED || n->kind == DEEPSPEED_UNKNOWN;
}

/* A line of the list on stderr, unless --quiet is given. */
static void print_note(struct ctl *ctl, const struct spec_source *source, struct spec_place at,
	const char *key, const char *kind, const char *text)
{
	struct spec_error line = {.at = at};
	char name[SPEC_PATH_MAX], message[sizeof(line.message)];

	if (options_has(source->args, "quiet"))
		return;
	snprintf(message, sizeof(message), "%s: %s", kind, text);
	term_clean(source->name, name, sizeof(name));
	term_clean(key, line.key, sizeof(line.key));
	term_clean(message, line.message, sizeof(line.message));
	spec_error_print(&line, name, ctl->output.err.file);
}

/* With --strict: the keys that are lost, as errors. */
static int refuse_lost(
	struct ctl *ctl, const struct spec_source *source, const struct deepspeed_import *import)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	int exit = 0;

	for (size_t i = 0; i < import->n_notes; i++) {
		const struct deepspeed_note *n = &import->notes[i];

		if (is_lost(n))
			spec_error_add(errors, n->at, n->key, "%s (--strict): %s",
				deepspeed_kind_name(n->kind), n->text);
	}
	if (errors->n > 0) {
		spec_source_report(&ctl->output, source, errors);
		exit = CTL_USAGE;
	}
	free(errors);
	return exit;
}

/* import_deepspeed_convert without the new text. */
static int read_source(
	struct ctl *ctl, const struct spec_source *source, struct deepspeed_import *import)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	const char **sets;
	size_t n_sets;
	int exit = 0;

	sets = options_all(source->args, "set", &n_sets);
	if (deepspeed_import(source->text, source->n, sets, n_sets, import, errors) != 0) {
		spec_source_report(&ctl->output, source, errors);
		exit = CTL_USAGE;
	} else if (options_has(source->args, "strict")) {
		exit = refuse_lost(ctl, source, import);
	}
	for (size_t i = 0; !exit && i < import->n_notes; i++) {
		const struct deepspeed_note *n = &import->notes[i];

		print_note(ctl, source, n->at, n->key, deepspeed_kind_name(n->kind), n->text);
	}
	free(sets);
	free(errors);
	return exit;
}

int import_deepspeed_convert(
	struct ctl *ctl, struct spec_source *source, struct deepspeed_import *import)
{
	const int exit = read_source(ctl, source, import);

	if (exit)
		return exit;
	free((char *)source->text);
	source->text = spec_draft_text(&import->draft);
	source->n = strlen(source->text);
	source->draft = &import->draft;
	return 0;
}

/* ---- the verb ---- */

static json_t *pack_notes(const struct deepspeed_import *import)
{
	json_t *notes = json_array();

	for (size_t i = 0; i < import->n_notes; i++) {
		const struct deepspeed_note *n = &import->notes[i];

		json_array_append_new(notes,
			json_pack("{s:i, s:i, s:o, s:s, s:o}", "line", n->at.line, "column",
				n->at.column, "key", text_json(n->key), "kind",
				deepspeed_kind_name(n->kind), "message", text_json(n->text)));
	}
	return notes;
}

/* Prints the keys that are missing on stderr, and returns them. */
static json_t *report_missing(struct ctl *ctl, const struct spec_source *source,
	const struct deepspeed_import *import, const char *const *sets, size_t n_sets)
{
	struct spec_draft_missing missing[SPEC_DRAFT_MISSING_MAX];
	const size_t n = spec_draft_missing(&import->draft, sets, n_sets, missing);
	json_t *keys = json_array();

	for (size_t i = 0; i < n; i++) {
		const char *key = spec_table[missing[i].key].key;
		char text[160];

		snprintf(text, sizeof(text), "a spec requires it; add it, as with %s",
			missing[i].advice);
		print_note(ctl, source, import->draft.at[missing[i].key], key, "missing", text);
		json_array_append_new(keys, json_string(key));
	}
	return keys;
}

static int print_spec(
	struct ctl *ctl, const struct spec_source *source, struct deepspeed_import *import)
{
	struct output *o = &ctl->output;
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	struct spec_options how = {.base_dir = source->folder};
	const char **sets = options_all(source->args, "set", &how.n_sets);
	json_t *object = NULL;
	char *text = NULL;
	int exit = 0;

	how.sets = sets;
	if (spec_draft_check(&import->draft, &how, errors) != 0) {
		spec_source_report(o, source, errors);
		exit = CTL_USAGE;
		goto out;
	}
	object = json_pack("{s:o, s:o}", "notes", pack_notes(import), "missing",
		report_missing(ctl, source, import, sets, how.n_sets));
	spec_draft_apply(&import->draft, sets, how.n_sets);
	text = spec_draft_text(&import->draft);
	json_object_set_new(object, "spec", json_loads(text, 0, NULL));
	if (!o->json)
		fputs(text, o->out.file);
	output_print(o, "import deepspeed", object, NULL);
out:
	json_decref(object);
	free(text);
	free(sets);
	free(errors);
	return exit;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct deepspeed_import import = {0};
	struct spec_source source;
	int exit;

	/* the spec is the requested output, not a message about it */
	if (options_has(args, "quiet"))
		ctl->output.out = term_detect(stdout);
	if (spec_source_load(args, &source, e) != 0)
		return e->exit;
	exit = read_source(ctl, &source, &import);
	if (!exit)
		exit = print_spec(ctl, &source, &import);
	deepspeed_finish(&import);
	spec_source_unload(&source);
	return exit;
}

const struct verb verb_import_deepspeed = {
	.name = "import deepspeed",
	.args = "FILE|-",
	.min_args = 1,
	.max_args = 1,
	.summary = "turn a DeepSpeed configuration into a run spec",
	.text = "Prints the spec on standard output: gpt2ctl import deepspeed ds_config.json "
		"--set model=gpt2 > spec.json. Keys with the same name and meaning are copied. "
		"Every other key has a line on standard error: mapped (the spec has another key or "
		"value with this meaning), auto (the value that replaces it, and its source), "
		"harmless (the key changes neither the training nor its speed), unsupported (the "
		"key changes the training, its memory or its speed, and gpt2d does not support "
		"it), or unknown (DeepSpeed has no such key). More lines report defaults of "
		"DeepSpeed that differ from those of gpt2d, and missing keys: model, data, seq_len "
		"and work are in no DeepSpeed file. With --strict, unsupported and unknown keys "
		"are errors. With --quiet, only the spec and errors are printed. See DEEPSPEED "
		"FILES in gpt2d-spec(5).",
	.options = options,
	.run = run,
};
