#include "ctl/data/bpe.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

enum {
	NAME_SLOTS = 1 << 17,
	PAIR_SLOTS_MIN = 1 << 16,
	SHORT_BYTES = 64, /* up to this length all pairs are searched for each merge */
};
#define NO_MERGE UINT32_MAX

/*
 * IDs of a pair, left in the high half; rank and joined ID in the same form. Empty: merge is
 * NO_MERGE.
 */
struct pair {
	uint32_t ids;
	uint32_t merge;
};

struct token {
	uint32_t first; /* in bytes */
	uint32_t n;     /* 0: no token with this ID */
};

struct bpe {
	unsigned char *bytes; /* of all tokens */
	size_t n_bytes, room;
	struct token tokens[BPE_IDS];
	uint32_t names[NAME_SLOTS]; /* id + 1 by its bytes, open addressing; 0: empty */
	struct pair *pairs;         /* by ids, open addressing */
	uint32_t n_slots;           /* a power of two, over twice as many as pairs */
	uint32_t n_pairs, n_ranks;
	int64_t largest;
	int32_t of_byte[256]; /* ids of single bytes, -1: none */
	bool whole;
};

struct bpe *bpe_create(void)
{
	struct bpe *bpe = memory_zeroed(1, sizeof(*bpe));

	bpe->largest = -1;
	memset(bpe->of_byte, 0xff, sizeof(bpe->of_byte));
	bpe->n_slots = PAIR_SLOTS_MIN;
	bpe->pairs = memory_resized(NULL, bpe->n_slots * sizeof(*bpe->pairs));
	memset(bpe->pairs, 0xff, bpe->n_slots * sizeof(*bpe->pairs));
	return bpe;
}

void bpe_destroy(struct bpe *bpe)
{
	if (!bpe)
		return;
	free(bpe->bytes);
	free(bpe->pairs);
	free(bpe);
}

/* ---- tokens by their bytes ---- */

static uint32_t hash_bytes(const unsigned char *bytes, size_t n)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ bytes[i]) * UINT64_C(1099511628211);
	return (uint32_t)(h ^ h >> 32);
}

/* The slot of the token with these bytes, or the empty slot for it. */
static uint32_t name_slot(const struct bpe *bpe, const unsigned char *bytes, size_t n)
{
	uint32_t slot = hash_bytes(bytes, n) % NAME_SLOTS;

	for (; bpe->names[slot]; slot = (slot + 1) % NAME_SLOTS) {
		const struct token *t = &bpe->tokens[bpe->names[slot] - 1];

		if (t->n == n && memcmp(bpe->bytes + t->first, bytes, n) == 0)
			break;
	}
	return slot;
}

static int32_t find(const struct bpe *bpe, const unsigned char *bytes, size_t n)
{
	return (int32_t)bpe->names[name_slot(bpe, bytes, n)] - 1;
}

int bpe_add_special(struct bpe *bpe, int64_t id, const unsigned char *bytes, size_t n)
{
	if (id < 0 || id >= BPE_IDS || n == 0 || n > BPE_TOKEN_BYTES)
		return -ERANGE;
	if (bpe->tokens[id].n > 0)
		return -EEXIST;
	if (bpe->n_bytes + n > bpe->room) {
		bpe->room = 2 * (bpe->n_bytes + n) + 65536;
		bpe->bytes = memory_resized(bpe->bytes, bpe->room);
	}
	memcpy(bpe->bytes + bpe->n_bytes, bytes, n);
	bpe->tokens[id] = (struct token){(uint32_t)bpe->n_bytes, (uint32_t)n};
	bpe->n_bytes += n;
	if (id > bpe->largest)
		bpe->largest = id;
	return 0;
}

int bpe_add_token(struct bpe *bpe, int64_t id, const unsigned char *bytes, size_t n)
{
	const uint32_t slot = name_slot(bpe, bytes, n);
	int rc;

	if (bpe->names[slot])
		return -EEXIST;
	rc = bpe_add_special(bpe, id, bytes, n);
	if (rc != 0)
		return rc;
	bpe->names[slot] = (uint32_t)id + 1;
	if (n == 1)
		bpe->of_byte[bytes[0]] = (int32_t)id;
	return 0;
}

int bpe_missing_byte(const struct bpe *bpe)
{
	for (int i = 0; i < 256; i++) {
		if (bpe->of_byte[i] < 0)
			return i;
	}
	return -1;
}

int64_t bpe_merges(const struct bpe *bpe)
{
	return bpe->n_pairs;
}

int64_t bpe_largest_id(const struct bpe *bpe)
{
	return bpe->largest;
}

const unsigned char *bpe_bytes(const struct bpe *bpe, int64_t id, size_t *n)
{
	if (id < 0 || id >= BPE_IDS || bpe->tokens[id].n == 0)
		return NULL;
	*n = bpe->tokens[id].n;
	return bpe->bytes + bpe->tokens[id].first;
}

/* ---- pairs ---- */

static inline uint32_t pair_hash(uint32_t ids)
{
	return (ids * UINT32_C(0x9e3779b1)) ^ (ids >> 15);
}

static inline uint32_t pair_slot(const struct bpe *bpe, uint32_t ids)
{
	uint32_t slot = pair_hash(ids) & (bpe->n_slots - 1);

	while (bpe->pairs[slot].merge != NO_MERGE && bpe->pairs[slot].ids != ids)
		slot = (slot + 1) & (bpe->n_slots - 1);
	return slot;
}

static inline uint32_t merge_of(const struct bpe *bpe, uint32_t left, uint32_t right)
{
	return bpe->pairs[pair_slot(bpe, left << 16 | right)].merge;
}

static void grow_pairs(struct bpe *bpe)
{
	const uint32_t n_old = bpe->n_slots;
	struct pair *old = bpe->pairs;

	bpe->n_slots *= 2;
	bpe->pairs = memory_resized(NULL, bpe->n_slots * sizeof(*bpe->pairs));
	memset(bpe->pairs, 0xff, bpe->n_slots * sizeof(*bpe->pairs));
	for (uint32_t i = 0; i < n_old; i++) {
		if (old[i].merge != NO_MERGE)
			bpe->pairs[pair_slot(bpe, old[i].ids)] = old[i];
	}
	free(old);
}

static int add_pair(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t joined)
{
	uint32_t slot;

	if (bpe->n_pairs * 2 >= bpe->n_slots)
		grow_pairs(bpe);
	slot = pair_slot(bpe, left << 16 | right);
	if (bpe->pairs[slot].merge != NO_MERGE)
		return -EEXIST;
	bpe->pairs[slot] = (struct pair){left << 16 | right, rank << 16 | joined};
	bpe->n_pairs++;
	return 0;
}

int bpe_add_merge(struct bpe *bpe, const unsigned char *left, size_t n_left,
	const unsigned char *right, size_t n_right)
{
	unsigned char both[2 * BPE_TOKEN_BYTES];
	int32_t ids[3];
	int rc;

	if (n_left > BPE_TOKEN_BYTES || n_right > BPE_TOKEN_BYTES)
		return -ENOENT;
	memcpy(both, left, n_left);
	memcpy(both + n_left, right, n_right);
	ids[0] = find(bpe, left, n_left);
	ids[1] = find(bpe, right, n_right);
	ids[2] = find(bpe, both, n_left + n_right);
	if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
		return -ENOENT;
	if (bpe->n_ranks == BPE_IDS)
		return -ERANGE;
	rc = add_pair(bpe, (uint32_t)ids[0], (uint32_t)ids[1], bpe->n_ranks, (uint32_t)ids[2]);
	if (rc == 0)
		bpe->n_ranks++;
	return rc;
}

void bpe_rank_by_id(struct bpe *bpe)
{
	for (uint32_t slot = 0; slot < NAME_SLOTS; slot++) {
		const uint32_t id = bpe->names[slot] - 1;
		const unsigned char *bytes;
		size_t n;

		if (bpe->names[slot] == 0)
			continue;
		bytes = bpe_bytes(bpe, id, &n);
		for (size_t cut = 1; cut < n; cut++) {
			const int32_t left = find(bpe, bytes, cut);
			const int32_t right = find(bpe, bytes + cut, n - cut);

			if (left >= 0 && right >= 0)
				add_pair(bpe, (uint32_t)left, (uint32_t)right, id, id);
		}
	}
	bpe->whole = true;
}

/* ---- encoding ---- */

static size_t encode_short(
	const struct bpe *bpe, const unsigned char *piece, size_t n, uint16_t *out)
{
	uint32_t merges[SHORT_BYTES]; /* of token i and the next one */
	uint16_t ids[SHORT_BYTES];

	for (size_t i = 0; i < n; i++)
		ids[i] = (uint16_t)bpe->of_byte[piece[i]];
	for (size_t i = 0; i + 1 < n; i++)
		merges[i] = merge_of(bpe, ids[i], ids[i + 1]);
	while (n > 1) {
		uint32_t lowest = NO_MERGE;
		size_t at = 0;

		for (size_t i = 0; i + 1 < n; i++) {
			if (merges[i] < lowest) {
				lowest = merges[i];
				at = i;
			}
		}
		if (lowest == NO_MERGE)
			break;
		ids[at] = (uint16_t)lowest;
		n--;
		for (size_t i = at + 1; i < n; i++) {
			ids[i] = ids[i + 1];
			merges[i - 1] = merges[i];
		}
		if (at > 0)
			merges[at - 1] = merge_of(bpe, ids[at - 1], ids[at]);
		if (at + 1 < n)
			merges[at] = merge_of(bpe, ids[at], ids[at + 1]);
	}
	memcpy(out, ids, n * sizeof(*ids));
	return n;
}

/* A token of a long piece, linked to its neighbours; END has none. */
struct link {
	uint32_t before, after;
	uint32_t merge; /* with the next token */
	uint32_t id;
};
#define END UINT32_MAX

/* Merges of a long piece, lowest rank first, then the first of the piece: merge, then position. */
struct heap {
	uint64_t *keys;
	size_t n;
};

static void heap_push(struct heap *h, uint32_t merge, uint32_t at)
{
	const uint64_t key = (uint64_t)merge << 32 | at;
	size_t i;

	if (merge == NO_MERGE)
		return;
	i = h->n++;
	for (; i > 0 && h->keys[(i - 1) / 2] > key; i = (i - 1) / 2)
		h->keys[i] = h->keys[(i - 1) / 2];
	h->keys[i] = key;
}

static uint64_t heap_pop(struct heap *h)
{
	const uint64_t lowest = h->keys[0], key = h->keys[--h->n];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < h->n) {
		if (child + 1 < h->n && h->keys[child + 1] < h->keys[child])
			child++;
		if (h->keys[child] >= key)
			break;
		h->keys[i] = h->keys[child];
		i = child;
	}
	h->keys[i] = key;
	return lowest;
}

static void update(const struct bpe *bpe, struct heap *h, struct link *links, uint32_t at)
{
	const uint32_t after = links[at].after;

	links[at].merge = after == END ? NO_MERGE : merge_of(bpe, links[at].id, links[after].id);
	heap_push(h, links[at].merge, at);
}

static size_t encode_long(const struct bpe *bpe, struct bpe_scratch *s, const unsigned char *piece,
	size_t n, uint16_t *out)
{
	/* each merge removes a pair and adds at most two */
	const size_t bytes = n * sizeof(struct link) + 3 * n * sizeof(uint64_t);
	struct link *links;
	struct heap h;
	size_t n_out = 0;

	if (s->bytes < bytes) {
		s->memory = memory_resized(s->memory, bytes);
		s->bytes = bytes;
	}
	h = (struct heap){.keys = s->memory};
	links = (struct link *)(h.keys + 3 * n);
	for (uint32_t i = 0; i < n; i++)
		links[i] = (struct link){
			i - 1, i + 1 < n ? i + 1 : END, NO_MERGE, (uint32_t)bpe->of_byte[piece[i]]};
	for (uint32_t i = 0; i < n; i++)
		update(bpe, &h, links, i);
	while (h.n > 0) {
		const uint64_t key = heap_pop(&h);
		const uint32_t at = (uint32_t)key, merge = (uint32_t)(key >> 32);
		const uint32_t gone = links[at].after;

		if (links[at].merge != merge)
			continue; /* a neighbour has merged since */
		links[at].id = merge & 0xffff;
		links[at].after = links[gone].after;
		links[gone].merge = NO_MERGE;
		if (links[at].after != END)
			links[links[at].after].before = at;
		update(bpe, &h, links, at);
		if (at > 0)
			update(bpe, &h, links, links[at].before);
	}
	for (uint32_t i = 0; i != END; i = links[i].after)
		out[n_out++] = (uint16_t)links[i].id;
	return n_out;
}

size_t bpe_encode(const struct bpe *bpe, struct bpe_scratch *s, const unsigned char *piece,
	size_t n, uint16_t *out)
{
	if (bpe->whole) {
		const int32_t id = find(bpe, piece, n);

		if (id >= 0) {
			out[0] = (uint16_t)id;
			return 1;
		}
	}
	return n <= SHORT_BYTES ? encode_short(bpe, piece, n, out)
				: encode_long(bpe, s, piece, n, out);
}

void bpe_scratch_finish(struct bpe_scratch *s)
{
	free(s->memory);
	*s = (struct bpe_scratch){0};
}
