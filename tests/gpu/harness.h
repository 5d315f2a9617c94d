/*
 * harness.h: one case run on two libraries. The same cases are linked with the CPU library, which
 * writes its results to a file, and with the CUDA library, whose results are compared with that
 * file. Inputs are the same in both: random, and rounded to the type under test.
 */
#ifndef GPT2D_TESTS_GPU_HARNESS_H
#define GPT2D_TESTS_GPU_HARNESS_H

#include "kernels/kernels.h"

enum { HARNESS_BLOCKS_MAX = 64 };

struct harness {
	struct k_context *ctx;
	struct k_stream *s;
	enum k_dtype under_test; /* inputs are rounded to it */
	bool own;                /* no product by the library's kernels, in cases that have them */
	uint64_t random;
	void *blocks[HARNESS_BLOCKS_MAX]; /* device memory of the case */
	int n_blocks;
	/* Called with each result; tolerance 0: the same bits. */
	void (*result)(
		struct harness *h, const char *name, const double *x, int64_t n, double tolerance);
	void *owner;
};

/*
 * 0 or a negative errno; message on stderr. Only for CUDA: way of attention, and products as in
 * k_context_options.
 */
int harness_init(
	struct harness *h, enum k_dtype under_test, enum k_attention way, bool own_products);
void harness_finish(struct harness *h);

/* Before each case: restarts the random numbers, frees the memory. */
void harness_restart(struct harness *h, uint64_t seed);

/* "fp32", "tf32", "bf16", "fp16"; -1: no such type. */
int harness_dtype(const char *name);

/* "best", "plain", "tiled", "wmma", "mma", "wgmma"; -1: no such way. */
int harness_way(const char *name);

/* Relative tolerance of a result with about one rounding to the type under test. */
double harness_tolerance(const struct harness *h);

/*
 * Device tensors of the case: uniform in mean-by..mean+by, or all NaN. Those of k_real are only
 * rounded to fp32.
 */
void *harness_tensor(struct harness *h, int64_t n, double mean, double by);
k_real *harness_real(struct harness *h, int64_t n, double mean, double by);
void *harness_poison(struct harness *h, int64_t n);
k_real *harness_poison_real(struct harness *h, int64_t n);
int32_t *harness_tokens(struct harness *h, int64_t n, int32_t below);
void *harness_bytes(struct harness *h, const void *from, size_t bytes);

/* Pass results to h->result. */
void harness_result(
	struct harness *h, const char *name, const void *tensor, int64_t n, double tolerance);
void harness_result_real(
	struct harness *h, const char *name, const k_real *tensor, int64_t n, double tolerance);

/* A result of one number: how many elements differ in a bit; none on either library. */
void harness_same(struct harness *h, const char *name, const void *a, const void *b, int64_t n);

/* An element in the type of memory. */
void harness_encode(enum k_dtype dtype, double x, void *to);

#endif
