/* cases.h: cases for both libraries. */
#ifndef GPT2D_TESTS_GPU_CASES_H
#define GPT2D_TESTS_GPU_CASES_H

#include "tests/gpu/harness.h"

/* Each case defines the meaning of its shape's numbers. */
struct cases_shape {
	int64_t a, b, c, d, e;
	double p; /* of the dropout */
};

/*
 * CASES_NEAR: compared with the CPU library in double, by the tolerance of the type. CASES_EXACT:
 * fp32, compared with the CPU library in float, which must give the same bits. CASES_ATTENTION:
 * cases of CASES_NEAR that every way of attention supports. CASES_PRODUCTS: in 16 bits, products
 * with GELU, by our own kernels for Hopper.
 */
enum cases_set { CASES_NEAR, CASES_EXACT, CASES_ATTENTION, CASES_PRODUCTS };

struct cases_case {
	const char *name;
	void (*run)(struct harness *h, const struct cases_shape *shape);
	struct cases_shape shape;
	bool small; /* also under compute-sanitizer */
};

/*
 * CASES_OWN: the small ones, and only our own kernels: compute-sanitizer's racecheck fails with an
 * internal error in cuBLASLt's kernels for Hopper (13.1, 16 bits).
 */
enum cases_extent { CASES_ALL, CASES_SMALL, CASES_OWN };

/* "near", "exact", "attention", "products"; -1: no such set. */
int cases_set_named(const char *name);

/* "all", "small", "own"; -1: no such extent. */
int cases_extent_named(const char *name);

/* The list ends with a name of NULL. */
extern const struct cases_case cases_linear[], cases_layers[], cases_attention[], cases_optimizer[],
	cases_exact[], cases_products[];

/* Runs each case of the set and the extent. */
void cases_run(struct harness *h, enum cases_set set, enum cases_extent extent,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed));

#endif
