#include "proto/stats/design.h"

/* splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Uniform in 0..n-1: numbers of the last, incomplete round of n are drawn again. */
static size_t random_below(uint64_t *state, size_t n)
{
	uint64_t limit = UINT64_MAX - UINT64_MAX % n, v;

	do
		v = next_random(state);
	while (v >= limit);
	return (size_t)(v % n);
}

static void shuffle(size_t *order, size_t n, uint64_t *state)
{
	for (size_t i = n; i > 1; i--) {
		size_t j = random_below(state, i), t = order[j];

		order[j] = order[i - 1];
		order[i - 1] = t;
	}
}

size_t design_count(size_t n_arms, int64_t repetitions, bool mirrored)
{
	return (size_t)repetitions * n_arms * (mirrored ? 2 : 1);
}

void design_order(
	size_t n_arms, int64_t repetitions, bool mirrored, int64_t seed, struct design_segment *out)
{
	uint64_t state = (uint64_t)seed;
	size_t order[DESIGN_ARMS_MAX];
	const size_t length = n_arms * (mirrored ? 2 : 1);

	for (int64_t block = 0; block < repetitions; block++) {
		for (size_t i = 0; i < n_arms; i++)
			order[i] = i;
		shuffle(order, n_arms, &state);
		for (size_t i = 0; i < length; i++)
			*out++ = (struct design_segment){.block = block,
				.position = (int64_t)i,
				.arm = order[i < n_arms ? i : length - 1 - i]};
	}
}
