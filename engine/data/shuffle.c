#include "engine/data/shuffle.h"

#include <assert.h>

enum { SHUFFLE_ROUNDS = 6 };

uint64_t shuffle_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t feistel(uint64_t key, uint64_t x, int half_bits)
{
	uint64_t mask = (UINT64_C(1) << half_bits) - 1;
	uint64_t left = x >> half_bits;
	uint64_t right = x & mask;
	uint64_t round;

	for (round = 0; round < SHUFFLE_ROUNDS; round++) {
		uint64_t next = left ^ (shuffle_mix(shuffle_mix(key + round) ^ right) & mask);

		left = right;
		right = next;
	}
	return left << half_bits | right;
}

int64_t shuffle_index(uint64_t seed, uint64_t epoch, int64_t i, int64_t n)
{
	uint64_t key = shuffle_mix(shuffle_mix(seed) + epoch);
	uint64_t x = (uint64_t)i;
	int half_bits = 1;

	assert(i >= 0 && i < n);
	while (half_bits < 31 && INT64_C(1) << 2 * half_bits < n)
		half_bits++;
	assert(n <= INT64_C(1) << 62);
	do
		x = feistel(key, x, half_bits);
	while (x >= (uint64_t)n);
	return (int64_t)x;
}
