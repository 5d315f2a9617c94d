/*
 * vocabulary.h: GPT-2's vocabulary in its common forms: vocab.json with merges.txt (OpenAI's names:
 * encoder.json, vocab.bpe), Hugging Face's tokenizer.json, or tiktoken's file of ranks. gpt2d does
 * not contain one: etc/data/README.md says where to get it.
 */
#ifndef GPT2D_CTL_DATA_VOCABULARY_H
#define GPT2D_CTL_DATA_VOCABULARY_H

#include <stdint.h>

#include "ctl/data/bpe.h"
#include "ctl/link/ctl_error.h"

enum { VOCABULARY_GPT2_SIZE = 50257 };

struct vocabulary {
	struct bpe *bpe;
	int64_t size;      /* IDs are below it */
	int32_t separator; /* "<|endoftext|>" */
	char *path;        /* of the file, the first one if there are two */
};

/*
 * path: one of the files, or a folder with them; NULL: $GPT2D_VOCAB, or the first default place
 * that has one. 0, or CTL_USAGE with e.
 */
int vocabulary_load(struct vocabulary *v, const char *path, struct ctl_error *e);
void vocabulary_finish(struct vocabulary *v); /* takes a zeroed one */

#endif
