#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/stream.cuh"

/* A block takes a row. The second pass finds the row in the L2 cache. */
enum { THREADS = 512 };
static const float log2_e = 1.4426950408889634f;

/* The largest so far and the sum of exp(x - max); lowest, so that no inf - inf comes about. */
struct partial {
	float max, sum;
};
static const float lowest = -3.0e38f;

static __device__ __forceinline__ float exp_of(float difference)
{
	return exp2f(difference * log2_e);
}

static __device__ __forceinline__ struct partial join(struct partial a, struct partial b)
{
	struct partial c;

	c.max = fmaxf(a.max, b.max);
	c.sum = a.sum * exp_of(a.max - c.max) + b.sum * exp_of(b.max - c.max);
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

template <typename T, int N> static __device__ struct partial sum_row(const T *row, int64_t V)
{
	struct partial p = {lowest, 0};

	for (int64_t i = (int64_t)threadIdx.x * N; i < V; i += THREADS * N) {
		float x[N], max = p.max, sum = 0;

		element_load(x, row + i);
#pragma unroll
		for (int j = 0; j < N; j++)
			max = i + j < V ? fmaxf(max, x[j]) : max;
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += i + j < V ? exp_of(x[j] - max) : 0;
		p.sum = p.sum * exp_of(p.max - max) + sum;
		p.max = max;
	}
	return p;
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) cross_entropy(float *losses, T *logits,
	const int32_t *targets, int64_t V, int64_t Vp, float scale, struct context_finding *finding)
{
	__shared__ struct partial shared[REDUCE_WARP];
	int64_t r = blockIdx.x, target = targets[r];
	T *row = logits + r * Vp;
	struct partial p;
	float logit, by;

	if (target < 0 || target >= V) {
		if (threadIdx.x == 0) {
			finding->target = (int32_t)target;
			finding->row = r;
			finding->classes = V;
			__threadfence_system();
			finding->bad_target = 1;
		}
		return;
	}
	logit = element_float(row[target]);
	p = join_block(sum_row<T, N>(row, V), shared);
	if (threadIdx.x == 0)
		losses[r] = logf(p.sum) + (p.max - logit);
	if (scale == 0)
		return;
	by = scale / p.sum;
	for (int64_t i = (int64_t)threadIdx.x * N; i < Vp; i += THREADS * N) {
		float x[N];

		element_load(x, row + i);
#pragma unroll
		for (int j = 0; j < N; j++) {
			x[j] = i + j < V ? exp_of(x[j] - p.max) * by : 0;
			x[j] -= i + j == target ? scale : 0;
		}
		element_store(row + i, x);
	}
}

void k_cross_entropy(struct k_stream *s, k_real *losses, void *logits, const int32_t *targets,
	int64_t R, int64_t V, int64_t Vp, double scale)
{
	if (R <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;

		if (Vp % N == 0 && element_aligned(logits, 16))
			cross_entropy<T, N><<<(unsigned int)R, THREADS, 0, s->cuda>>>(
				losses, (T *)logits, targets, V, Vp, (float)scale, s->ctx->finding);
		else
			cross_entropy<T, 1><<<(unsigned int)R, THREADS, 0, s->cuda>>>(
				losses, (T *)logits, targets, V, Vp, (float)scale, s->ctx->finding);
	});
	stream_check(s, "k_cross_entropy");
}
