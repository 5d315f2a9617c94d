/*
 * fuzz.h: what the targets share. A target reads bytes that nobody vouches for; it must come back,
 * and what the code under it promises must hold.
 */
#ifndef GPT2D_TESTS_FUZZ_FUZZ_H
#define GPT2D_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken invariant ends the process, also with NDEBUG. */
#define FUZZ_MUST(condition)                                                                       \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,          \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
