#include <math.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/stream.cuh"

/*
 * A block computes one head, THREADS keys at a time, one per thread. Like forward, it keeps the
 * running result (HS elements) in shared memory (Milakov & Gimelshein, arXiv:1805.02867).
 */
enum { THREADS = 256, SHARED_BYTES_MAX = 40 << 10 };

static __device__ float largest(float x, float *shared)
{
	const int lane = threadIdx.x % REDUCE_WARP;

	x = reduce_warp_max(x);
	__syncthreads();
	if (lane == 0)
		shared[threadIdx.x / REDUCE_WARP] = x;
	__syncthreads();
	return reduce_warp_max(lane < THREADS / REDUCE_WARP ? shared[lane] : -INFINITY);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
	attention_row(T *out, const T *qkv, int64_t rows, int64_t NH, int64_t HS, float scale)
{
	extern __shared__ float query[];
	__shared__ float weights[THREADS], shared[REDUCE_WARP];
	const int64_t stride = 3 * NH * HS;
	const T *q = qkv + (rows - 1) * stride + blockIdx.x * HS;
	const T *k = qkv + NH * HS + blockIdx.x * HS, *v = k + NH * HS;
	float *total = query + HS, top = -INFINITY, sum = 0;

	for (int64_t d = threadIdx.x; d < HS; d += THREADS) {
		query[d] = element_float(q[d]) * scale;
		total[d] = 0;
	}
	__syncthreads();
	for (int64_t first = 0; first < rows; first += THREADS) {
		const int n = (int)(rows - first < THREADS ? rows - first : THREADS);
		const bool mine = (int)threadIdx.x < n;
		const T *key = k + (first + threadIdx.x) * stride;
		float x = mine ? 0 : -INFINITY, before = top, keep, weight;

		for (int64_t d = 0; mine && d < HS; d++)
			x = fmaf(query[d], element_float(key[d]), x);
		top = fmaxf(top, largest(x, shared));
		keep = expf(before - top);
		weight = mine ? expf(x - top) : 0;
		weights[threadIdx.x] = weight; /* the sum's barriers publish them */
		sum = sum * keep +
			reduce_block_sum(weight, shared);
		for (int64_t d = threadIdx.x; d < HS; d += THREADS) {
			float value = total[d] * keep;

			for (int j = 0; j < n; j++)
				value = fmaf(weights[j], element_float(v[(first + j) * stride + d]),
					value);
			total[d] = value;
		}
		__syncthreads();
	}
	for (int64_t d = threadIdx.x; d < HS; d += THREADS)
		element_set(out + blockIdx.x * HS + d, total[d] / sum);
}

void k_attention_row(
	struct k_stream *s, void *out, const void *qkv, int64_t T, int64_t NH, int64_t HS)
{
	const size_t bytes = 2 * (size_t)HS * sizeof(float);

	if (T <= 0 || !stream_ready(s))
		return;
	if (bytes > SHARED_BYTES_MAX) {
		context_fail(s->ctx, "k_attention_row: a head size of %lld, at most %d",
			(long long)HS, (int)(SHARED_BYTES_MAX / (2 * sizeof(float))));
		return;
	}
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;

		attention_row<E><<<(unsigned int)NH, THREADS, bytes, s->cuda>>>(
			(E *)out, (const E *)qkv, T, NH, HS, 1 / sqrtf((float)HS));
	});
	stream_check(s, "k_attention_row");
}
