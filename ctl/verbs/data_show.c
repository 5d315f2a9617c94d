/* gpt2ctl data show: what is in a token file. */
#include <stdlib.h>
#include <string.h>

#include "ctl/data/token_reader.h"
#include "proto/utf8.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/verbs/data_inputs.h"
#include "proto/host/memory.h"
#include "proto/text.h"

enum { FIRST_DEFAULT = 24, FIRST_MAX = 100000 };

static const struct option_row options[] = {
	{"tokenizer", 't', OPTION_STRING, "bytes|gpt2", 0, 0,
		"how to decode (default: bytes if no ID is above 256, else "
		"gpt2); " DATA_INPUTS_TOKENIZER},
	{"vocab", 0, OPTION_STRING, "PATH", 0, 0, DATA_INPUTS_VOCAB},
	{"first", 'n', OPTION_INT, "N", 0, FIRST_MAX, "show the first N tokens (default 24)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* The text of n tokens, as a JSON string. */
static json_t *decoded(const struct tokenizer *t, const uint16_t *ids, size_t n)
{
	unsigned char token[TOKENIZER_TOKEN_BYTES], *text;
	char *bytes;
	size_t n_bytes;
	FILE *stream = memory_stream(&bytes, &n_bytes);
	json_t *value;
	int64_t replaced;

	for (size_t i = 0; i < n; i++)
		fwrite(token, 1, t->kind->decode(t, ids[i], token), stream);
	memory_stream_end(stream);
	text = memory_resized(NULL, 3 * n_bytes + 1);
	n_bytes = utf8_replace((unsigned char *)bytes, n_bytes, text, &replaced);
	value = json_stringn((const char *)text, n_bytes);
	free(bytes);
	free(text);
	return value;
}

/* The requested tokenizer, or the one that fits. Without a vocabulary there is no text. */
static int choose(struct tokenizer *t, const struct options *args, int32_t largest, bool *found,
	struct ctl_error *e)
{
	const char *vocab = options_string(args, "vocab", NULL);
	const char *name =
		options_string(args, "tokenizer", largest <= 256 && !vocab ? "bytes" : "gpt2");

	*found = tokenizer_open(t, name, vocab, e) == 0;
	if (*found || vocab || options_has(args, "tokenizer"))
		return e->exit;
	*e = (struct ctl_error){0};
	return 0;
}

static json_t *describe(const struct token_reader *r, const struct token_summary *s)
{
	return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:s}", "path", text_json(r->path),
		"format", r->headed ? "headed" : "raw", "bytes", (json_int_t)r->bytes, "tokens",
		(json_int_t)r->n_tokens, "largest_token", (json_int_t)s->largest, "distinct_tokens",
		(json_int_t)s->distinct, "sha256", s->sha256);
}

static int show(const char *path, const struct options *args, struct token_reader *r,
	struct token_summary *s, json_t **result, struct ctl_error *e)
{
	const int64_t wanted = options_int(args, "first", FIRST_DEFAULT);
	uint16_t *ids;
	struct tokenizer t = {0};
	json_t *list = NULL;
	bool found = false;
	size_t n;

	if (token_reader_open(r, path, e) != 0)
		return e->exit;
	if (r->n_tokens == 0)
		return ctl_error_set(e, CTL_USAGE, "%s: no tokens", path);
	if (token_reader_summarize(r, s, e) != 0 || choose(&t, args, s->largest, &found, e) != 0)
		return e->exit;
	n = (size_t)(wanted < r->n_tokens ? wanted : r->n_tokens);
	ids = memory_zeroed(n + 1, sizeof(*ids));
	if (token_reader_read(r, 0, n, ids, e) == 0) {
		list = json_array();
		for (size_t i = 0; i < n; i++)
			json_array_append_new(list, json_integer(ids[i]));
		*result = describe(r, s);
		json_object_set_new(*result, "first_tokens", list);
		json_object_set_new(
			*result, "tokenizer", found ? json_string(t.kind->name) : json_null());
		json_object_set_new(*result, "separators",
			found ? json_integer(s->counts[t.separator]) : json_null());
		json_object_set_new(*result, "text", found ? decoded(&t, ids, n) : json_null());
	}
	tokenizer_close(&t);
	free(ids);
	return e->exit;
}

static void print_text(struct output *o, const json_t *result)
{
	const json_t *text = json_object_get(result, "text");
	char *quoted, *clean;

	if (!json_is_string(text)) {
		fputs("text       not shown: no vocabulary found; name one with --vocab\n",
			o->out.file);
		return;
	}
	quoted = json_dumps(text, JSON_ENCODE_ANY);
	clean = memory_resized(NULL, strlen(quoted) + 1);
	term_clean(quoted, clean, strlen(quoted) + 1);
	fprintf(o->out.file, "text       %s\n", clean);
	free(clean);
	free(quoted);
}

static void print_shown(struct output *o, const json_t *result)
{
	const json_t *ids = json_object_get(result, "first_tokens"), *id;
	size_t i;

	members_print(o->out.file, result,
		"{path}: {tokens:count} tokens, {bytes:size}, {format}\n"
		"sha256     {sha256}\n"
		"ids        largest {largest_token}, {distinct_tokens:count} different ones\n"
		"[tokenizer  {tokenizer}, separators of documents: {separators:count}\n]");
	if (json_array_size(ids) == 0)
		return;
	fputs("first", o->out.file);
	json_array_foreach((json_t *)ids, i, id)
		fprintf(o->out.file, "%s%lld", i == 0 ? "      " : " ",
			(long long)json_integer_value(id));
	fputc('\n', o->out.file);
	print_text(o, result);
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct token_summary *s = memory_zeroed(1, sizeof(*s));
	struct token_reader r = {.fd = -1};
	json_t *result = NULL;
	int exit;

	interrupt_begin();
	exit = show(args->words[0], args, &r, s, &result, e);
	if (exit == 0)
		output_print(&ctl->output, "data show", result, print_shown);
	json_decref(result);
	token_reader_close(&r);
	free(s);
	return exit;
}

const struct verb verb_data_show = {
	.name = "data show",
	.args = "FILE",
	.min_args = 1,
	.max_args = 1,
	.summary = "print what is in a token file",
	.text = "Prints the number of tokens, the format, the SHA-256 of the file, the largest ID, "
		"the first tokens and their text. The file may be from data prepare, llm.c or "
		"nanoGPT. Without a vocabulary, GPT-2's tokens are shown as IDs only.",
	.options = options,
	.run = run,
};
