/* gpt2ctl data prepare: text files to token files, for training and validation. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/data/token_file.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/verbs/data_inputs.h"
#include "proto/host/memory.h"
#include "proto/text.h"

/* A folder of the package gpt2d: its service can read there, but not in home folders. */
#define DATA_FOLDER "/var/lib/gpt2d-data"

static const struct option_row options[] = {
	{"output", 'o', OPTION_STRING, "OUT", 0, 0,
		"the file to write (default, where gpt2d is installed as a service: " DATA_FOLDER
		"/IN.bin)"},
	{"tokenizer", 't', OPTION_STRING, "bytes|gpt2", 0, 0,
		"default bytes; " DATA_INPUTS_TOKENIZER},
	{"vocab", 0, OPTION_STRING, "PATH", 0, 0, DATA_INPUTS_VOCAB},
	{"field", 0, OPTION_STRING, "NAME", 0, 0, DATA_INPUTS_FIELD},
	{"limit-docs", 0, OPTION_INT, "N", 1, 9e15, DATA_INPUTS_LIMIT},
	{"threads", 0, OPTION_INT, "N", 1, ENCODER_THREADS_MAX, DATA_INPUTS_THREADS},
	{"format", 0, OPTION_CHOICE, "headed|raw", 0, 0,
		"headed (default): llm.c's header and uint16 tokens; raw: the tokens alone, as in "
		"nanoGPT"},
	{"val-fraction", 0, OPTION_REAL, "F", 0.0, 0.999,
		"write the last part of the tokens, the fraction F, to OUT_val.bin for validation, "
		"and the rest to OUT_train.bin"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct preparation {
	struct data_inputs in;
	bool headed;
	double val_fraction; /* 0: one file */
	int64_t n_tokens;    /* of both files, set when they are split */
	char *out_path, *val_path;
	struct token_file out, val;
};

/* "a/b.bin" and "_val" to "a/b_val.bin"; malloc'd. */
static char *suffixed(const char *path, const char *suffix)
{
	const size_t n = strlen(path);
	const size_t stem = n > 4 && strcmp(path + n - 4, ".bin") == 0 ? n - 4 : n;

	return memory_printed("%.*s%s.bin", (int)stem, path, suffix);
}

static int take(void *of, const uint16_t *ids, size_t n, struct ctl_error *e)
{
	struct preparation *p = of;

	return token_file_append(&p->out, ids, n, e);
}

/*
 * "DATA_FOLDER/a.train.bin" for "x/a.train.txt", readable for gpt2d's group with any umask; NULL:
 * this user may not write there. malloc'd.
 */
static char *default_output(const char *input)
{
	const char *slash = strrchr(input, '/'), *name = slash ? slash + 1 : input;
	const char *end = strrchr(name, '.');

	if (strcmp(input, "-") == 0 || *name == '\0' || access(DATA_FOLDER, W_OK | X_OK) != 0)
		return NULL;
	umask(umask(0) & ~(mode_t)S_IRGRP);
	return memory_printed(DATA_FOLDER "/%.*s.bin",
		(int)(end && end > name ? (size_t)(end - name) : strlen(name)), name);
}

static int find_output(struct preparation *p, const struct options *args, struct ctl_error *e)
{
	const char *named = options_string(args, "output", NULL);
	char *out = named ? memory_text(named) : default_output(args->words[0]);
	int exit = 0;

	p->val_fraction = options_real(args, "val-fraction", 0.0);
	if (!out || !*out) {
		exit = ctl_error_set(e, CTL_USAGE, "data prepare: missing --output OUT");
	} else if (strcmp(out, "-") == 0) {
		exit = ctl_error_set(e, CTL_USAGE,
			"--output: -: cannot write to standard output (./- is a file)");
	} else {
		p->out_path = p->val_fraction > 0.0 ? suffixed(out, "_train") : memory_text(out);
		p->val_path = p->val_fraction > 0.0 ? suffixed(out, "_val") : NULL;
	}
	free(out);
	return exit;
}

static int settings(struct preparation *p, const struct options *args, struct ctl_error *e)
{
	p->headed = strcmp(options_string(args, "format", "headed"), "headed") == 0;
	if (find_output(p, args, e) != 0)
		return e->exit;
	p->in.verb = "data prepare";
	p->in.name = p->out_path;
	p->in.take = take;
	p->in.of = p;
	if (data_inputs_open(&p->in, args, 0, e) != 0)
		return e->exit;
	documents_refuse(p->in.documents, p->out_path, p->val_path);
	return 0;
}

/* A training sequence needs a token and the one after it. */
static int check_tokens(
	const struct preparation *p, const char *path, int64_t n, struct ctl_error *e)
{
	if (n >= 2)
		return 0;
	if (p->val_fraction > 0.0)
		return ctl_error_set(e, CTL_USAGE,
			"--val-fraction: %g of %lld tokens: %s: %lld tokens, at least 2 needed",
			p->val_fraction, (long long)p->n_tokens, path, (long long)n);
	return ctl_error_set(
		e, CTL_USAGE, "%s: %lld tokens, at least 2 needed", path, (long long)n);
}

static int split(struct preparation *p, struct ctl_error *e)
{
	const int64_t n_val = (int64_t)((double)p->out.n_tokens * p->val_fraction);

	p->n_tokens = p->out.n_tokens;
	if (check_tokens(p, p->val_path, n_val, e) != 0)
		return e->exit;
	if (token_file_create(&p->val, p->val_path, p->headed, e) != 0)
		return e->exit;
	return token_file_move_tail(&p->out, n_val, &p->val, e);
}

static json_t *file_row(const char *use, const struct token_file *f)
{
	const int64_t bytes = (f->headed ? TOKEN_FILE_HEADER_BYTES : 0) + f->n_tokens * 2;

	return json_pack("{s:s, s:o, s:I, s:I, s:s}", "use", use, "path", text_json(f->path),
		"tokens", (json_int_t)f->n_tokens, "bytes", (json_int_t)bytes, "format",
		f->headed ? "headed" : "raw");
}

static int write_files(struct preparation *p, json_t *files, struct ctl_error *e)
{
	const bool two = p->val_fraction > 0.0;

	if (two && split(p, e) != 0)
		return e->exit;
	if (check_tokens(p, p->out_path, p->out.n_tokens, e) != 0)
		return e->exit;
	json_array_append_new(files, file_row("train", &p->out));
	if (two)
		json_array_append_new(files, file_row("val", &p->val));
	if (two && token_file_commit(&p->val, e) != 0)
		return e->exit;
	return token_file_commit(&p->out, e);
}

static int prepare(struct preparation *p, const struct options *args, const struct term *term,
	json_t *files, struct ctl_error *e)
{
	if (settings(p, args, e) != 0)
		return e->exit;
	if (token_file_create(&p->out, p->out_path, p->headed, e) != 0)
		return e->exit;
	if (data_inputs_encode(&p->in, term, e) != 0)
		return e->exit;
	return write_files(p, files, e);
}

static void print_prepared(struct output *o, const json_t *result)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "files"), i, row)
		members_print(o->out.file, row,
			"{path}: {tokens:count} tokens, {bytes:size}, {format}, for {use}\n");
	members_print(o->out.file, result,
		"tokenizer {tokenizer}: vocab_size {vocab_size}, largest id found {largest_token}\n"
		"[vocabulary {vocabulary}\n]");
}

static json_t *result_of(const struct preparation *p, const json_t *files)
{
	const struct tokenizer *t = &p->in.tokenizer;

	return json_pack("{s:s, s:o, s:I, s:I, s:I, s:o, s:O}", "tokenizer", t->kind->name,
		"vocabulary", t->source ? text_json(t->source) : json_null(), "vocab_size",
		(json_int_t)t->vocab_size, "largest_token", (json_int_t)p->in.largest, "documents",
		(json_int_t)documents_count(p->in.documents), "inputs", data_inputs_json(&p->in),
		"files", files);
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct preparation p = {.out = {.fd = -1}, .val = {.fd = -1}};
	const struct term term = options_has(args, "quiet") ? term_nowhere() : ctl->output.err;
	json_t *files = json_array(), *result;
	int exit;

	interrupt_begin();
	exit = prepare(&p, args, &term, files, e);
	if (exit == CTL_CANCELLED)
		ctl_error_set(e, exit, "data prepare: interrupted; nothing was written");
	if (exit == 0) {
		result = result_of(&p, files);
		output_print(&ctl->output, "data prepare", result, print_prepared);
		data_inputs_note(&ctl->output, &p.in);
		json_decref(result);
	}
	token_file_abandon(&p.out);
	token_file_abandon(&p.val);
	data_inputs_finish(&p.in);
	free(p.out_path);
	free(p.val_path);
	json_decref(files);
	return exit;
}

const struct verb verb_data_prepare = {
	.name = "data prepare",
	.args = "IN...",
	.min_args = 1,
	.max_args = -1,
	.summary = "turn text files into a token file that a run can train on",
	.text = "A text file is one document. In a JSON Lines file, each line is one document. The "
		"documents are joined in the given order, with the tokenizer's separator; \"-\" is "
		"standard input and may be given once. gzip and Zstandard files are unpacked. With "
		"--tokenizer gpt2, bytes that are not UTF-8 become U+FFFD, as in Python with "
		"errors=\"replace\". If data prepare fails, it writes no file, and an older file "
		"stays. The model's vocab_size must be at least the printed one. "
		"etc/data/README.md (installed as share/gpt2d/data/README.md) says where to get "
		"GPT-2's vocabulary and two data sets. data show prints what is in a token file, "
		"and data verify checks it.",
	.options = options,
	.run = run,
};
