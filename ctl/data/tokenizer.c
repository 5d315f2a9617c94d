#include "ctl/data/tokenizer.h"

#include <string.h>

#include "proto/host/memory.h"
#include "proto/suggest.h"

static const struct tokenizer_kind *const kinds[] = {
	&tokenizer_bytes,
	&tokenizer_gpt2,
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

int tokenizer_open(struct tokenizer *t, const char *name, const char *vocab, struct ctl_error *e)
{
	const char *names[N_KINDS], *near;

	*t = (struct tokenizer){0};
	for (size_t i = 0; i < N_KINDS; i++) {
		names[i] = kinds[i]->name;
		if (strcmp(name, names[i]) != 0)
			continue;
		if (vocab && !kinds[i]->needs_vocabulary)
			return ctl_error_set(e, CTL_USAGE,
				"--vocab: the tokenizer %s has no vocabulary file; use --tokenizer "
				"gpt2",
				name);
		if (kinds[i]->open(t, vocab, e) != 0)
			return e->exit;
		t->kind = kinds[i];
		return 0;
	}
	near = suggest_nearest(name, names, N_KINDS);
	return ctl_error_set(e, CTL_USAGE,
		"--tokenizer: %.80s: unknown tokenizer (expected bytes or gpt2)%s%s", name,
		near ? "; did you mean " : "", near ? near : "");
}

void tokenizer_close(struct tokenizer *t)
{
	if (t->kind && t->kind->close)
		t->kind->close(t);
	*t = (struct tokenizer){0};
}

void tokenizer_reserve(struct token_list *t, size_t n)
{
	if (t->room - t->n >= n)
		return;
	t->room = t->n + n + t->room / 2;
	t->ids = memory_resized(t->ids, t->room * sizeof(*t->ids));
}
