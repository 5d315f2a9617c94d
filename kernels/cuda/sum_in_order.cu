#include "kernels/cuda/element.cuh"
#include "kernels/cuda/stream.cuh"

enum { SOURCES_MAX = 128 };

struct sources {
	const void *at[SOURCES_MAX];
};

/* Adds in fp32, rounds once. dst may be a source: each element is read before its write. */
template <typename T, int N>
static __global__ void sum_in_order(
	T *dst, const __grid_constant__ struct sources srcs, int count, int64_t n)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x * N;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n; i += stride) {
		float total[N], x[N];

		element_load(total, (const T *)srcs.at[0] + i);
		for (int k = 1; k < count; k++) {
			element_load(x, (const T *)srcs.at[k] + i);
#pragma unroll
			for (int j = 0; j < N; j++)
				total[j] += x[j];
		}
		element_store(dst + i, total);
	}
}

void k_sum_in_order(struct k_stream *s, void *dst, const void *const *srcs, int count, int64_t n)
{
	struct sources all = {};
	bool wide = element_aligned(dst, 16);

	if (n <= 0 || !stream_ready(s))
		return;
	if (count < 1 || count > SOURCES_MAX) {
		context_fail(
			s->ctx, "k_sum_in_order: %d sources, 1..%d expected", count, SOURCES_MAX);
		return;
	}
	for (int i = 0; i < count; i++) {
		all.at[i] = srcs[i];
		wide = wide && element_aligned(srcs[i], 16);
	}
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;

		if (wide && n % N == 0)
			sum_in_order<T, N><<<element_blocks(n / N, 256, 8192), 256, 0, s->cuda>>>(
				(T *)dst, all, count, n);
		else
			sum_in_order<T, 1><<<element_blocks(n, 256, 8192), 256, 0, s->cuda>>>(
				(T *)dst, all, count, n);
	});
	stream_check(s, "k_sum_in_order");
}
