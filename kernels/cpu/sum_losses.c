#include "kernels/cpu/stream.h"

struct sum {
	double *sum;
	const k_real *losses;
	int64_t n;
};

static int run(struct k_stream *s, const void *args)
{
	const struct sum *a = args;
	double sum = *a->sum;

	for (int64_t i = 0; i < a->n; i++)
		sum += (double)a->losses[i];
	*a->sum = sum;
	return 0;
}

void k_sum_losses(struct k_stream *s, double *sum, const k_real *losses, int64_t n)
{
	struct sum a = {sum, losses, n};

	stream_submit(s, "k_sum_losses", run, &a, sizeof a);
}
