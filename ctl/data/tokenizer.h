/*
 * tokenizer.h: text to token IDs, for `gpt2ctl data prepare --tokenizer NAME`. To add a tokenizer,
 * add a file tokenizer_NAME.c and a line in tokenizer.c.
 */
#ifndef GPT2D_CTL_DATA_TOKENIZER_H
#define GPT2D_CTL_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/link/ctl_error.h"

enum { TOKENIZER_TOKEN_BYTES = 4096 };

/* Collected tokens; zeroed at first; the caller frees ids. */
struct token_list {
	uint16_t *ids;
	size_t n, room;
	int64_t replaced; /* U+FFFD for bytes that are not UTF-8 */
};
/* Room for n more. */
void tokenizer_reserve(struct token_list *t, size_t n);

/* A ready tokenizer; threads share it. */
struct tokenizer {
	const struct tokenizer_kind *kind;
	int64_t vocab_size; /* IDs are below it; at most 65536 */
	int32_t separator;  /* the token between documents */
	const char *source; /* the file of its vocabulary, NULL: it needs none */
	void *model;
};

struct tokenizer_kind {
	const char *name;
	bool separator_last; /* after every document; false: only between two documents */
	bool needs_vocabulary;
	/* Sets t's members. vocab: as for vocabulary_load. 0, or CTL_USAGE with e. */
	int (*open)(struct tokenizer *t, const char *vocab, struct ctl_error *e);
	void (*close)(struct tokenizer *t);
	/* The state of one encoding thread; NULL: none. */
	void *(*thread_begin)(const struct tokenizer *t);
	void (*thread_end)(void *thread);
	/* Adds the tokens of a part of a text that begins and ends at a cut. */
	void (*encode)(const struct tokenizer *t, void *thread, const unsigned char *bytes,
		size_t n, struct token_list *out);
	/*
	 * The last position in the first n bytes of a longer text at which it can be cut without
	 * changing the tokens: 0 < cut <= n; 0: none.
	 */
	size_t (*cut)(const unsigned char *bytes, size_t n);
	/* Writes a token's bytes, at most TOKENIZER_TOKEN_BYTES: how many; 0: not text. */
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
