/*
 * cross_entropy.cuh: shared by the kernels of softmax cross-entropy. A block of THREADS threads
 * takes a row; a thread takes every THREADS-th piece of N elements.
 */
#ifndef GPT2D_KERNELS_CUDA_CROSS_ENTROPY_CUH
#define GPT2D_KERNELS_CUDA_CROSS_ENTROPY_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/stream.cuh"

/* The arguments of k_cross_entropy. */
template <typename T> struct cross_entropy {
	float *losses;
	T *logits;
	const int32_t *targets;
	int64_t R, V, Vp;
	double factor;
	const double *times;
	struct context_finding *finding;
};

static const float cross_entropy_log2_e = 1.4426950408889634f;

/* The running maximum times log2 e, and the sum of 2^(x log2 e - max). */
struct cross_entropy_sum {
	float max, sum;
};
static const float cross_entropy_lowest = -3.0e38f; /* not -inf: inf - inf never occurs */

static __device__ __forceinline__ struct cross_entropy_sum cross_entropy_join(
	struct cross_entropy_sum a, struct cross_entropy_sum b)
{
	struct cross_entropy_sum c;

	c.max = fmaxf(a.max, b.max);
	c.sum = a.sum * element_exp2(a.max - c.max) + b.sum * element_exp2(b.max - c.max);
	return c;
}

/* Over the block's THREADS threads, with this hardware barrier. */
template <int THREADS, int BARRIER>
static __device__ struct cross_entropy_sum cross_entropy_join_block(
	struct cross_entropy_sum p, struct cross_entropy_sum *shared)
{
	int lane = threadIdx.x % REDUCE_WARP, warp = threadIdx.x / REDUCE_WARP;

	for (int round = 0; round < 2; round++) {
#pragma unroll
		for (int step = REDUCE_WARP / 2; step > 0; step /= 2) {
			struct cross_entropy_sum other;

			other.max = __shfl_xor_sync(reduce_all_lanes, p.max, step);
			other.sum = __shfl_xor_sync(reduce_all_lanes, p.sum, step);
			/* the lower lane first: all lanes get the same bits */
			p = lane & step ? cross_entropy_join(other, p)
					: cross_entropy_join(p, other);
		}
		if (round == 1)
			break;
		if (lane == 0)
			shared[warp] = p;
		asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory");
		p.max = cross_entropy_lowest;
		p.sum = 0;
		if (lane < THREADS / REDUCE_WARP)
			p = shared[lane];
	}
	return p;
}

/* N elements from column i on; those from V on read as cross_entropy_lowest. */
template <typename T, int N>
static __device__ __forceinline__ void cross_entropy_piece(
	float (&x)[N], const T *from, int64_t i, int64_t V)
{
	element_load(x, from);
	if (i + N <= V)
		return;
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = i + j < V ? x[j] : cross_entropy_lowest / cross_entropy_log2_e;
}

/* KEEP: copies the row to kept */
template <typename T, int N, int THREADS, bool KEEP>
static __device__ struct cross_entropy_sum cross_entropy_row(T *kept, const T *row, int64_t V)
{
	struct cross_entropy_sum p = {cross_entropy_lowest, 0};

#pragma unroll 4
	for (int64_t i = (int64_t)threadIdx.x * N; i < V; i += THREADS * N) {
		float x[N], max = cross_entropy_lowest, sum = 0;

		if (KEEP) {
			element_vec<T, N> piece = *(const element_vec<T, N> *)(row + i);

			*(element_vec<T, N> *)(kept + i) = piece;
			cross_entropy_piece(x, piece.v, i, V);
		} else {
			cross_entropy_piece(x, row + i, i, V);
		}
#pragma unroll
		for (int j = 0; j < N; j++)
			max = fmaxf(max, x[j]);
		max = fmaxf(p.max, max * cross_entropy_log2_e);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += element_exp2(fmaf(x[j], cross_entropy_log2_e, -max));
		p.sum = p.sum * element_exp2(p.max - max) + sum;
		p.max = max;
	}
	return p;
}

/* from: the row, or the same thread's copy of it */
template <typename T, int N, int THREADS>
static __device__ void cross_entropy_gradient(T *row, const T *from, int64_t target,
	struct cross_entropy_sum p, int64_t V, int64_t Vp, float scale)
{
	float by = scale / p.sum;

#pragma unroll 2
	for (int64_t i = (int64_t)threadIdx.x * N; i < Vp; i += THREADS * N) {
		float x[N] = {};

		if (i < V) {
			cross_entropy_piece(x, from + i, i, V);
#pragma unroll
			for (int j = 0; j < N; j++)
				x[j] = element_exp2(fmaf(x[j], cross_entropy_log2_e, -p.max)) * by;
		}
		if (i <= target && target < i + N) {
#pragma unroll
			for (int j = 0; j < N; j++)
				x[j] -= i + j == target ? scale : 0;
		}
		element_store(row + i, x);
	}
}

static __device__ void cross_entropy_report(
	struct context_finding *finding, int64_t target, int64_t row, int64_t classes)
{
	finding->target = (int32_t)target;
	finding->row = row;
	finding->classes = classes;
	__threadfence_system();
	finding->bad_target = 1;
}

/*
 * Hopper's kernel, for 16-bit elements, wide rows and a factor > 0 (cross_entropy_bulk.cu); false:
 * not applicable, nothing launched.
 */
template <typename T> bool cross_entropy_bulk(struct k_stream *s, const struct cross_entropy<T> &a);

#endif
