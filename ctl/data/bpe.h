/*
 * bpe.h: byte-level byte-pair encoding: tokens as byte strings, and which pairs of tokens merge, by
 * rank. A piece of text starts as single bytes. The pair of the lowest rank merges, the first one
 * if ranks are equal, until no pair is left (Sennrich et al. 2016; as in GPT-2's encoder and
 * tiktoken).
 */
#ifndef GPT2D_CTL_DATA_BPE_H
#define GPT2D_CTL_DATA_BPE_H

#include <stddef.h>
#include <stdint.h>

enum {
	/* IDs are below it: a token file holds uint16, and 65535 means none */
	BPE_IDS = 65535,
	BPE_TOKEN_BYTES = 4096 /* the longest token */
};

struct bpe;

struct bpe *bpe_create(void);
void bpe_destroy(struct bpe *bpe); /* takes NULL */

/*
 * A token: 0, -ERANGE (id, or n is 0 or above BPE_TOKEN_BYTES), or -EEXIST (duplicate ID or bytes).
 */
int bpe_add_token(struct bpe *bpe, int64_t id, const unsigned char *bytes, size_t n);
/* The same for a token that text never produces, such as the one between documents. */
int bpe_add_special(struct bpe *bpe, int64_t id, const unsigned char *bytes, size_t n);

/*
 * The next merge, with a rank after all others, of two tokens to the token of their joined bytes:
 * 0, -ENOENT (one of the three is not a token), -EEXIST (the pair already merges), or -ERANGE (too
 * many).
 */
int bpe_add_merge(struct bpe *bpe, const unsigned char *left, size_t n_left,
	const unsigned char *right, size_t n_right);
/*
 * All merges as in tiktoken: each pair whose joined bytes are a token, with its ID as rank. A piece
 * that is itself a token becomes that token.
 */
void bpe_rank_by_id(struct bpe *bpe);

/* A byte without a token (any text may contain any byte); -1: all have one. */
int bpe_missing_byte(const struct bpe *bpe);
int64_t bpe_merges(const struct bpe *bpe);
int64_t bpe_largest_id(const struct bpe *bpe); /* special ones too; -1: none */

/* The token's bytes; NULL: unknown token. */
const unsigned char *bpe_bytes(const struct bpe *bpe, int64_t id, size_t *n);

/* Memory of one thread, zeroed at first and freed by bpe_scratch_finish. */
struct bpe_scratch {
	void *memory;
	size_t bytes;
};
void bpe_scratch_finish(struct bpe_scratch *s);

/*
 * Encode a piece of n >= 1 bytes into out, which has room for n: the number of tokens. Takes O(n
 * log n) for a long piece. bpe must have all bytes.
 */
size_t bpe_encode(const struct bpe *bpe, struct bpe_scratch *s, const unsigned char *piece,
	size_t n, uint16_t *out);

#endif
