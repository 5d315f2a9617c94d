/*
 * bpe.h: byte-level byte-pair encoding: tokens as byte strings, and which pairs of tokens merge, by
 * rank. A piece of text starts as single bytes; the pair of the lowest rank merges, of equal ranks
 * the first, until none is left (Sennrich et al. 2016; as GPT-2's encoder and tiktoken do).
 */
#ifndef GPT2D_CTL_DATA_BPE_H
#define GPT2D_CTL_DATA_BPE_H

#include <stddef.h>
#include <stdint.h>

enum {
	BPE_IDS = 65535,       /* ids are below it: a token file holds uint16, 65535 marks none */
	BPE_TOKEN_BYTES = 4096 /* the longest token */
};

struct bpe;

struct bpe *bpe_create(void);
void bpe_destroy(struct bpe *bpe); /* takes NULL */

/*
 * A token: 0, -ERANGE (id, or n is 0 or above BPE_TOKEN_BYTES), or -EEXIST (the id or the bytes are
 * there).
 */
int bpe_add_token(struct bpe *bpe, int64_t id, const unsigned char *bytes, size_t n);
/* The same for a token that text never becomes, such as the one between documents. */
int bpe_add_special(struct bpe *bpe, int64_t id, const unsigned char *bytes, size_t n);

/*
 * The next merge, of a rank behind all others, of two tokens to the one of their joined bytes: 0,
 * -ENOENT (one of the three is no token), -EEXIST (the pair merges already), or -ERANGE (too many).
 */
int bpe_add_merge(struct bpe *bpe, const unsigned char *left, size_t n_left,
	const unsigned char *right, size_t n_right);
/*
 * All merges as tiktoken has them: each pair whose joined bytes are a token, with its id as rank; a
 * piece that is a token as it is becomes that one.
 */
void bpe_rank_by_id(struct bpe *bpe);

/* A byte that is no token, which every text may have; -1: all are. */
int bpe_missing_byte(const struct bpe *bpe);
int64_t bpe_merges(const struct bpe *bpe);
int64_t bpe_largest_id(const struct bpe *bpe); /* special ones too; -1: none */

/* The token's bytes; NULL: no such token. */
const unsigned char *bpe_bytes(const struct bpe *bpe, int64_t id, size_t *n);

/* Memory of one thread, zeroed at first and freed by bpe_scratch_finish. */
struct bpe_scratch {
	void *memory;
	size_t bytes;
};
void bpe_scratch_finish(struct bpe_scratch *s);

/*
 * Encode a piece of n >= 1 bytes into out, which has room for n: how many tokens. Takes O(n log n)
 * for a long piece. bpe has all bytes.
 */
size_t bpe_encode(const struct bpe *bpe, struct bpe_scratch *s, const unsigned char *piece,
	size_t n, uint16_t *out);

#endif
