/*
 * data_inputs.h: the inputs and the tokenizer of data prepare and data verify: their options, and
 * their tokens in order, with a progress bar on stderr.
 */
#ifndef GPT2D_CTL_VERBS_DATA_INPUTS_H
#define GPT2D_CTL_VERBS_DATA_INPUTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/data/documents.h"
#include "ctl/data/encoder.h"
#include "ctl/data/tokenizer.h"
#include "ctl/print/progress.h"
#include "ctl/verbs/verb.h"

/* Help of the options that verbs share. */
#define DATA_INPUTS_TOKENIZER                                                                      \
	"bytes: one token for each byte, ids 0 to 255, and 256 between documents; gpt2: GPT-2's "  \
	"byte-pair encoding, ids 0 to 50255, and 50256 after every document"
#define DATA_INPUTS_VOCAB                                                                          \
	"GPT-2's vocabulary, or the folder that has it: vocab.json beside merges.txt "             \
	"(encoder.json beside vocab.bpe), tokenizer.json, or tiktoken's gpt2.tiktoken or "         \
	"r50k_base.tiktoken (default: $GPT2D_VOCAB; else the first found in "                      \
	"~/.local/share/gpt2d/gpt2, /usr/local/share/gpt2d/gpt2, /usr/share/gpt2d/gpt2 and the "   \
	"caches of Hugging Face and tiktoken)"
#define DATA_INPUTS_FIELD                                                                          \
	"all inputs are JSON Lines: each line is a document with its text in this member "         \
	"(default: inputs named .jsonl or .ndjson, also with .gz or .zst, are JSON Lines with "    \
	"the member \"text\")"
#define DATA_INPUTS_LIMIT "stop after N documents"
#define DATA_INPUTS_THREADS                                                                        \
	"threads that encode (default: one for each processor); the tokens do not depend on the "  \
	"number"

/* The totals of an input. */
struct data_inputs_sum {
	int64_t tokens, documents;
	int64_t replaced; /* U+FFFD for bytes that are not UTF-8 */
};

struct data_inputs {
	const char *const *names; /* of the inputs, n */
	size_t n;
	const char *verb, *name; /* for messages beside the progress bar */
	const char *fallback;    /* the tokenizer without --tokenizer; NULL: bytes */
	struct tokenizer tokenizer;
	struct documents *documents;
	struct encoder_job job;
	struct data_inputs_sum *sums;
	int64_t limit;    /* maximum of documents, 0: all */
	int64_t n_tokens; /* so far */
	int64_t largest;  /* largest token ID so far, -1: none */
	struct progress progress;
	int64_t begun_ns; /* monotonic */
	/* The caller's: takes the tokens of the next part. 0, or an exit status with e. */
	int (*take)(void *of, const uint16_t *ids, size_t n, struct ctl_error *e);
	void *of;
};

/*
 * in has verb, name, fallback, take and of. Inputs are args' words from first on. 0, or CTL_USAGE
 * with e.
 */
int data_inputs_open(
	struct data_inputs *in, const struct options *args, size_t first, struct ctl_error *e);
/* Calls take for each part. term: of the progress bar. 0, or an exit status with e. */
int data_inputs_encode(struct data_inputs *in, const struct term *term, struct ctl_error *e);
void data_inputs_finish(struct data_inputs *in); /* takes a zeroed one */

/* [{path, bytes, documents, tokens}] of the inputs. */
json_t *data_inputs_json(const struct data_inputs *in);
/*
 * Prints lines to o's stderr: inputs that are not UTF-8, and a vocabulary that does not have
 * GPT-2's size.
 */
void data_inputs_note(struct output *o, const struct data_inputs *in);

#endif
