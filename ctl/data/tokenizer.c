#include "ctl/data/tokenizer.h"

#include <string.h>

#include "proto/suggest.h"

static const struct tokenizer *const tokenizers[] = {
	&tokenizer_bytes,
};
enum { N_TOKENIZERS = sizeof(tokenizers) / sizeof(tokenizers[0]) };

const struct tokenizer *tokenizer_find(const char *name)
{
	for (size_t i = 0; i < N_TOKENIZERS; i++) {
		if (strcmp(tokenizers[i]->name, name) == 0)
			return tokenizers[i];
	}
	return NULL;
}

const char *tokenizer_suggest(const char *name)
{
	const char *names[N_TOKENIZERS];

	for (size_t i = 0; i < N_TOKENIZERS; i++)
		names[i] = tokenizers[i]->name;
	return suggest_nearest(name, names, N_TOKENIZERS);
}
