/*
 * One token for each byte, its value the id: any file can be a text, none needs a vocabulary file.
 * Id 256 stands between documents.
 */
#include "ctl/data/tokenizer.h"

static size_t encode(const unsigned char *bytes, size_t n, uint16_t *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = bytes[i];
	return n;
}

const struct tokenizer tokenizer_bytes = {
	.name = "bytes",
	.vocab_size = 257,
	.separator = 256,
	.help = "one token for each byte, ids 0 to 255, and 256 between documents",
	.encode = encode,
};
