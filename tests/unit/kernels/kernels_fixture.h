/*
 * kernels_fixture.h: what the tests of the operations share. Host tensors are double and hold
 * values that float can hold; device tensors are k_real. References are naive loops in double. The
 * tests are built once per library, float and double, and run once per instruction set of the
 * processor.
 */
#ifndef GPT2D_TESTS_UNIT_KERNELS_KERNELS_FIXTURE_H
#define GPT2D_TESTS_UNIT_KERNELS_KERNELS_FIXTURE_H

#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"
#include "tests/unit/test.h"

/* Tolerances, relative to the largest magnitude of a tensor. */
#ifdef K_DOUBLE
#define FIXTURE_FORWARD  1e-13
#define FIXTURE_GRADIENT 1e-8
#else
#define FIXTURE_FORWARD  2e-6
#define FIXTURE_GRADIENT 1e-5
#endif

struct fixture {
	struct k_context *ctx;
	struct k_stream *s;
};
extern struct fixture fixture;

int fixture_setup(void **state);
int fixture_teardown(void **state); /* fails the test when the context has an error */

/* Runs the group once per instruction set; the status for main. */
int fixture_run_group(const char *name, const struct CMUnitTest *tests, size_t n);
#define FIXTURE_TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
#define FIXTURE_MAIN(...)                                                                          \
	int main(void)                                                                             \
	{                                                                                          \
		const struct CMUnitTest tests[] = {__VA_ARGS__};                                   \
		return fixture_run_group("tests", tests, sizeof(tests) / sizeof(tests[0]));        \
	}

/* The random numbers below start again. */
void fixture_restart(void);

/* Uniform in -by..by, the same values in every run; freed by fixture_teardown, as all below. */
double *fixture_random(int64_t n, double by);
int32_t *fixture_tokens(int64_t n, int32_t below);
double *fixture_host(int64_t n); /* zeroed */
k_real *fixture_device(const double *x, int64_t n);
k_real *fixture_poison(int64_t n); /* all NaN */
double *fixture_copy(const k_real *x, int64_t n);

/* |got - want| <= tolerance * largest |want| for every element; NaN never passes. */
void fixture_equal(
	const char *what, const double *got, const double *want, int64_t n, double tolerance);

/*
 * Compares gradient (n) with central differences of loss(env) over x (n), which loss reads; at most
 * about `samples` elements are tried, spread over x.
 */
void fixture_gradient(const char *what, double (*loss)(void *env), void *env, double *x,
	const double *gradient, int64_t n, int64_t samples);

/* Sum of a (n) * b (n). */
double fixture_dot(const double *a, const double *b, int64_t n);

/* Philox4x32-10, one block, written plainly. */
void fixture_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
/* What multiplies element i of a tensor under this dropout. */
double fixture_mask(const struct k_dropout *drop, int64_t i);

#endif
