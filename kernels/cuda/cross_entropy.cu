#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/stream.cuh"

/*
 * A block takes a row. Where two rows fit into a multiprocessor's shared memory it keeps it there
 * between the two passes; else the second pass finds the row in the L2 cache.
 */
enum { THREADS = 512, ROWS_KEPT = 2, SHARED_BESIDE = 2048 };
static const float log2_e = 1.4426950408889634f;

/* The largest so far, times log2 e, and the sum of 2^(x log2 e - max). */
struct partial {
	float max, sum;
};
static const float lowest = -3.0e38f; /* not -inf: no inf - inf comes about */

static __device__ __forceinline__ struct partial join(struct partial a, struct partial b)
{
	struct partial c;

	c.max = fmaxf(a.max, b.max);
	c.sum = a.sum * element_exp2(a.max - c.max) + b.sum * element_exp2(b.max - c.max);
	return c;
}

static __device__ struct partial join_block(struct partial p, struct partial *shared)
{
	int lane = threadIdx.x % REDUCE_WARP, warp = threadIdx.x / REDUCE_WARP;

	for (int round = 0; round < 2; round++) {
#pragma unroll
		for (int step = REDUCE_WARP / 2; step > 0; step /= 2) {
			struct partial other;

			other.max = __shfl_xor_sync(reduce_all_lanes, p.max, step);
			other.sum = __shfl_xor_sync(reduce_all_lanes, p.sum, step);
			/* the lower lane's first: all lanes get the same bits */
			p = lane & step ? join(other, p) : join(p, other);
		}
		if (round == 1)
			break;
		if (lane == 0)
			shared[warp] = p;
		__syncthreads();
		p.max = lowest;
		p.sum = 0;
		if (lane < THREADS / REDUCE_WARP)
			p = shared[lane];
	}
	return p;
}

/* N elements beginning at column i, those from V on as if they were lowest. */
template <typename T, int N>
static __device__ __forceinline__ void read_piece(
	float (&x)[N], const T *from, int64_t i, int64_t V)
{
	element_load(x, from);
	if (i + N <= V)
		return;
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = i + j < V ? x[j] : lowest / log2_e;
}

template <typename T, int N, bool KEEP>
static __device__ struct partial sum_row(T *kept, const T *row, int64_t V)
{
	struct partial p = {lowest, 0};

#pragma unroll 4
	for (int64_t i = (int64_t)threadIdx.x * N; i < V; i += THREADS * N) {
		float x[N], max = lowest, sum = 0;

		if (KEEP) {
			element_vec<T, N> piece = *(const element_vec<T, N> *)(row + i);

			*(element_vec<T, N> *)(kept + i) = piece;
			read_piece(x, piece.v, i, V);
		} else {
			read_piece(x, row + i, i, V);
		}
#pragma unroll
		for (int j = 0; j < N; j++)
			max = fmaxf(max, x[j]);
		max = fmaxf(p.max, max * log2_e);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += element_exp2(fmaf(x[j], log2_e, -max));
		p.sum = p.sum * element_exp2(p.max - max) + sum;
		p.max = max;
	}
	return p;
}

/* from: the row itself or what was kept of it, by the same thread */
template <typename T, int N>
static __device__ void write_gradient(
	T *row, const T *from, int64_t target, struct partial p, int64_t V, int64_t Vp, float scale)
{
	float by = scale / p.sum;

#pragma unroll 2
	for (int64_t i = (int64_t)threadIdx.x * N; i < Vp; i += THREADS * N) {
		float x[N] = {};

		if (i < V) {
			read_piece(x, from + i, i, V);
#pragma unroll
			for (int j = 0; j < N; j++)
				x[j] = element_exp2(fmaf(x[j], log2_e, -p.max)) * by;
		}
		if (i <= target && target < i + N) {
#pragma unroll
			for (int j = 0; j < N; j++)
				x[j] -= i + j == target ? scale : 0;
		}
		element_store(row + i, x);
	}
}

static __device__ void report(
	struct context_finding *finding, int64_t target, int64_t row, int64_t classes)
{
	finding->target = (int32_t)target;
	finding->row = row;
	finding->classes = classes;
	__threadfence_system();
	finding->bad_target = 1;
}

template <typename T, int N, bool KEEP>
static __global__ void __launch_bounds__(THREADS) cross_entropy(float *losses, T *logits,
	const int32_t *targets, int64_t V, int64_t Vp, double factor, const double *times,
	struct context_finding *finding)
{
	extern __shared__ __align__(16) char memory[];
	__shared__ struct partial shared[REDUCE_WARP];
	int64_t r = blockIdx.x, target = targets[r];
	T *row = logits + r * Vp, *kept = (T *)memory;
	struct partial p;
	float logit, scale = (float)(times ? factor * *times : factor);

	if (target < 0 || target >= V) {
		if (threadIdx.x == 0)
			report(finding, target, r, V);
		return;
	}
	logit = element_float(row[target]);
	p = join_block(sum_row<T, N, KEEP>(kept, row, V), shared);
	if (threadIdx.x == 0)
		losses[r] = logf(p.sum) + (p.max / log2_e - logit);
	if (factor != 0)
		write_gradient<T, N>(row, KEEP ? kept : row, target, p, V, Vp, scale);
}

template <typename T, int N, bool KEEP>
static void launch(struct k_stream *s, float *losses, T *logits, const int32_t *targets, int64_t R,
	int64_t V, int64_t Vp, double scale, const double *times)
{
	size_t bytes = KEEP ? (size_t)Vp * sizeof(T) : 0;

	if (KEEP)
		context_check(s->ctx, "k_cross_entropy",
			cudaFuncSetAttribute(cross_entropy<T, N, KEEP>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	cross_entropy<T, N, KEEP><<<(unsigned int)R, THREADS, bytes, s->cuda>>>(
		losses, logits, targets, V, Vp, scale, times, s->ctx->finding);
}

void k_cross_entropy(struct k_stream *s, k_real *losses, void *logits, const int32_t *targets,
	int64_t R, int64_t V, int64_t Vp, double scale, const double *times)
{
	if (R <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;
		int64_t row_bytes = Vp * (int64_t)sizeof(T) + SHARED_BESIDE;
		bool wide = Vp % N == 0 && element_aligned(logits, 16);

		if (wide && scale != 0 && ROWS_KEPT * row_bytes <= s->ctx->shared_bytes)
			launch<T, N, true>(s, losses, (T *)logits, targets, R, V, Vp, scale,
				times);
		else if (wide)
			launch<T, N, false>(s, losses, (T *)logits, targets, R, V, Vp, scale,
				times);
		else
			launch<T, 1, false>(s, losses, (T *)logits, targets, R, V, Vp, scale,
				times);
	});
	stream_check(s, "k_cross_entropy");
}
