/*
 * tokenizer.h: text to token ids, as `gpt2ctl data prepare --tokenizer NAME` names them. Another
 * tokenizer is a file of its own (tokenizer_NAME.c) and a line in tokenizer.c.
 */
#ifndef GPT2D_CTL_DATA_TOKENIZER_H
#define GPT2D_CTL_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

struct tokenizer {
	const char *name;
	int64_t vocab_size; /* ids are below it; at most 65536 */
	int32_t separator;  /* the token between documents */
	const char *help;
	/*
	 * Encode a piece of a document: n bytes in, at most n tokens to out, how many is returned.
	 * Pieces of a document come in order.
	 */
	size_t (*encode)(const unsigned char *bytes, size_t n, uint16_t *out);
};

extern const struct tokenizer tokenizer_bytes;

/* NULL: no such tokenizer. */
const struct tokenizer *tokenizer_find(const char *name);
/* The nearest name, or NULL. */
const char *tokenizer_suggest(const char *name);

#endif
