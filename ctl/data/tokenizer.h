/*
 * tokenizer.h: text to token ids, as `gpt2ctl data prepare --tokenizer NAME` names them. Another
 * tokenizer is a file of its own (tokenizer_NAME.c) and a line in tokenizer.c.
 */
#ifndef GPT2D_CTL_DATA_TOKENIZER_H
#define GPT2D_CTL_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/link/ctl_error.h"

enum { TOKENIZER_TOKEN_BYTES = 4096 };

/* Tokens that are collected; zeroed at first, ids is the caller's to free. */
struct token_list {
	uint16_t *ids;
	size_t n, room;
	int64_t replaced; /* U+FFFD for bytes that are no UTF-8 */
};
/* Room for n more. */
void tokenizer_reserve(struct token_list *t, size_t n);

/* A tokenizer that is ready; threads share it. */
struct tokenizer {
	const struct tokenizer_kind *kind;
	int64_t vocab_size; /* ids are below it; at most 65536 */
	int32_t separator;  /* the token between documents */
	const char *source; /* the file of its vocabulary, NULL: it needs none */
	void *model;
};

struct tokenizer_kind {
	const char *name;
	bool separator_last; /* after every document; false: between two of them only */
	bool needs_vocabulary;
	/* Sets t's members. vocab: as vocabulary_load takes it. 0, or CTL_USAGE with e. */
	int (*open)(struct tokenizer *t, const char *vocab, struct ctl_error *e);
	void (*close)(struct tokenizer *t);
	/* What a thread needs to encode; NULL: nothing. */
	void *(*thread_begin)(const struct tokenizer *t);
	void (*thread_end)(void *thread);
	/* Adds the tokens of a part of a text that begins and ends where cut allows it. */
	void (*encode)(const struct tokenizer *t, void *thread, const unsigned char *bytes,
		size_t n, struct token_list *out);
	/*
	 * Where the first n bytes of a longer text can be cut at the latest, so that the tokens of
	 * the parts are those of the whole: 0 < cut <= n; 0: nowhere.
	 */
	size_t (*cut)(const unsigned char *bytes, size_t n);
	/* Writes a token's bytes, at most TOKENIZER_TOKEN_BYTES: how many; 0: no text. */
	size_t (*decode)(const struct tokenizer *t, uint16_t id, unsigned char *out);
};

extern const struct tokenizer_kind tokenizer_bytes, tokenizer_gpt2;

/*
 * name: "bytes" or "gpt2"; vocab: a file or folder, NULL: in the usual places. 0, or CTL_USAGE with
 * e.
 */
int tokenizer_open(struct tokenizer *t, const char *name, const char *vocab, struct ctl_error *e);
void tokenizer_close(struct tokenizer *t); /* takes a zeroed one */

#endif
