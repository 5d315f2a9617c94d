/* gpt2ctl data prepare: text files to token files, for training and validation. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/print/format.h"
#include "ctl/link/interrupt.h"
#include "ctl/data/token_file.h"
#include "ctl/data/tokenizer.h"
#include "ctl/verbs/verb.h"
#include "proto/file_kind.h"
#include "proto/host/memory.h"

enum { CHUNK_BYTES = 65536 };

static const struct option_row options[] = {
	{"output", 'o', OPTION_STRING, "OUT", 0, 0, "the file to write; required"},
	{"tokenizer", 't', OPTION_STRING, "NAME", 0, 0,
		"bytes (default): one token for each byte, ids 0 to 255, and 256 between files"},
	{"format", 0, OPTION_CHOICE, "headed|raw", 0, 0,
		"headed (default): llm.c's header and uint16 tokens; raw: the tokens alone, as "
		"nanoGPT"},
	{"val-fraction", 0, OPTION_REAL, "F", 0.0, 0.999,
		"write the last F of the tokens for validation, to OUT_val.bin, and the rest to "
		"OUT_train.bin"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct preparation {
	const struct tokenizer *tokenizer;
	bool headed;
	double val_fraction; /* 0: one file */
	int64_t n_tokens;    /* of both files, set when they are split */
	char *out_path, *val_path;
	struct token_file out, val;
	int64_t largest; /* token id seen, -1: none */
	json_t *inputs;
};

/* "a/b.bin" and "_val" to "a/b_val.bin"; malloc'd. */
static char *suffixed(const char *path, const char *suffix)
{
	const size_t n = strlen(path);
	const size_t stem = n > 4 && strcmp(path + n - 4, ".bin") == 0 ? n - 4 : n;

	return memory_printed("%.*s%s.bin", (int)stem, path, suffix);
}

static int settings(struct preparation *p, const struct options *args, struct ctl_error *e)
{
	const char *name = options_string(args, "tokenizer", "bytes");
	const char *out = options_string(args, "output", NULL);

	p->tokenizer = tokenizer_find(name);
	if (!p->tokenizer) {
		const char *near = tokenizer_suggest(name);

		return ctl_error_set(e, CTL_USAGE,
			"--tokenizer: %.80s: unknown tokenizer (expected bytes)%s%s", name,
			near ? "; did you mean " : "", near ? near : "");
	}
	p->headed = strcmp(options_string(args, "format", "headed"), "headed") == 0;
	if (!out || !*out)
		return ctl_error_set(e, CTL_USAGE, "data prepare: missing --output OUT");
	if (strcmp(out, "-") == 0)
		return ctl_error_set(e, CTL_USAGE,
			"--output: -: cannot write to standard output (./- is a file)");
	p->val_fraction = options_real(args, "val-fraction", 0.0);
	p->out_path = p->val_fraction > 0.0 ? suffixed(out, "_train") : memory_text(out);
	p->val_path = p->val_fraction > 0.0 ? suffixed(out, "_val") : NULL;
	return 0;
}

static bool same_file(int fd, const char *path)
{
	struct stat a, b;

	return path && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
		a.st_ino == b.st_ino && S_ISREG(a.st_mode);
}

static int encode_chunk(
	struct preparation *p, const unsigned char *bytes, size_t n, struct ctl_error *e)
{
	uint16_t tokens[CHUNK_BYTES];
	const size_t k = p->tokenizer->encode(bytes, n, tokens);

	for (size_t i = 0; i < k; i++) {
		if (tokens[i] > p->largest)
			p->largest = tokens[i];
	}
	return token_file_append(&p->out, tokens, k, e);
}

/* The token between two documents. */
static int separate(struct preparation *p, struct ctl_error *e)
{
	const uint16_t token = (uint16_t)p->tokenizer->separator;

	if (token > p->largest)
		p->largest = token;
	return token_file_append(&p->out, &token, 1, e);
}

/* What a file that is no text is, and what to do; NULL: it may be text. */
static const char *not_text(const unsigned char *bytes, size_t n)
{
	switch (file_kind(bytes, n)) {
	case FILE_KIND_GZIP:
		return "a gzip file; unpack it first: "
		       "gzip -dc FILE | gpt2ctl data prepare -o OUT -";
	case FILE_KIND_ZIP:
		return "a zip file; unpack it first";
	case FILE_KIND_NUMPY:
		return "a numpy file, not text";
	case FILE_KIND_TOKENS:
		return "already a token file; name it in data.train of a run spec";
	case FILE_KIND_OTHER:
		break;
	}
	return NULL;
}

static int read_stream(struct preparation *p, int fd, const char *name, struct ctl_error *e)
{
	const int64_t before = p->out.n_tokens;
	unsigned char chunk[CHUNK_BYTES];
	const char *what;
	int64_t bytes = 0;

	for (;;) {
		struct pollfd ready = {fd, POLLIN, 0};
		ssize_t n;

		if (interrupt_seen() || (interrupt_poll(&ready, 1, -1) < 0 && errno == EINTR))
			return ctl_error_set(
				e, CTL_CANCELLED, "data prepare: interrupted; nothing was written");
		n = read(fd, chunk, sizeof(chunk));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return ctl_error_set(e, CTL_USAGE, "%.800s: %s", name, strerror(errno));
		if (n == 0)
			break;
		what = bytes == 0 ? not_text(chunk, (size_t)n) : NULL;
		if (what)
			return ctl_error_set(e, CTL_USAGE, "%.800s: %s", name, what);
		bytes += n;
		if (encode_chunk(p, chunk, (size_t)n, e) != 0)
			return e->exit;
	}
	json_array_append_new(p->inputs,
		json_pack("{s:o, s:I, s:I}", "path", format_json_text(name), "bytes",
			(json_int_t)bytes, "tokens", (json_int_t)(p->out.n_tokens - before)));
	return 0;
}

static int read_input(struct preparation *p, const char *name, struct ctl_error *e)
{
	int fd, exit;

	if (strcmp(name, "-") == 0)
		return read_stream(p, STDIN_FILENO, "stdin", e);
	/* without O_NONBLOCK, a signal could not end the open of a pipe without a writer */
	fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return ctl_error_set(
			e, CTL_USAGE, "%.800s: %s", *name ? name : "\"\"", strerror(errno));
	if (same_file(fd, p->out_path) || same_file(fd, p->val_path))
		exit = ctl_error_set(
			e, CTL_USAGE, "%s: is also the output; choose another --output", name);
	else
		exit = read_stream(p, fd, name, e);
	close(fd);
	return exit;
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

	return json_pack("{s:s, s:o, s:I, s:I, s:s}", "use", use, "path", format_json_text(f->path),
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

/* Standard input can be read once. */
static int check_stdin(const struct options *args, struct ctl_error *e)
{
	int n = 0;

	for (size_t i = 0; i < args->n_words; i++)
		n += strcmp(args->words[i], "-") == 0;
	if (n <= 1)
		return 0;
	return ctl_error_set(e, CTL_USAGE,
		"data prepare: \"-\" was given %d times; standard input can be read once", n);
}

static int prepare(
	struct preparation *p, const struct options *args, json_t *files, struct ctl_error *e)
{
	if (check_stdin(args, e) != 0 || settings(p, args, e) != 0)
		return e->exit;
	if (token_file_create(&p->out, p->out_path, p->headed, e) != 0)
		return e->exit;
	for (size_t i = 0; i < args->n_words; i++) {
		if (i > 0 && separate(p, e) != 0)
			return e->exit;
		if (read_input(p, args->words[i], e) != 0)
			return e->exit;
	}
	return write_files(p, files, e);
}

static void print_prepared(struct output *o, const json_t *result)
{
	char path[4096], use[16], format[16], tokens[FORMAT_BYTES], size[FORMAT_BYTES];
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "files"), i, row) {
		fprintf(o->out.file, "%s: %s tokens, %s, %s, for %s\n",
			format_string(row, "path", "?", path, sizeof(path)),
			format_count(format_int(row, "tokens", 0), tokens),
			format_size(format_int(row, "bytes", 0), size),
			format_string(row, "format", "?", format, sizeof(format)),
			format_string(row, "use", "train", use, sizeof(use)));
	}
	fprintf(o->out.file, "tokenizer %s: vocab_size %lld, largest id found %lld\n",
		format_string(result, "tokenizer", "?", path, sizeof(path)),
		(long long)format_int(result, "vocab_size", 0),
		(long long)format_int(result, "largest_token", -1));
}

static int run(struct ctl *ctl, const struct options *args)
{
	struct preparation p = {.out = {.fd = -1}, .val = {.fd = -1}, .largest = -1};
	struct ctl_error e = {0};
	json_t *files = json_array(), *result;
	int exit;

	p.inputs = json_array();
	interrupt_begin();
	exit = prepare(&p, args, files, &e);
	if (exit == 0) {
		result = json_pack("{s:s, s:I, s:I, s:O, s:O}", "tokenizer", p.tokenizer->name,
			"vocab_size", (json_int_t)p.tokenizer->vocab_size, "largest_token",
			(json_int_t)p.largest, "inputs", p.inputs, "files", files);
		output_print(&ctl->output, "data prepare", result, print_prepared);
		json_decref(result);
	}
	token_file_abandon(&p.out);
	token_file_abandon(&p.val);
	free(p.out_path);
	free(p.val_path);
	json_decref(p.inputs);
	json_decref(files);
	return exit ? verb_fail(ctl, &e) : CTL_OK;
}

const struct verb verb_data_prepare = {
	.name = "data prepare",
	.args = "IN...",
	.min_args = 1,
	.max_args = -1,
	.summary = "turn text files into a token file that a run can train on",
	.text = "Each file is a document. The documents are joined in the given order, with the "
		"tokenizer's separator between them; \"-\", once, is standard input. Files are "
		"read as they are, except for gzip, zip, numpy and token files, which are refused. "
		"Unpack a compressed file first: gzip -dc FILE | gpt2ctl data prepare -o OUT -. "
		"If data prepare fails, it leaves nothing behind, and an older file stays. The "
		"model's vocab_size must be at least the one that is printed.",
	.options = options,
	.run = run,
};
