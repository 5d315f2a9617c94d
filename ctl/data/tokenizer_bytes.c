/*
 * One token for each byte; its value is the ID: any file can be a text, and no vocabulary file is
 * needed. ID 256 separates documents.
 */
#include "ctl/data/tokenizer.h"

static int open_bytes(struct tokenizer *t, const char *vocab, struct ctl_error *e)
{
	t->vocab_size = 257;
	t->separator = 256;
	return 0;
}

static void encode(const struct tokenizer *t, void *thread, const unsigned char *bytes, size_t n,
	struct token_list *out)
{
	tokenizer_reserve(out, n);
	for (size_t i = 0; i < n; i++)
		out->ids[out->n++] = bytes[i];
}

static size_t cut(const unsigned char *bytes, size_t n)
{
	return n;
}

static size_t decode(const struct tokenizer *t, uint16_t id, unsigned char *out)
{
	out[0] = (unsigned char)id;
	return id < 256 ? 1 : 0;
}

const struct tokenizer_kind tokenizer_bytes = {
	.name = "bytes",
	.open = open_bytes,
	.encode = encode,
	.cut = cut,
	.decode = decode,
};
