/* gpt2ctl generate: continue a text with the weights of a run's last checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "ctl/data/tokenizer.h"
#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/verbs/verb.h"
#include "proto/host/memory.h"
#include "proto/text.h"

enum { VOCAB_BYTES = 257, VOCAB_GPT2 = 50257 };

static const struct option_row options[] = {
	{"prompt", 'p', OPTION_STRING, "TEXT", 0, 0,
		"the text to continue (default: none; the model begins a new document)"},
	{"prompt-ids", 0, OPTION_STRING, "LIST", 0, 0,
		"the prompt as token IDs with commas between them; the result is IDs too"},
	{"tokens", 'n', OPTION_INT, "N", 1, PROTOCOL_PROMPT_MAX,
		"the largest number of tokens to add (default 50)"},
	{"temperature", 0, OPTION_REAL, "T", 0, 1e6,
		"divide the logits by T and draw; 0 (default): always the most likely token"},
	{"top-k", 0, OPTION_INT, "K", 0, 65536,
		"draw from the K most likely tokens; 0 (default): from all"},
	{"seed", 0, OPTION_INT, "S", 0, 9007199254740992.0, "the seed of the draws (default 0)"},
	{"tokenizer", 't', OPTION_STRING, "NAME", 0, 0,
		"bytes or gpt2 (default: by the size of the model's vocabulary)"},
	{"vocab", 0, OPTION_STRING, "PATH", 0, 0, "GPT-2's vocabulary, as for data prepare"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct generating {
	const struct options *args;
	struct tokenizer tokenizer; /* kind NULL: IDs */
	json_t *prompt;
	struct ctl_error *e;
};

/* ---- prompt ---- */

static int read_ids(struct generating *g, const char *list)
{
	const char *at = list;
	char *end;

	while (*at) {
		const long id = strtol(at, &end, 10);

		if (end == at || id < 0 || id > UINT16_MAX || (*end != ',' && *end != '\0'))
			return ctl_error_set(g->e, CTL_USAGE,
				"--prompt-ids: %.80s: a token ID from 0 to 65535 expected", at);
		json_array_append_new(g->prompt, json_integer(id));
		at = *end ? end + 1 : end;
	}
	return json_array_size(g->prompt) > 0
		? 0
		: ctl_error_set(g->e, CTL_USAGE, "--prompt-ids: at least one ID expected");
}

static int open_tokenizer(struct generating *g, int64_t vocab)
{
	const char *name = options_string(g->args, "tokenizer",
		vocab == VOCAB_BYTES          ? "bytes"
			: vocab == VOCAB_GPT2 ? "gpt2"
					      : NULL);

	if (!name)
		return ctl_error_set(g->e, CTL_USAGE,
			"generate: the model has %lld tokens; no tokenizer is known for them\n"
			"name one with --tokenizer, or give the prompt as --prompt-ids",
			(long long)vocab);
	return tokenizer_open(&g->tokenizer, name, options_string(g->args, "vocab", NULL), g->e);
}

/* A document begins after the token that separates two. */
static void encode(struct generating *g, const char *text)
{
	const struct tokenizer *t = &g->tokenizer;
	void *thread = t->kind->thread_begin ? t->kind->thread_begin(t) : NULL;
	struct token_list list = {0};

	if (*text)
		t->kind->encode(t, thread, (const unsigned char *)text, strlen(text), &list);
	else
		json_array_append_new(g->prompt, json_integer(t->separator));
	for (size_t i = 0; i < list.n; i++)
		json_array_append_new(g->prompt, json_integer(list.ids[i]));
	free(list.ids);
	if (t->kind->thread_end)
		t->kind->thread_end(thread);
}

static int read_prompt(struct generating *g, struct client *c, int64_t id)
{
	const char *ids = options_string(g->args, "prompt-ids", NULL);
	json_t *show = NULL, *model;
	int exit;

	if (ids)
		return options_has(g->args, "prompt")
			? ctl_error_set(g->e, CTL_USAGE,
				  "generate: either --prompt or --prompt-ids is allowed")
			: read_ids(g, ids);
	exit = client_request(c, METHOD_SHOW, json_pack("{s:I}", "id", (json_int_t)id),
		CLIENT_REPLY_S, &show, g->e);
	if (exit)
		return exit;
	model = json_object_get(json_object_get(show, "spec"), "model");
	exit = open_tokenizer(g, format_int(model, "vocab_size", 0));
	json_decref(show);
	if (!exit)
		encode(g, options_string(g->args, "prompt", ""));
	return exit;
}

/* ---- result ---- */

/* A model's output without characters that control a terminal. Freed by the caller. */
static char *decode(const struct generating *g, const json_t *tokens)
{
	unsigned char bytes[TOKENIZER_TOKEN_BYTES];
	const json_t *token;
	char *text;
	size_t n, i;
	FILE *out = memory_stream(&text, &n);

	json_array_foreach(tokens, i, token) {
		const json_int_t id = json_integer_value(token);

		if (id >= 0 && id < g->tokenizer.vocab_size)
			fwrite(bytes, 1,
				g->tokenizer.kind->decode(&g->tokenizer, (uint16_t)id, bytes), out);
	}
	memory_stream_end(out);
	for (i = 0; i < n; i++)
		if (((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t') ||
			text[i] == 0x7f)
			text[i] = '?';
	text_clean(text);
	return text;
}

static void print_ids(FILE *to, const json_t *tokens)
{
	const json_t *token;
	size_t i;

	json_array_foreach(tokens, i, token)
		fprintf(to, "%s%lld", i > 0 ? "," : "", (long long)json_integer_value(token));
	fputc('\n', to);
}

static void print_generated(struct output *o, const json_t *reply)
{
	const char *text = json_string_value(json_object_get(reply, "text"));

	if (text)
		fprintf(o->out.file, "%s\n", text);
	else
		print_ids(o->out.file, json_object_get(reply, "tokens"));
}

static void print_speed(struct output *o, const json_t *reply)
{
	members_print(o->err.file, reply, "step {step}, ");
	fprintf(o->err.file, "%zu tokens: ", json_array_size(json_object_get(reply, "tokens")));
	members_print(o->err.file, reply,
		"{tokens_per_sec:si|-} tokens/s, the first after {first_token_s:duration|-}[, then "
		"each in {token_s:duration}]; weights read in {load_s:duration|-}\n");
}

static int ask(struct generating *g, struct client *c, int64_t id, json_t **reply)
{
	json_t *params = json_pack("{s:I, s:O, s:I, s:f, s:I, s:I}", "id", (json_int_t)id, "prompt",
		g->prompt, "tokens", (json_int_t)options_int(g->args, "tokens", 50), "temperature",
		options_real(g->args, "temperature", 0.0), "top_k",
		(json_int_t)options_int(g->args, "top-k", 0), "seed",
		(json_int_t)options_int(g->args, "seed", 0));

	if (g->tokenizer.kind)
		json_object_set_new(params, "stop", json_integer(g->tokenizer.separator));
	return client_request(c, METHOD_GENERATE, params, CLIENT_DEFERRED, reply, g->e);
}

static void print_reply(struct ctl *ctl, struct generating *g, json_t *reply)
{
	json_t *all;
	char *text;

	if (g->tokenizer.kind) {
		all = options_string(g->args, "prompt", "")[0] ? json_copy(g->prompt)
							       : json_array();
		json_array_extend(all, json_object_get(reply, "tokens"));
		text = decode(g, all);
		json_object_set_new(reply, "text", json_string(text));
		free(text);
		json_decref(all);
	}
	output_print(&ctl->output, METHOD_GENERATE, reply, print_generated);
	if (!ctl->output.json && !options_has(g->args, "quiet"))
		print_speed(&ctl->output, reply);
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct generating g = {.args = args, .prompt = json_array(), .e = e};
	struct client *c = NULL;
	json_t *reply = NULL;
	int64_t id;
	int exit = verb_parse_id(args->words[0], &id, e);

	if (!exit)
		exit = client_open(&ctl->link, &c, e);
	if (!exit)
		exit = read_prompt(&g, c, id);
	if (!exit)
		exit = ask(&g, c, id, &reply);
	if (!exit)
		print_reply(ctl, &g, reply);
	client_close(c);
	tokenizer_close(&g.tokenizer);
	json_decref(reply);
	json_decref(g.prompt);
	return exit;
}

const struct verb verb_generate = {
	.name = "generate",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "continue a text with a run's weights",
	.text = "The engine of rank 0 computes the text with the run's last checkpoint, in the "
		"precision of the run; see checkpoint in gpt2d-spec(5). generate works between "
		"runs: gpt2d refuses it while the engines have a run. The engine keeps the weights "
		"until the next run. "
		"gpt2ctl prints the prompt and the text; the speed goes to standard error. The "
		"text ends early if the model produces the token that separates documents.",
	.options = options,
	.run = run,
};
