/*
 * big.h: tensors of more than 2^31 elements, made and compared on a device without a CPU reference:
 * what an operation makes of all rows at once beside what it makes of pieces of them.
 */
#ifndef GPT2D_TESTS_GPU_BIG_H
#define GPT2D_TESTS_GPU_BIG_H

#include "tests/gpu/harness.h"

enum {
	BIG_PIECES = 8,
	BIG_SEED = 42, /* of dropouts, and their place */
	BIG_PLACE = 9,
};

struct big {
	struct harness h;
	struct k_stream *s; /* of h */
	bool small;         /* a few thousand elements, to try the program itself */
	k_real *draws;      /* device, what tensors of 16 bits are rounded from */
	char *host[2];      /* what is compared */
	int64_t allowed_bytes;
	int passed, failed, skipped;
};

/* 0 or a negative errno; message on stderr. No case takes more device memory than allowed_bytes. */
int big_init(
	struct big *b, enum k_dtype dtype, enum k_attention way, bool small, int64_t allowed_bytes);
void big_finish(struct big *b);

/* Rows of so many elements that are more than 2^31 in all; a multiple of 8, small: 64. */
int64_t big_rows(const struct big *b, int64_t columns);

/* Gives back what the case before took. False, and a line why, when there is not so much memory. */
bool big_begin(struct big *b, const char *name, int64_t elems, int64_t reals);

/* Device memory of the case: NaN, of n elements of the compute type or of fp32. */
void *big_room(struct big *b, int64_t n);
k_real *big_room_real(struct big *b, int64_t n);
/*
 * x (n) = elements first.. of the normal sequence of that number, in the compute type, independent
 * of n.
 */
void big_draw(struct big *b, void *x, int64_t first, int64_t n, uint32_t sequence, double mean,
	double std);
/* big_room, drawn from the first element on. */
void *big_tensor(struct big *b, int64_t n, uint32_t sequence, double mean, double std);
void *big_zeros(struct big *b, int64_t n);
/* Rows at the end that alone have gradients; x: zeros, and drawn in the last n of all elements. */
int64_t big_last_rows(const struct big *b);
void big_draw_last(struct big *b, void *x, int64_t all, int64_t n, uint32_t sequence);
/* x + n elements of the compute type */
void *big_at(const struct big *b, void *x, int64_t n);

/*
 * One comparison, of as many parts as big_compare gets. tolerance 0: the same bits, and all
 * of them numbers; else the length of the differences by that of what is wanted, and the largest of
 * each by 8 times that.
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
/* The three of them. */
void big_compare_once(struct big *b, const char *name, double tolerance, const void *got,
	const void *want, int64_t n);
double big_tolerance(const struct big *b); /* of the type, for two that were each rounded */

void big_verdict(struct big *b, const char *name, bool good);

/* Word i of the Philox4x32-10 sequence of kernels.h, by the host. */
uint32_t big_philox(uint64_t seed, uint64_t place, uint64_t i);

#endif
