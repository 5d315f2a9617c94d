/*
 * gpu_reference, gpu_reference_float: the CPU library's results for the cases, to stdout. Each
 * result is its number of elements and the elements, as int64_t and doubles of this machine.
 *
 *   gpu_reference fp32|tf32|bf16|fp16 near|exact|attention|products
 *                 [all|small|own]
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/cases.h"

static void write_result(
	struct harness *h, const char *name, const double *x, int64_t n, double tolerance)
{
	if (fwrite(&n, sizeof n, 1, stdout) != 1 ||
		fwrite(x, sizeof *x, (size_t)n, stdout) != (size_t)n) {
		perror("gpu_reference: write");
		exit(1);
	}
}

static void run_case(struct harness *h, const struct cases_case *c, uint64_t seed)
{
	harness_restart(h, seed);
	c->run(h, &c->shape);
}

int main(int argc, char **argv)
{
	int dtype = argc > 2 ? harness_dtype(argv[1]) : -1, status = 0;
	int set = argc > 2 ? cases_set_named(argv[2]) : -1;
	int extent = argc > 3 ? cases_extent_named(argv[3]) : CASES_ALL;
	struct harness h;

	if (dtype < 0 || set < 0 || extent < 0) {
		fprintf(stderr,
			"usage: gpu_reference fp32|tf32|bf16|fp16 near|exact|attention|products "
			"[all|small|own]\n");
		return 2;
	}
	if (harness_init(&h, (enum k_dtype)dtype, K_ATTENTION_BEST, false) < 0)
		return 1;
	h.result = write_result;
	cases_run(&h, (enum cases_set)set, (enum cases_extent)extent, run_case);
	if (k_context_error(h.ctx)) {
		fprintf(stderr, "gpu_reference: %s\n", k_context_error(h.ctx));
		status = 1;
	}
	harness_finish(&h);
	return status;
}
