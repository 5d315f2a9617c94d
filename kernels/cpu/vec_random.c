#include <string.h>

#include "kernels/cpu/vec_math.h"

/* Elements are drawn in whole blocks, from multiples of BLOCK: a range's split has no effect. */
enum { COUNTERS = VEC_PHILOX_WORDS / 4, BLOCK = VEC_PHILOX_WORDS };

struct words {
	uint32_t w[4][COUNTERS];
};

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). */
static void philox(struct words *x, struct vec_key key, uint64_t counter)
{
	uint32_t key0 = (uint32_t)key.seed, key1 = (uint32_t)(key.seed >> 32);

	for (int j = 0; j < COUNTERS; j++) {
		x->w[0][j] = (uint32_t)(counter + (uint64_t)j);
		x->w[1][j] = (uint32_t)((counter + (uint64_t)j) >> 32);
		x->w[2][j] = (uint32_t)key.place;
		x->w[3][j] = (uint32_t)(key.place >> 32);
	}
	for (int round = 0; round < 10; round++) {
#pragma omp simd
		for (int j = 0; j < COUNTERS; j++) {
			uint64_t a = (uint64_t)x->w[0][j] * 0xd2511f53;
			uint64_t b = (uint64_t)x->w[2][j] * 0xcd9e8d57;

			x->w[0][j] = (uint32_t)(b >> 32) ^ x->w[1][j] ^ key0;
			x->w[1][j] = (uint32_t)b;
			x->w[2][j] = (uint32_t)(a >> 32) ^ x->w[3][j] ^ key1;
			x->w[3][j] = (uint32_t)a;
		}
		key0 += 0x9e3779b9;
		key1 += 0xbb67ae85;
	}
}

void vec_philox(uint32_t words[VEC_PHILOX_WORDS], struct vec_key key, uint64_t counter)
{
	struct words x;

	philox(&x, key, counter);
	for (int j = 0; j < COUNTERS; j++) {
		for (int w = 0; w < 4; w++)
			words[4 * j + w] = x.w[w][j];
	}
}

typedef void make_block(k_real *block, struct vec_key key, uint64_t counter, double a, double b);

/* Elements first .. first+n-1 from their blocks. */
static void cut(k_real *out, int64_t n, struct vec_key key, int64_t first, make_block *make,
	double a, double b)
{
	k_real block[BLOCK];

	while (n > 0) {
		int64_t skip = first % BLOCK, take = BLOCK - skip < n ? BLOCK - skip : n;

		make(block, key, (uint64_t)(first / BLOCK) * COUNTERS, a, b);
		memcpy(out, block + skip, (size_t)take * sizeof *out);
		out += take;
		first += take;
		n -= take;
	}
}

/* p is compared in units of 2^-32: kept with probability 1 - p to that precision. */
static void make_mask(k_real *block, struct vec_key key, uint64_t counter, double p, double unused)
{
	uint64_t limit = (uint64_t)(p * 4294967296.0);
	uint32_t limit32 = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
	k_real kept = (k_real)(1 / (1 - p));
	struct words x;

	philox(&x, key, counter);
	for (int j = 0; j < COUNTERS; j++) {
		for (int w = 0; w < 4; w++)
			block[4 * j + w] = x.w[w][j] >= limit32 ? kept : 0;
	}
}

void vec_dropout_mask(k_real *mask, int64_t n, struct vec_key key, int64_t first, double p)
{
	cut(mask, n, key, first, make_mask, p, 0);
}

/*
 * Box-Muller: words 0 and 1 give elements 0 and 1, words 2 and 3 give 2 and 3. The radius uses 23
 * bits and a half, the angle 24: float holds these exactly.
 */
static void make_normal(
	k_real *block, struct vec_key key, uint64_t counter, double mean, double std)
{
	k_real unit = (k_real)(1.0 / 8388608), m = (k_real)mean, s = (k_real)std;
	k_real pair[4][COUNTERS];
	struct words x;

	philox(&x, key, counter);
	for (int w = 0; w < 4; w += 2) {
#pragma omp simd
		for (int j = 0; j < COUNTERS; j++) {
			k_real u = ((k_real)(int32_t)(x.w[w][j] >> 9) + (k_real)0.5) * unit;
			k_real turns = (k_real)(int32_t)(x.w[w + 1][j] >> 8) * (unit / 2);
			k_real square = -2 * vec_logf(u), sine, cosine;
#ifdef K_DOUBLE
			k_real radius = sqrt(square);
#else
			k_real radius = sqrtf(square < 0 ? 0 : square);
#endif
			vec_sincos(turns, &sine, &cosine);
			pair[w][j] = vec_fma(radius * cosine, s, m);
			pair[w + 1][j] = vec_fma(radius * sine, s, m);
		}
	}
	for (int j = 0; j < COUNTERS; j++) {
		for (int w = 0; w < 4; w++)
			block[4 * j + w] = pair[w][j];
	}
}

void vec_normal(k_real *out, int64_t n, struct vec_key key, int64_t first, double mean, double std)
{
	cut(out, n, key, first, make_normal, mean, std);
}
