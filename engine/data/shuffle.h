/*
 * shuffle.h: a permutation of 0..n-1 that needs no memory: a Feistel network over the next power of
 * four, repeated until the result is in range (Black and Rogaway, CT-RSA 2002). And its hash. Pure.
 */
#ifndef GPT2D_ENGINE_DATA_SHUFFLE_H
#define GPT2D_ENGINE_DATA_SHUFFLE_H

#include <stdint.h>

/*
 * The position of i (0 <= i < n) in the permutation of seed and epoch; one to one for every n >= 1.
 */
int64_t shuffle_index(uint64_t seed, uint64_t epoch, int64_t i, int64_t n);

/* 64 bits from 64 bits, every input bit reaching every output bit (splitmix64's finalizer, Steele
 * 2014). */
uint64_t shuffle_mix(uint64_t x);

#endif
