#include <math.h>

#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/element.cuh"

/* A thread takes 8 elements: 64 bytes in flight for each of 2048 threads suffice. */
enum { THREADS = 256, LANES = WGMMA_TILE / 8, ROWS = THREADS / LANES };

/* For a query of a head; beyond the last query log-sum-exp is inf, so probabilities are 0. */
template <typename E>
static __device__ __forceinline__ void put_log_sums(float *rows, const struct attention<E> &a)
{
	uint32_t T = (uint32_t)a.T, padded = (T + WGMMA_TILE - 1) / WGMMA_TILE * WGMMA_TILE;
	uint32_t all = (uint32_t)(a.B * a.NH) * padded;

	for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < all; i += gridDim.x * THREADS) {
		uint32_t head = i / padded, t = i % padded;
		float *to =
			rows + (size_t)(i / WGMMA_TILE) * ATTENTION_ROWS_FLOATS + i % WGMMA_TILE;

		to[0] = t < T ? a.lse[(size_t)head * T + t] * attention_log2_e : INFINITY;
		if (t >= T)
			to[WGMMA_TILE] = 0;
	}
}

/*
 * Log-sum-exp (base 2) and delta of each query, 64 of a head together. A query's heads are
 * neighbours in (B,T,C), so neighbouring threads read neighbouring bytes.
 */
template <typename E>
static __global__ void __launch_bounds__(THREADS)
	attention_rows(float *rows, const __grid_constant__ struct attention<E> a, const E *out)
{
	uint32_t NH = (uint32_t)a.NH, T = (uint32_t)a.T, all = (uint32_t)(a.B * a.T) * NH;
	uint32_t tiles = (T + WGMMA_TILE - 1) / WGMMA_TILE, lane = threadIdx.x % LANES;
	uint32_t row = blockIdx.x * ROWS + threadIdx.x / LANES, t = row / NH % T;
	uint32_t head = row / NH / T * NH + row % NH;
	size_t at = (size_t)(row < all ? row : all - 1) * WGMMA_TILE + 8 * lane;
	float x[8], y[8], sum = 0;

#if WGMMA_THERE
	attention_let_next_begin();
#endif
	element_load(x, a.dout + at);
	element_load(y, out + at);
	put_log_sums(rows, a);
#pragma unroll
	for (int j = 0; j < 8; j++)
		sum = fmaf(x[j], y[j], sum);
#pragma unroll
	for (int by = LANES / 2; by > 0; by /= 2)
		sum += __shfl_xor_sync(reduce_all_lanes, sum, by);
	if (lane == 0 && row < all)
		rows[((size_t)head * tiles + t / WGMMA_TILE) * ATTENTION_ROWS_FLOATS + WGMMA_TILE +
			t % WGMMA_TILE] = sum;
}

size_t attention_wgmma_rows_bytes(int64_t B, int64_t T, int64_t NH)
{
	int64_t tiles = (T + WGMMA_TILE - 1) / WGMMA_TILE;

	return (size_t)(B * NH * tiles) * ATTENTION_ROWS_BYTES;
}

int64_t attention_wgmma_sums(int64_t B, int64_t T)
{
	return B * ((T + WGMMA_TILE - 1) / WGMMA_TILE);
}

template <typename E>
void attention_wgmma_rows(
	struct k_stream *s, float *rows, const struct attention<E> &a, const E *out)
{
	int64_t blocks = (a.B * a.T * a.NH + ROWS - 1) / ROWS;

	attention_rows<<<(unsigned int)blocks, THREADS, 0, s->cuda>>>(rows, a, out);
}

template void attention_wgmma_rows(struct k_stream *s, float *rows,
	const struct attention<__nv_bfloat16> &a, const __nv_bfloat16 *out);
template void attention_wgmma_rows(
	struct k_stream *s, float *rows, const struct attention<__half> &a, const __half *out);
