/*
 * big.h: tensors of more than 2^31 elements, on a device without a CPU reference: compares an
 * operation's results for all rows with its results for pieces of them.
 */
#ifndef GPT2D_TESTS_GPU_BIG_H
#define GPT2D_TESTS_GPU_BIG_H

#include "tests/gpu/harness.h"

enum {
	BIG_PIECES = 8,
	BIG_SEED = 42, /* of dropouts, also their place */
	BIG_PLACE = 9,
};

struct big {
	struct harness h;
	struct k_stream *s; /* of h */
	bool small;         /* a few thousand elements, to test the program itself */
	k_real *draws;      /* device; tensors of 16 bits are rounded from these */
	char *host[2];      /* data to compare */
	int64_t allowed_bytes;
	int passed, failed, skipped;
};

/* 0 or a negative errno; message on stderr. No case uses more device memory than allowed_bytes. */
int big_init(
	struct big *b, enum k_dtype dtype, enum k_attention way, bool small, int64_t allowed_bytes);
void big_finish(struct big *b);

/* The number of rows for more than 2^31 elements in all; a multiple of 8; small: 64. */
int64_t big_rows(const struct big *b, int64_t columns);

/* Frees the last case's memory. False, and a line with the reason, without enough memory. */
bool big_begin(struct big *b, const char *name, int64_t elems, int64_t reals);

/* Device memory of the case: n NaNs of the compute type or of fp32. */
void *big_room(struct big *b, int64_t n);
k_real *big_room_real(struct big *b, int64_t n);
/*
 * x (n) = elements first.. of the normal sequence of that number, in the compute type, independent
 * of n.
 */
void big_draw(struct big *b, void *x, int64_t first, int64_t n, uint32_t sequence, double mean,
	double std);
/* big_room, drawn from element 0 on. */
void *big_tensor(struct big *b, int64_t n, uint32_t sequence, double mean, double std);
void *big_zeros(struct big *b, int64_t n);
/* The last rows, which alone have gradients; x: zeros, with draws in the last n of all elements. */
int64_t big_last_rows(const struct big *b);
void big_draw_last(struct big *b, void *x, int64_t all, int64_t n, uint32_t sequence);
/* x + n elements of the compute type */
void *big_at(const struct big *b, void *x, int64_t n);

/*
 * One comparison, in as many parts as big_compare gets. tolerance 0: the same bits, all of them
 * numbers; else it bounds |difference| / |want|, and 8 times it bounds max |difference| / max
 * |want|.
 */
struct big_check {
	const char *name;
	double tolerance;
	double differences, squares, worst, largest;
	int64_t compared, differ,
		first; /* elements; first: the first that differs; -1: none does */
	bool number;
};
struct big_check big_check_begin(const char *name, double tolerance);
void big_compare(
	struct big *b, struct big_check *check, const void *got, const void *want, int64_t n);
void big_compare_real(
	struct big *b, struct big_check *check, const k_real *got, const k_real *want, int64_t n);
void big_check_end(struct big *b, const struct big_check *check);
/* All three in one call. */
void big_compare_once(struct big *b, const char *name, double tolerance, const void *got,
	const void *want, int64_t n);
double big_tolerance(const struct big *b); /* for two results with one rounding each */

void big_verdict(struct big *b, const char *name, bool good);

/* Word i of the Philox4x32-10 sequence of kernels.h, on the host. */
uint32_t big_philox(uint64_t seed, uint64_t place, uint64_t i);

#endif
