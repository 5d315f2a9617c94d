/*
 * kernels_gpu: the cases on the GPU, compared with the output of gpu_reference. Each case runs
 * twice on poisoned outputs and must give the same bits. The last line is "N passed, N failed".
 *
 *   kernels_gpu fp32|tf32|bf16|fp16 near|exact|attention|products REFERENCE
 *               [all|small|own [WAY [CHOICES]]]
 *
 * WAY: the way of attention: best, plain, tiled, wmma, mma or wgmma. CHOICES: a file of the
 * algorithms of products; the program tries out and adds missing ones.
 *
 * A result passes when |got - want| / |want|, Euclidean norms, is at most its tolerance, and no
 * element is further off than PEAK tolerances of the largest |want|. NaN passes only where NaN is
 * wanted.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cases.h"
#include "tests/gpu/choices.h"

static const double peak = 8;

enum { RESULTS_MAX = 16 };

/* The results of a case's first run. */
struct kept {
	double *x;
	int64_t n;
};

struct comparison {
	FILE *reference;
	const char *dtype;
	const struct cases_case *now;
	struct kept first[RESULTS_MAX];
	int at;      /* number of the case's next result */
	bool second; /* run */
	int passed, failed;
};

static void *allocated(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	if (!memory) {
		fprintf(stderr, "kernels_gpu: no memory for %zu bytes\n", bytes);
		exit(2);
	}
	return memory;
}

static void row(struct comparison *c, const char *name, double norm, double worst, double tolerance,
	const char *verdict)
{
	const struct cases_shape *s = &c->now->shape;

	printf("%-5s %-22s %5lld %5lld %5lld %5lld %-4.2g %-14s %9.2e %9.2e %9.2e %s\n", c->dtype,
		c->now->name, (long long)s->a, (long long)s->b, (long long)s->c, (long long)s->d,
		s->p, name, norm, worst, tolerance, verdict);
	fflush(stdout);
}

static double *read_reference(struct comparison *c, const char *name, int64_t n)
{
	double *want = allocated((size_t)n * sizeof *want);
	int64_t found = -1;

	if (fread(&found, sizeof found, 1, c->reference) != 1 || found != n ||
		fread(want, sizeof *want, (size_t)n, c->reference) != (size_t)n) {
		fprintf(stderr, "kernels_gpu: %s, %s: reference has %lld elements, %lld expected\n",
			c->now->name, name, (long long)found, (long long)n);
		exit(2);
	}
	return want;
}

/* Prints the first element that differs by more than that. */
static void first_wrong(const double *x, const double *want, int64_t n, double that)
{
	for (int64_t i = 0; i < n; i++) {
		if (isnan(x[i]) && isnan(want[i]))
			continue;
		if (!(fabs(x[i] - want[i]) <= that)) {
			printf("  element %lld: %.9g, expected %.9g\n", (long long)i, x[i],
				want[i]);
			return;
		}
	}
}

static void compare(
	struct comparison *c, const char *name, const double *x, int64_t n, double tolerance)
{
	double *want = read_reference(c, name, n);
	double difference = 0, size = 0, worst = 0, largest = 0;
	bool good;

	for (int64_t i = 0; i < n; i++) {
		double d = isnan(x[i]) && isnan(want[i]) ? 0 : fabs(x[i] - want[i]);

		difference += d * d;
		size += isnan(want[i]) ? 0 : want[i] * want[i];
		worst = d > worst || isnan(d) ? d : worst;
		largest = fabs(want[i]) > largest ? fabs(want[i]) : largest;
	}
	difference = size > 0 ? sqrt(difference / size) : sqrt(difference);
	worst = largest > 0 ? worst / largest : worst;
	good = difference <= tolerance && worst <= peak * tolerance;
	row(c, name, difference, worst, tolerance, good ? "ok" : "FAILED");
	if (good) {
		c->passed++;
	} else {
		c->failed++;
		first_wrong(x, want, n, tolerance * largest);
	}
	free(want);
}

/* Compares the first run with the reference, the second with the first. */
static void take_result(
	struct harness *h, const char *name, const double *x, int64_t n, double tolerance)
{
	struct comparison *c = h->owner;
	struct kept *first = &c->first[c->at++];

	if (c->second) {
		if (memcmp(first->x, x, (size_t)n * sizeof *x) != 0) {
			row(c, name, 0, 0, tolerance, "FAILED: other bits the second time");
			c->failed++;
		}
		free(first->x);
		return;
	}
	first->n = n;
	first->x = allocated((size_t)n * sizeof *x);
	memcpy(first->x, x, (size_t)n * sizeof *x);
	compare(c, name, x, n, tolerance);
}

static void run_case(struct harness *h, const struct cases_case *cc, uint64_t seed)
{
	struct comparison *c = h->owner;

	c->now = cc;
	for (int round = 0; round < 2; round++) {
		c->second = round == 1;
		c->at = 0;
		harness_restart(h, seed);
		cc->run(h, &cc->shape);
	}
}

static int run(struct comparison *c, enum k_dtype dtype, enum cases_set set,
	enum cases_extent extent, enum k_attention way, const char *choices)
{
	struct harness h;
	int rc;

	if (harness_init(&h, dtype, way, set == CASES_PRODUCTS) < 0)
		return -1;
	rc = choices ? choices_read(h.ctx, choices) : 0;
	h.result = take_result;
	h.owner = c;
	cases_run(&h, set, extent, run_case);
	if (k_context_error(h.ctx)) {
		printf("context: %s\n", k_context_error(h.ctx));
		c->failed++;
	}
	if (rc > 0)
		rc = choices_write(h.ctx, choices);
	harness_finish(&h);
	return rc;
}

int main(int argc, char **argv)
{
	int dtype = argc > 3 ? harness_dtype(argv[1]) : -1;
	int set = argc > 3 ? cases_set_named(argv[2]) : -1;
	int extent = argc > 4 ? cases_extent_named(argv[4]) : CASES_ALL;
	int way = argc > 5 ? harness_way(argv[5]) : K_ATTENTION_BEST;
	struct comparison c = {0};

	if (dtype < 0 || set < 0 || extent < 0 || way < 0) {
		fprintf(stderr,
			"usage: kernels_gpu fp32|tf32|bf16|fp16 near|exact|attention|products "
			"REFERENCE [all|small|own [WAY [CHOICES]]]\n");
		return 2;
	}
	c.dtype = argv[1];
	c.reference = fopen(argv[3], "re");
	if (!c.reference) {
		perror(argv[3]);
		return 2;
	}
	if (run(&c, (enum k_dtype)dtype, (enum cases_set)set, (enum cases_extent)extent,
		    (enum k_attention)way, argc > 6 ? argv[6] : NULL) < 0)
		return 1;
	fclose(c.reference);
	printf("%d passed, %d failed\n", c.passed, c.failed);
	return c.failed == 0 ? 0 : 1;
}
