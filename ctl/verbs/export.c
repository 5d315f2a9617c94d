/* gpt2ctl export: the weights of a run's last checkpoint for Hugging Face's transformers. */
#include <errno.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/results/model_export.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"output", 'o', OPTION_STRING, "DIR", 0, 0,
		"the folder to write model.safetensors and config.json to; required"},
	{"dtype", 0, OPTION_CHOICE, "float32|bfloat16|float16", 0, 0,
		"the type of the weights: float32 (default) is exact, the others round"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static enum safetensors_dtype dtype_of(const char *name)
{
	return strcmp(name, "bfloat16") == 0   ? SAFETENSORS_BF16
		: strcmp(name, "float16") == 0 ? SAFETENSORS_F16
					       : SAFETENSORS_F32;
}

/* The checkpoint that a run's ID, or a path, names. */
static int find(struct ctl *ctl, const char *word, json_t **found, struct ctl_error *e)
{
	int64_t id;
	int exit;

	if (strchr(word, '/') || strcmp(word, ".") == 0 || strcmp(word, "..") == 0) {
		*found = json_pack("{s:n, s:s}", "id", "dir", word);
		return 0;
	}
	exit = verb_parse_id(word, &id, e);
	return exit ? exit
		    : client_ask(&ctl->link, METHOD_CHECKPOINT,
			      json_pack("{s:I}", "id", (json_int_t)id), found, e);
}

static int open_checkpoint(const char *dir, struct checkpoint **out, struct ctl_error *e)
{
	int rc = checkpoint_open_newest(dir, out, e->message, sizeof(e->message));

	if (rc == 0)
		return 0;
	e->exit = rc == -EACCES ? CTL_NOT_ALLOWED : rc == -ENOENT ? CTL_USAGE : CTL_TRANSPORT;
	if (rc == -EACCES)
		ctl_error_add(e,
			"run gpt2ctl as the user of gpt2d, or save checkpoints in a folder that "
			"you can read: checkpoint.dir");
	return e->exit;
}

static void print_exported(struct output *o, const json_t *exported)
{
	char parameters[FORMAT_BYTES], size[FORMAT_BYTES], path[4096];

	fprintf(o->out.file, "step %lld, %s parameters, %s: %s\n",
		(long long)format_int(exported, "step", 0),
		format_si((double)format_int(exported, "parameters", 0), parameters),
		format_size(format_int(exported, "bytes", 0), size),
		format_string(exported, "output", "", path, sizeof(path)));
}

/* Takes found. */
static int export_found(struct ctl *ctl, const struct options *args, json_t *found)
{
	const char *output = options_string(args, "output", "");
	const char *dir = json_string_value(json_object_get(found, "dir"));
	const char *dtype = options_string(args, "dtype", "float32");
	struct checkpoint *c = NULL;
	struct model_exported made;
	struct ctl_error e = {0};
	int exit = open_checkpoint(dir ? dir : "", &c, &e);

	if (!exit && checkpoint_verify(c, CHECKPOINT_MASTER, e.message, sizeof(e.message)))
		exit = e.exit = CTL_TRANSPORT;
	if (!exit)
		exit = model_export(c, dtype_of(dtype), output, &made, &e);
	if (!exit) {
		json_object_update_new(found,
			json_pack("{s:I, s:s, s:o, s:o, s:I, s:I}", "step", (json_int_t)c->step,
				"dtype", dtype, "dir", format_json_text(c->dir), "output",
				format_json_text(output), "parameters", (json_int_t)made.parameters,
				"bytes", (json_int_t)made.bytes));
		output_print(&ctl->output, "export", found, print_exported);
	}
	checkpoint_close(c);
	json_decref(found);
	return exit ? verb_fail(ctl, &e) : CTL_OK;
}

static int run(struct ctl *ctl, const struct options *args)
{
	struct ctl_error e = {0};
	json_t *found = NULL;

	if (!*options_string(args, "output", ""))
		ctl_error_set(&e, CTL_USAGE, "export: missing --output DIR");
	else if (find(ctl, args->words[0], &found, &e) == 0)
		return export_found(ctl, args, found);
	return verb_fail(ctl, &e);
}

const struct verb verb_export = {
	.name = "export",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "write a run's weights for Hugging Face's transformers",
	.text = "The weights are those of the run's last checkpoint; see checkpoint in "
		"gpt2d-spec(5). gpt2ctl reads the checkpoint's files itself, so it must run on the "
		"daemon's host and be allowed to read them. Before it writes anything, it compares "
		"the weights with the checkpoint's SHA-256. "
		"Instead of ID you can give the path of a checkpoint, or of a folder of "
		"checkpoints, if the path contains a '/'. Then export needs no gpt2d. "
		"To load the weights in Python: transformers.GPT2LMHeadModel.from_pretrained(DIR). "
		"export writes no tokenizer.",
	.options = options,
	.run = run,
};
