/*
 * GPT-2's tokens, as from tiktoken's encode_ordinary: text is cut into pieces by GPT-2's pattern,
 * and each piece is encoded by byte-pair merges. Bytes that are not UTF-8 count as U+FFFD.
 *
 * Most pieces of a text are repeated: each thread caches the tokens of short ones, by their bytes,
 * in a table of cache lines; of pieces that share a line the last one stays.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/data/tokenizer.h"
#include "proto/utf8.h"
#include "ctl/data/vocabulary.h"
#include "proto/host/memory.h"

enum {
	CACHE_LINES = 1 << 15,
	KEY_BYTES = 32,  /* a piece of at most 31 bytes, and in the last byte its length */
	KEY_TOKENS = 15, /* tokens of a cached piece */
	STACK_BYTES = 1 << 20
};

/*
 * GPT-2's pattern (openai/gpt-2, src/encoder.py). Python's \s is the property White_Space; PCRE2's
 * \s has U+180E too. Each character begins an alternative, so matches are adjacent.
 */
#define BLANK "\\p{White_Space}"
static const char pattern[] = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" BLANK
			      "\\p{L}\\p{N}]+|" BLANK "+(?!\\P{White_Space})|" BLANK "+";

struct line {
	alignas(64) unsigned char key[KEY_BYTES]; /* key[31] 0: empty */
	uint16_t ids[KEY_TOKENS];
	uint16_t n;
};

struct gpt2 {
	struct vocabulary vocabulary;
	pcre2_code *code;
	/* with PCRE2's compiler if this machine allows generated code, else its interpreter */
	int (*match)(const pcre2_code *, PCRE2_SPTR, PCRE2_SIZE, PCRE2_SIZE, uint32_t,
		pcre2_match_data *, pcre2_match_context *);
};

struct thread {
	struct line *cache;
	pcre2_match_data *match;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
	struct bpe_scratch scratch;
	unsigned char *text; /* the text with U+FFFD for invalid UTF-8 */
	size_t text_room;
};

static int open_gpt2(struct tokenizer *t, const char *vocab, struct ctl_error *e)
{
	struct gpt2 *g = memory_zeroed(1, sizeof(*g));
	PCRE2_UCHAR text[256] = "";
	PCRE2_SIZE at;
	int error;

	if (vocabulary_load(&g->vocabulary, vocab, e) != 0) {
		free(g);
		return e->exit;
	}
	g->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
		PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &error, &at, NULL);
	if (!g->code) {
		pcre2_get_error_message(error, text, sizeof(text));
		vocabulary_finish(&g->vocabulary);
		free(g);
		return ctl_error_set(e, CTL_USAGE,
			"--tokenizer gpt2: libpcre2 refuses its pattern: %s (expected version "
			"10.40 or newer)",
			(char *)text);
	}
	g->match =
		pcre2_jit_compile(g->code, PCRE2_JIT_COMPLETE) == 0 ? pcre2_jit_match : pcre2_match;
	*t = (struct tokenizer){.vocab_size = g->vocabulary.size,
		.separator = g->vocabulary.separator,
		.source = g->vocabulary.path,
		.model = g};
	return 0;
}

static void close_gpt2(struct tokenizer *t)
{
	struct gpt2 *g = t->model;

	pcre2_code_free(g->code);
	vocabulary_finish(&g->vocabulary);
	free(g);
}

static void *thread_begin(const struct tokenizer *t)
{
	struct thread *s = memory_zeroed(1, sizeof(*s));

	s->match = pcre2_match_data_create(1, NULL);
	s->context = pcre2_match_context_create(NULL);
	s->stack = pcre2_jit_stack_create(32768, STACK_BYTES, NULL);
	s->cache = aligned_alloc(64, CACHE_LINES * sizeof(*s->cache));
	if (!s->match || !s->context || !s->stack || !s->cache)
		memory_exhausted();
	memset(s->cache, 0, CACHE_LINES * sizeof(*s->cache));
	pcre2_jit_stack_assign(s->context, NULL, s->stack);
	return s;
}

static void thread_end(void *thread)
{
	struct thread *s = thread;

	pcre2_match_data_free(s->match);
	pcre2_match_context_free(s->context);
	pcre2_jit_stack_free(s->stack);
	bpe_scratch_finish(&s->scratch);
	free(s->cache);
	free(s->text);
	free(s);
}

/* The cache line of a key; it may have another key. */
static struct line *line_of(struct thread *s, const unsigned char key[KEY_BYTES])
{
	uint64_t word[4], h;

	memcpy(word, key, sizeof(word));
	h = (word[0] ^ word[1] * UINT64_C(0x9e3779b97f4a7c15) ^
		    (word[2] + word[3] * UINT64_C(0xc2b2ae3d27d4eb4f))) *
		UINT64_C(0xff51afd7ed558ccd);
	return &s->cache[(h ^ h >> 29) >> 16 & (CACHE_LINES - 1)];
}

/* Adds the tokens of a piece of n >= 1 bytes; out has room for n and KEY_TOKENS more. */
static void encode_piece(const struct gpt2 *g, struct thread *s, const unsigned char *piece,
	size_t n, struct token_list *out)
{
	unsigned char key[KEY_BYTES] = {0};
	struct line *line;
	size_t k;

	if (n >= KEY_BYTES) {
		out->n += bpe_encode(g->vocabulary.bpe, &s->scratch, piece, n, out->ids + out->n);
		return;
	}
	memcpy(key, piece, n);
	key[KEY_BYTES - 1] = (unsigned char)n;
	line = line_of(s, key);
	if (memcmp(line->key, key, KEY_BYTES) == 0) {
		memcpy(out->ids + out->n, line->ids, sizeof(line->ids)); /* of one size: fast */
		out->n += line->n;
		return;
	}
	k = bpe_encode(g->vocabulary.bpe, &s->scratch, piece, n, out->ids + out->n);
	if (k <= KEY_TOKENS) {
		memcpy(line->key, key, KEY_BYTES);
		memcpy(line->ids, out->ids + out->n, k * sizeof(*line->ids));
		line->n = (uint16_t)k;
	}
	out->n += k;
}

static void encode(const struct tokenizer *t, void *thread, const unsigned char *bytes, size_t n,
	struct token_list *out)
{
	const struct gpt2 *g = t->model;
	struct thread *s = thread;

	if (utf8_valid(bytes, n) < n) {
		int64_t replaced;

		if (s->text_room < 3 * n) {
			s->text_room = 3 * n;
			s->text = memory_resized(s->text, s->text_room);
		}
		n = utf8_replace(bytes, n, s->text, &replaced);
		out->replaced += replaced;
		bytes = s->text;
	}
	tokenizer_reserve(out, n + KEY_TOKENS);
	for (size_t at = 0; at < n;) {
		const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->match);

		/* each character matches, so the only error is lack of memory */
		if (g->match(g->code, bytes, n, at, PCRE2_NO_UTF_CHECK, s->match, s->context) < 1)
			memory_exhausted();
		encode_piece(g, s, bytes + at, span[1] - at, out);
		at = span[1];
	}
}

/* Bytes of the White_Space character beyond ASCII that ends at end, or 0. */
static size_t wide_blank(const unsigned char *bytes, size_t end)
{
	const unsigned char *p = bytes + end;

	if (end >= 2 && p[-2] == 0xc2 && (p[-1] == 0x85 || p[-1] == 0xa0))
		return 2;
	if (end < 3)
		return 0;
	if (p[-3] == 0xe1 && p[-2] == 0x9a && p[-1] == 0x80)
		return 3;
	if (p[-3] == 0xe2 && p[-2] == 0x80 &&
		((p[-1] >= 0x80 && p[-1] <= 0x8a) || p[-1] == 0xa8 || p[-1] == 0xa9 ||
			p[-1] == 0xaf))
		return 3;
	if (p[-3] == 0xe2 && p[-2] == 0x81 && p[-1] == 0x9f)
		return 3;
	return p[-3] == 0xe3 && p[-2] == 0x80 && p[-1] == 0x80 ? 3 : 0;
}

static int is_blank(unsigned char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/*
 * Cuts before a blank that follows no blank: no piece crosses that place, and none depends on later
 * text. An ASCII byte ends each character before it, invalid ones too.
 */
static size_t cut(const unsigned char *bytes, size_t n)
{
	for (size_t i = n; i-- > 1;) {
		if (is_blank(bytes[i]) && !is_blank(bytes[i - 1]) && wide_blank(bytes, i) == 0)
			return i;
	}
	return 0;
}

static size_t decode(const struct tokenizer *t, uint16_t id, unsigned char *out)
{
	const struct gpt2 *g = t->model;
	size_t n = 0;
	const unsigned char *bytes = bpe_bytes(g->vocabulary.bpe, id, &n);

	if (bytes)
		memcpy(out, bytes, n);
	return n;
}

const struct tokenizer_kind tokenizer_gpt2 = {
	.name = "gpt2",
	.separator_last = true,
	.needs_vocabulary = true,
	.open = open_gpt2,
	.close = close_gpt2,
	.thread_begin = thread_begin,
	.thread_end = thread_end,
	.encode = encode,
	.cut = cut,
	.decode = decode,
};
