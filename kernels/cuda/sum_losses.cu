#include "kernels/cuda/stream.cuh"

enum { THREADS = 1024 };

/* One block: thread t takes losses t, t + THREADS, ...; then a tree adds the threads' sums. */
static __global__ void __launch_bounds__(THREADS) sum_losses(
	double *sum, const float *losses, int64_t n)
{
	__shared__ double shared[THREADS];
	double own = 0;

	for (int64_t i = threadIdx.x; i < n; i += THREADS)
		own += (double)losses[i];
	shared[threadIdx.x] = own;
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.x < half)
			shared[threadIdx.x] += shared[threadIdx.x + half];
	}
	if (threadIdx.x == 0)
		*sum += shared[0];
}

void k_sum_losses(struct k_stream *s, double *sum, const k_real *losses, int64_t n)
{
	if (n <= 0 || !stream_ready(s))
		return;
	sum_losses<<<1, THREADS, 0, s->cuda>>>(sum, losses, n);
	stream_check(s, "k_sum_losses");
}
