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

size_t design_count(const struct spec *spec)
{
	if (!spec->has_arms)
		return 1;
	return (size_t)spec->repetitions * spec->n_arms * (spec->mirrored ? 2 : 1);
}

void design_order(const struct spec *spec, struct design_segment *out)
{
	uint64_t state = (uint64_t)spec->design_seed;
	size_t order[SPEC_ARMS_MAX], n = spec->n_arms;
	size_t length = n * (spec->mirrored ? 2 : 1);

	if (!spec->has_arms) {
		out[0] = (struct design_segment){0};
		return;
	}
	for (int64_t block = 0; block < spec->repetitions; block++) {
		for (size_t i = 0; i < n; i++)
			order[i] = i;
		shuffle(order, n, &state);
		for (size_t i = 0; i < length; i++)
			*out++ = (struct design_segment){.block = block,
				.position = (int64_t)i,
				.arm = order[i < n ? i : length - 1 - i]};
	}
}
