#include "tests/unit/kernels/kernels_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS_MAX = 1024 };

struct fixture fixture;

static int table_index;
static void *blocks[BLOCKS_MAX];
static int n_blocks;
static uint64_t random_state;

int fixture_setup(void **state)
{
	int rc = k_context_create(&(struct k_context_options){.threads = 3}, &fixture.ctx);

	fixture_restart();
	if (rc < 0)
		return rc;
	fixture.ctx->vec = vec_choose(table_index);
	return k_stream_create(fixture.ctx, K_STREAM_COMPUTE, "compute", &fixture.s);
}

int fixture_teardown(void **state)
{
	const char *error = k_context_error(fixture.ctx);
	int rc = error ? -1 : 0;

	if (error)
		fprintf(stderr, "%s\n", error);
	k_stream_destroy(fixture.s);
	k_context_destroy(fixture.ctx);
	while (n_blocks > 0)
		free(blocks[--n_blocks]);
	return rc;
}

int fixture_run_group(const char *name, const struct CMUnitTest *tests, size_t n)
{
	int failed = 0;

	for (table_index = 0; vec_choose(table_index); table_index++) {
		print_message("instruction set: %s\n", vec_choose(table_index)->name);
		failed += _cmocka_run_group_tests(name, tests, n, NULL, NULL);
	}
	return failed;
}

void fixture_restart(void)
{
	random_state = 88172645463325252u;
}

static void *keep(size_t bytes)
{
	void *memory = calloc(1, bytes ? bytes : 1);

	assert_non_null(memory);
	assert_true(n_blocks < BLOCKS_MAX);
	blocks[n_blocks++] = memory;
	return memory;
}

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

double *fixture_random(int64_t n, double by)
{
	double *x = fixture_host(n);

	for (int64_t i = 0; i < n; i++)
		x[i] = (double)(float)(by *
					((double)(next_random() >> 11) / 4503599627370496.0 - 1));
	return x;
}

int32_t *fixture_tokens(int64_t n, int32_t below)
{
	int32_t *tokens = keep((size_t)n * sizeof *tokens);

	for (int64_t i = 0; i < n; i++)
		tokens[i] = (int32_t)(next_random() % (uint64_t)below);
	return tokens;
}

double *fixture_host(int64_t n)
{
	return keep((size_t)n * sizeof(double));
}

k_real *fixture_device(const double *x, int64_t n)
{
	k_real *d = keep((size_t)n * sizeof *d);

	for (int64_t i = 0; i < n; i++)
		d[i] = (k_real)x[i];
	return d;
}

k_real *fixture_poison(int64_t n)
{
	k_real *d = keep((size_t)n * sizeof *d);

	for (int64_t i = 0; i < n; i++)
		d[i] = (k_real)NAN;
	return d;
}

double *fixture_copy(const k_real *x, int64_t n)
{
	double *h = fixture_host(n);

	for (int64_t i = 0; i < n; i++)
		h[i] = (double)x[i];
	return h;
}

static double largest(const double *x, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

void fixture_equal(
	const char *what, const double *got, const double *want, int64_t n, double tolerance)
{
	double most = largest(want, n);

	for (int64_t i = 0; i < n; i++) {
		if (fabs(got[i] - want[i]) <= tolerance * most)
			continue;
		fail_msg("%s: element %lld: %.17g, %.17g expected (off by %.2g of the largest)",
			what, (long long)i, got[i], want[i], fabs(got[i] - want[i]) / most);
	}
}

void fixture_gradient(const char *what, double (*loss)(void *env), void *env, double *x,
	const double *gradient, int64_t n, int64_t samples)
{
	int64_t stride = n > samples ? n / samples : 1;
	double most = largest(gradient, n);

	for (int64_t i = 0; i < n; i++)
		assert_true(isfinite(gradient[i]));
	for (int64_t i = 0; i < n; i += stride) {
		double at = x[i], h = 1e-3, d1, d2, slope;

		/* fourth order: differences over h and 2h */
		x[i] = at + h;
		d1 = loss(env);
		x[i] = at - h;
		d1 -= loss(env);
		x[i] = at + 2 * h;
		d2 = loss(env);
		x[i] = at - 2 * h;
		d2 -= loss(env);
		x[i] = at;
		slope = (8 * d1 - d2) / (12 * h);
		if (fabs(slope - gradient[i]) <= FIXTURE_GRADIENT * most)
			continue;
		fail_msg("%s: element %lld: gradient %.12g, differences say %.12g", what,
			(long long)i, gradient[i], slope);
	}
}

double fixture_dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

void fixture_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
	uint32_t c[4], k0 = key[0], k1 = key[1];

	memcpy(c, counter, sizeof c);
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
		uint32_t n[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
			(uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};

		memcpy(c, n, sizeof c);
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	memcpy(out, c, sizeof c);
}

double fixture_mask(const struct k_dropout *drop, int64_t i)
{
	uint32_t out[4];
	uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)((i / 4) >> 32), (uint32_t)drop->offset,
		(uint32_t)(drop->offset >> 32)};
	uint32_t key[2] = {(uint32_t)drop->seed, (uint32_t)(drop->seed >> 32)};

	if (drop->p == 0)
		return 1;
	fixture_philox(out, counter, key);
	return (double)out[i % 4] >= floor(drop->p * 4294967296.0) ? 1 / (1 - drop->p) : 0;
}
