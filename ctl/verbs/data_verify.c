/* gpt2ctl data verify: checks a token file, and whether it has the tokens of a text. */
#include <stdlib.h>
#include <string.h>

#include "ctl/data/token_reader.h"
#include "ctl/data/vocabulary.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/verbs/data_inputs.h"
#include "proto/host/memory.h"
#include "proto/text.h"

static const struct option_row options[] = {
	{"vocab-size", 0, OPTION_INT, "N", 1, 65536,
		"every ID must be below N (default: 50257, GPT-2's; of the tokenizer if IN is "
		"given)"},
	{"sha256", 0, OPTION_STRING, "HEX", 0, 0, "the SHA-256 that the file must have"},
	{"tokenizer", 't', OPTION_STRING, "bytes|gpt2", 0, 0,
		"of IN; default bytes if no ID is above 256, else gpt2; " DATA_INPUTS_TOKENIZER},
	{"vocab", 0, OPTION_STRING, "PATH", 0, 0, DATA_INPUTS_VOCAB},
	{"field", 0, OPTION_STRING, "NAME", 0, 0, DATA_INPUTS_FIELD},
	{"limit-docs", 0, OPTION_INT, "N", 1, 9e15, DATA_INPUTS_LIMIT},
	{"threads", 0, OPTION_INT, "N", 1, ENCODER_THREADS_MAX, DATA_INPUTS_THREADS},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct verification {
	struct data_inputs in;
	struct token_reader reader;
	struct token_summary *summary;
	int64_t at;         /* the next token that is compared */
	uint16_t *expected; /* room for the tokens of a part */
	size_t room;
};

static int check_ids(const struct verification *v, int64_t vocab_size, struct ctl_error *e)
{
	if (v->summary->largest < vocab_size)
		return 0;
	return ctl_error_set(e, CTL_USAGE,
		"%.800s: token %lld has ID %d, outside the vocabulary (expected 0 to %lld)",
		v->reader.path, (long long)v->summary->largest_at, (int)v->summary->largest,
		(long long)vocab_size - 1);
}

static int check_sha256(const struct verification *v, const char *wanted, struct ctl_error *e)
{
	if (!wanted || strcasecmp(wanted, v->summary->sha256) == 0)
		return 0;
	return ctl_error_set(e, CTL_USAGE, "%.800s: the SHA-256 is %s (expected %.80s)",
		v->reader.path, v->summary->sha256, wanted);
}

/* Compares tokens of the inputs with those of the file. */
static int compare(void *of, const uint16_t *ids, size_t n, struct ctl_error *e)
{
	struct verification *v = of;
	const int64_t left = v->reader.n_tokens - v->at;
	const size_t both = (int64_t)n < left ? n : (size_t)left;

	if (v->room < n) {
		v->room = n;
		v->expected = memory_resized(v->expected, n * sizeof(*v->expected));
	}
	if (token_reader_read(&v->reader, v->at, both, v->expected, e) != 0)
		return e->exit;
	for (size_t i = 0; i < both; i++) {
		if (v->expected[i] != ids[i])
			return ctl_error_set(e, CTL_USAGE,
				"%.800s: token %lld has ID %d, the inputs give %d", v->reader.path,
				(long long)v->at + (int64_t)i, v->expected[i], ids[i]);
	}
	v->at += (int64_t)both;
	if (both < n)
		return ctl_error_set(e, CTL_USAGE, "%.800s: %lld tokens, the inputs give more",
			v->reader.path, (long long)v->reader.n_tokens);
	return 0;
}

static int check_inputs(struct verification *v, const struct term *term, struct ctl_error *e)
{
	if (data_inputs_encode(&v->in, term, e) != 0)
		return e->exit;
	if (v->at == v->reader.n_tokens)
		return 0;
	return ctl_error_set(e, CTL_USAGE, "%.800s: %lld tokens, the inputs give %lld",
		v->reader.path, (long long)v->reader.n_tokens, (long long)v->at);
}

static int verify(struct verification *v, const struct options *args, const struct term *term,
	struct ctl_error *e)
{
	const bool has_inputs = args->n_words > 1;
	int64_t size = VOCABULARY_GPT2_SIZE;

	if (token_reader_open(&v->reader, args->words[0], e) != 0)
		return e->exit;
	v->in.verb = "data verify";
	v->in.name = args->words[0];
	v->in.take = compare;
	v->in.of = v;
	if (v->reader.n_tokens < 2)
		return ctl_error_set(e, CTL_USAGE, "%.800s: %lld tokens, at least 2 needed",
			v->reader.path, (long long)v->reader.n_tokens);
	if (token_reader_summarize(&v->reader, v->summary, e) != 0)
		return e->exit;
	v->in.fallback =
		v->summary->largest <= 256 && !options_has(args, "vocab") ? "bytes" : "gpt2";
	if (has_inputs && data_inputs_open(&v->in, args, 1, e) != 0)
		return e->exit;
	if (has_inputs)
		size = v->in.tokenizer.vocab_size;
	if (check_sha256(v, options_string(args, "sha256", NULL), e) != 0 ||
		check_ids(v, options_int(args, "vocab-size", size), e) != 0)
		return e->exit;
	return has_inputs ? check_inputs(v, term, e) : 0;
}

static json_t *result_of(const struct verification *v)
{
	return json_pack("{s:o, s:s, s:I, s:I, s:s, s:o}", "path", text_json(v->reader.path),
		"format", v->reader.headed ? "headed" : "raw", "tokens",
		(json_int_t)v->reader.n_tokens, "largest_token", (json_int_t)v->summary->largest,
		"sha256", v->summary->sha256, "inputs",
		v->in.documents ? data_inputs_json(&v->in) : json_array());
}

static void print_verified(struct output *o, const json_t *result)
{
	members_print(o->out.file, result,
		"{path}: ok, {tokens:count} tokens, {format}, largest ID {largest_token}");
	if (json_array_size(json_object_get(result, "inputs")) > 0)
		fputs(", equal to the tokens of the inputs", o->out.file);
	members_print(o->out.file, result, "\nsha256 {sha256}\n");
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct verification v = {.reader = {.fd = -1}};
	const struct term term = options_has(args, "quiet") ? term_nowhere() : ctl->output.err;
	json_t *result;
	int exit;

	v.summary = memory_zeroed(1, sizeof(*v.summary));
	interrupt_begin();
	exit = verify(&v, args, &term, e);
	if (exit == 0) {
		result = result_of(&v);
		output_print(&ctl->output, "data verify", result, print_verified);
		json_decref(result);
	}
	data_inputs_finish(&v.in);
	token_reader_close(&v.reader);
	free(v.summary);
	free(v.expected);
	return exit;
}

const struct verb verb_data_verify = {
	.name = "data verify",
	.args = "FILE [IN...]",
	.min_args = 1,
	.max_args = -1,
	.summary = "check a token file, alone or against its text",
	.text = "Checks that the file is a token file whose size fits its header, and that every "
		"ID is in the vocabulary. With IN, data verify also makes the tokens of these "
		"inputs, with the same options as data prepare, and compares every one. The exit "
		"status is 0 if all is well.",
	.options = options,
	.run = run,
};
