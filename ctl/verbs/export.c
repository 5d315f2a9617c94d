/*
 * gpt2ctl export: the weights of a run's last checkpoint as a folder that Hugging Face's
 * transformers (4.x) loads with GPT2LMHeadModel.from_pretrained: model.safetensors and config.json.
 *
 * Conv1D of transformers keeps (inputs, outputs): those four matrices of a block are transposed.
 * The vocabulary is the real one, without the padded rows. An untied head is lm_head.weight.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/print/members.h"
#include "ctl/verbs/verb.h"
#include "proto/artifact.h"
#include "proto/checkpoint.h"
#include "proto/host/memory.h"
#include "proto/safetensors.h"
#include "proto/text.h"

#define EXPORT_WEIGHTS "model.safetensors"
#define EXPORT_CONFIG  "config.json"

static const struct option_row options[] = {
	{"output", 'o', OPTION_STRING, "DIR", 0, 0,
		"the folder to write model.safetensors and config.json to; required"},
	{"dtype", 0, OPTION_CHOICE, "float32|bfloat16|float16", 0, 0,
		"the type of the weights: float32 (default) is exact, the others round"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static const char *const dtype_names[] = {[SAFETENSORS_F32] = "float32",
	[SAFETENSORS_F16] = "float16",
	[SAFETENSORS_BF16] = "bfloat16"};

enum { NAME_BYTES = 96 };

/* How a tensor of the arena lies in the file. */
enum layout { LAYOUT_VECTOR, LAYOUT_MATRIX, LAYOUT_VOCABULARY, LAYOUT_CONV1D };

struct exported {
	int64_t parameters; /* of the real vocabulary */
	int64_t bytes;      /* of model.safetensors */
};

struct export
{
	struct artifact_source source; /* of model.safetensors */
	int64_t at;                    /* the next tensor; -1: the header */
	char *buffer;                  /* has the bytes of the last one */
	const struct checkpoint *c;
	const json_t *model; /* of the manifest */
	enum safetensors_dtype dtype;
	struct safetensors_tensor *tensor;
	char(*name)[NAME_BYTES];
	enum layout *layout;
	int64_t vocab;
	struct ctl_error *e;
};

/* ---- content of the file ---- */

static bool ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);

	return n >= m && strcmp(name + n - m, end) == 0;
}

static enum layout layout_of(const char *name)
{
	static const char *const conv1d[] = {
		"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"};

	for (size_t i = 0; i < sizeof(conv1d) / sizeof(conv1d[0]); i++)
		if (ends_with(name, conv1d[i]))
			return LAYOUT_CONV1D;
	if (strcmp(name, "wte.weight") == 0 || strcmp(name, "lm_head.weight") == 0)
		return LAYOUT_VOCABULARY;
	return strcmp(name, "wpe.weight") == 0 ? LAYOUT_MATRIX : LAYOUT_VECTOR;
}

static void plan_tensor(struct export *x, int64_t i)
{
	const struct checkpoint_tensor *from = &x->c->tensors[i];
	struct safetensors_tensor *to = &x->tensor[i];
	const bool head = strcmp(from->name, "lm_head.weight") == 0;

	snprintf(x->name[i], NAME_BYTES, "%s%s", head ? "" : "transformer.", from->name);
	x->layout[i] = layout_of(from->name);
	*to = (struct safetensors_tensor){.name = x->name[i],
		.dtype = x->dtype,
		.n_dims = 2,
		.dim = {from->rows, from->cols}};
	if (x->layout[i] == LAYOUT_VOCABULARY) {
		to->dim[0] = x->vocab;
	} else if (x->layout[i] == LAYOUT_CONV1D) {
		to->dim[0] = from->cols;
		to->dim[1] = from->rows;
	} else if (x->layout[i] == LAYOUT_VECTOR) {
		to->n_dims = 1;
		to->dim[0] = from->rows * from->cols;
	}
	to->elems = to->n_dims == 1 ? to->dim[0] : to->dim[0] * to->dim[1];
	to->bytes = to->elems * safetensors_elem_bytes(x->dtype);
}

/* A manifest of another program may lack required members. */
static int check_model(struct export *x)
{
	static const char *const sizes[] = {
		"n_layer", "n_head", "n_embd", "vocab_size", "n_positions"};
	const struct checkpoint_tensor *wte = checkpoint_tensor(x->c, "wte.weight");

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (json_integer_value(json_object_get(x->model, sizes[i])) < 1)
			return ctl_error_set(x->e, CTL_TRANSPORT,
				"%s/" CHECKPOINT_MANIFEST ": model.%s is missing", x->c->dir,
				sizes[i]);
	x->vocab = json_integer_value(json_object_get(x->model, "vocab_size"));
	if (!wte || wte->rows < x->vocab)
		return ctl_error_set(x->e, CTL_TRANSPORT,
			"%s/" CHECKPOINT_MANIFEST ": no wte.weight of %" PRId64 " tokens",
			x->c->dir, x->vocab);
	return 0;
}

/* ---- model.safetensors ---- */

/* The tensor in the file's type and layout, in x->buffer: its bytes, or NULL with e. */
static const char *read_tensor(struct export *x, int64_t i)
{
	const struct checkpoint_tensor *from = &x->c->tensors[i];
	const int64_t n = x->tensor[i].elems;
	float *values = memory_zeroed(2 * (size_t)n, sizeof(*values)), *turned = values + n;

	x->buffer = (char *)values;
	if (checkpoint_read(x->c, CHECKPOINT_MASTER, from->first, n, values, x->e->message,
		    sizeof(x->e->message))) {
		x->e->exit = CTL_TRANSPORT;
		return NULL;
	}
	if (x->layout[i] == LAYOUT_CONV1D) {
		safetensors_transpose(turned, values, from->rows, from->cols);
		memcpy(values, turned, (size_t)n * sizeof(*values));
	}
	safetensors_convert(x->dtype, values, n, turned);
	return (const char *)turned;
}

/* The header, then each tensor: see artifact_write_from. */
static int next_bytes(struct artifact_source *source, const char **bytes, size_t *n)
{
	struct export *x = (struct export *)source;
	const int64_t i = x->at++;

	free(x->buffer);
	x->buffer = NULL;
	*n = 0;
	if (i == x->c->n_tensors)
		return 0;
	if (i < 0) {
		*bytes = x->buffer = safetensors_header(x->tensor, (size_t)x->c->n_tensors, n);
		return 0;
	}
	*bytes = read_tensor(x, i);
	*n = (size_t)x->tensor[i].bytes;
	return *bytes ? 0 : -EIO;
}

static int write_weights(struct export *x, const char *dir, int64_t *bytes)
{
	const int rc = artifact_write_from(dir, EXPORT_WEIGHTS, &x->source, 0, bytes);

	free(x->buffer);
	if (rc && !x->e->exit)
		ctl_error_set(x->e, CTL_TRANSPORT, "%s/" EXPORT_WEIGHTS ": %s", dir, strerror(-rc));
	return x->e->exit;
}

/* ---- config.json ---- */

static json_t *size_of(const struct export *x, const char *key)
{
	return json_incref(json_object_get(x->model, key));
}

static json_t *make_config(const struct export *x)
{
	const char *gelu = json_string_value(json_object_get(x->model, "gelu"));
	const double dropout = json_number_value(json_object_get(x->model, "dropout"));
	/* GPT-2's vocabulary and that of bytes end with the token between documents */
	const bool separated = x->vocab == 50257 || x->vocab == 257;
	json_t *separator = separated ? json_integer((json_int_t)x->vocab - 1) : json_null();
	json_t *config = json_pack("{s:[s], s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:n}",
		"architectures", "GPT2LMHeadModel", "model_type", "gpt2", "n_layer",
		size_of(x, "n_layer"), "n_head", size_of(x, "n_head"), "n_embd",
		size_of(x, "n_embd"), "vocab_size", size_of(x, "vocab_size"), "n_positions",
		size_of(x, "n_positions"), "n_ctx", size_of(x, "n_positions"), "n_inner");

	json_object_update_new(config,
		json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:o, s:O, s:s}",
			"activation_function",
			gelu && strcmp(gelu, "exact") == 0 ? "gelu" : "gelu_new", "resid_pdrop",
			dropout, "embd_pdrop", dropout, "attn_pdrop", dropout, "layer_norm_epsilon",
			1e-5, "initializer_range", 0.02, "scale_attn_weights", true,
			"tie_word_embeddings", checkpoint_tensor(x->c, "lm_head.weight") == NULL,
			"bos_token_id", separator, "eos_token_id", separator, "torch_dtype",
			dtype_names[x->dtype]));
	return config;
}

static int write_config(struct export *x, const char *dir)
{
	json_t *config = make_config(x);
	char *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
	int rc = artifact_write(dir, EXPORT_CONFIG, text, strlen(text));

	free(text);
	json_decref(config);
	if (rc < 0)
		return ctl_error_set(
			x->e, CTL_TRANSPORT, "%s/" EXPORT_CONFIG ": %s", dir, strerror(-rc));
	return 0;
}

/* ---- both ---- */

static int make_folder(const char *dir, bool *made, struct ctl_error *e)
{
	static const char *const names[] = {EXPORT_WEIGHTS, EXPORT_CONFIG};
	char path[PATH_MAX];
	struct stat st;

	*made = mkdir(dir, 0777) == 0;
	if (!*made && errno == ENOENT)
		return ctl_error_set(e, CTL_USAGE, "%s: parent directory does not exist", dir);
	if (stat(dir, &st) < 0)
		return ctl_error_set(e, CTL_TRANSPORT, "%s: %s", dir, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return ctl_error_set(e, CTL_USAGE, "%s: not a directory", dir);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%.4000s/%s", dir, names[i]);
		if (access(path, F_OK) == 0)
			return ctl_error_set(e, CTL_USAGE,
				"%s: already exists\nchoose another folder, or remove it first",
				path);
	}
	return 0;
}

/*
 * Writes both files to dir, which is created if it does not exist; existing files are not replaced.
 * Each file is complete or absent. 0, or CTL_USAGE or CTL_TRANSPORT with e.
 */
static int export_model(const struct checkpoint *c, enum safetensors_dtype dtype, const char *dir,
	struct exported *out, struct ctl_error *e)
{
	struct export x = {.source = {.next = next_bytes},
		.at = -1,
		.c = c,
		.model = json_object_get(c->manifest, "model"),
		.dtype = dtype,
		.e = e};
	const size_t n = (size_t)c->n_tensors;
	struct exported made = {0};
	bool new_folder;
	int exit = check_model(&x);

	if (!exit)
		exit = make_folder(dir, &new_folder, e);
	if (exit)
		return exit;
	x.tensor = memory_zeroed(n + 1, sizeof(*x.tensor));
	x.name = memory_zeroed(n + 1, sizeof(*x.name));
	x.layout = memory_zeroed(n + 1, sizeof(*x.layout));
	for (int64_t i = 0; i < c->n_tensors; i++) {
		plan_tensor(&x, i);
		made.parameters += x.tensor[i].elems;
	}
	exit = write_weights(&x, dir, &made.bytes);
	if (!exit)
		exit = write_config(&x, dir);
	free(x.tensor);
	free(x.name);
	free(x.layout);
	if (!exit)
		*out = made;
	else if (new_folder)
		rmdir(dir);
	return exit;
}

/* ---- the verb ---- */

/* The checkpoint of a run's ID, or of a path. */
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
	char *found = NULL;
	int rc = checkpoint_find(dir, &found, e->message, sizeof(e->message));

	if (rc == 0)
		rc = checkpoint_open(found, out, e->message, sizeof(e->message));
	free(found);
	if (rc == 0)
		return 0;
	e->exit = rc == -EACCES                   ? CTL_NOT_ALLOWED
		: rc == -ENOENT || rc == -ENODATA ? CTL_USAGE
						  : CTL_TRANSPORT;
	if (rc == -EACCES)
		ctl_error_add(e,
			"run gpt2ctl as the user of gpt2d, or save checkpoints in a folder that "
			"you can read: checkpoint.dir");
	return e->exit;
}

static void print_exported(struct output *o, const json_t *exported)
{
	members_print(o->out.file, exported,
		"step {step}[ of {steps}], {parameters:si} parameters, {bytes:size}: {output|}\n");
}

/* A run in progress removes its older checkpoints. */
static void explain_removed(const struct checkpoint *c, const json_t *found, struct ctl_error *e)
{
	char path[sizeof(c->dir) + sizeof("/" CHECKPOINT_MANIFEST)];

	snprintf(path, sizeof(path), "%s/" CHECKPOINT_MANIFEST, c->dir);
	if (json_is_integer(json_object_get(found, "id")) && access(path, F_OK) < 0)
		ctl_error_add(e, "the run has removed this checkpoint meanwhile; run export again");
}

/* null: the run's work is not given in steps. */
static json_t *steps_of(const struct checkpoint *c)
{
	const json_t *work = json_object_get(json_object_get(c->manifest, "spec"), "work");
	json_t *steps = json_object_get(work, "optimizer_steps");

	return steps ? json_incref(steps) : json_null();
}

/* Takes found. */
static int export_found(
	struct ctl *ctl, const struct options *args, json_t *found, struct ctl_error *e)
{
	const char *output = options_string(args, "output", "");
	const char *dir = json_string_value(json_object_get(found, "dir"));
	const char *dtype = options_string(args, "dtype", "float32");
	enum safetensors_dtype type = SAFETENSORS_F32;
	struct checkpoint *c = NULL;
	struct exported made;
	int exit = open_checkpoint(dir ? dir : "", &c, e);

	if (!exit && checkpoint_verify(c, CHECKPOINT_MASTER, e->message, sizeof(e->message)))
		exit = e->exit = CTL_TRANSPORT;
	while (strcmp(dtype_names[type], dtype) != 0)
		type++;
	if (!exit)
		exit = export_model(c, type, output, &made, e);
	if (exit && c)
		explain_removed(c, found, e);
	if (!exit) {
		json_object_update_new(found,
			json_pack("{s:I, s:o, s:s, s:o, s:o, s:I, s:I}", "step",
				(json_int_t)c->step, "steps", steps_of(c), "dtype", dtype, "dir",
				text_json(c->dir), "output", text_json(output), "parameters",
				(json_int_t)made.parameters, "bytes", (json_int_t)made.bytes));
		output_print(&ctl->output, "export", found, print_exported);
	}
	checkpoint_close(c);
	json_decref(found);
	return exit;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	json_t *found = NULL;

	if (!*options_string(args, "output", ""))
		ctl_error_set(e, CTL_USAGE, "export: missing --output DIR");
	else if (find(ctl, args->words[0], &found, e) == 0)
		return export_found(ctl, args, found, e);
	return e->exit;
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
		"Instead of ID you can give the path of a checkpoint, of a folder of checkpoints, "
		"or of a run, if the path contains a '/'. Then export needs no gpt2d. "
		"To load the weights in Python: transformers.GPT2LMHeadModel.from_pretrained(DIR). "
		"export writes no tokenizer.",
	.options = options,
	.run = run,
};
