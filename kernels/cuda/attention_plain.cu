#include <math.h>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

/*
 * For head sizes and devices that the other versions do not support. A warp takes one query
 * (backward: one query, then one key) of one head and processes 32 keys (queries) at a time, one
 * per lane. Its vectors of HS elements lie in shared memory; lane l has elements l, l + 32, ...
 */
enum { WARPS = 4 };

struct place {
	int64_t head; /* b*NH + h */
	int64_t row;  /* the query or key of this warp */
	int64_t at3;  /* of the head's first q in (B,T,3C) */
	int64_t at;   /* of its first element in (B,T,C) */
};

template <typename E>
static __device__ struct place find(const struct attention<E> &a, int64_t *width)
{
	int64_t C = a.NH * a.HS, warps = (a.T + WARPS - 1) / WARPS, b, h;
	struct place p;

	p.head = blockIdx.x / warps;
	p.row = blockIdx.x % warps * WARPS + threadIdx.x / REDUCE_WARP;
	b = p.head / a.NH;
	h = p.head % a.NH;
	p.at3 = b * a.T * 3 * C + h * a.HS;
	p.at = b * a.T * C + h * a.HS;
	*width = C;
	return p;
}

template <typename E> static __device__ float dot(const float *x, const E *y, int64_t n)
{
	float sum = 0;

	for (int64_t d = 0; d < n; d++)
		sum = fmaf(x[d], element_float(y[d]), sum);
	return sum;
}

/* acc (HS) = acc * keep + sum over the lanes of weight times their row; rows: their number */
template <typename E>
static __device__ void gather(
	float *acc, float keep, float weight, const E *first, int64_t stride, int rows, int64_t HS)
{
	int lane = threadIdx.x % REDUCE_WARP;

	for (int64_t d0 = 0; d0 < HS; d0 += REDUCE_WARP) {
		int64_t d = d0 + lane;
		float sum = d < HS ? acc[d] * keep : 0;

		for (int j = 0; j < rows; j++) {
			float w = __shfl_sync(reduce_all_lanes, weight, j);

			if (d < HS)
				sum = fmaf(w, element_float(first[j * stride + d]), sum);
		}
		if (d < HS)
			acc[d] = sum;
	}
	__syncwarp();
}

template <typename E> static __device__ void take(float *to, const E *from, int64_t HS)
{
	for (int64_t d = threadIdx.x % REDUCE_WARP; d < HS; d += REDUCE_WARP)
		to[d] = from ? element_float(from[d]) : 0;
	__syncwarp();
}

template <typename E> static __device__ void put(E *to, const float *from, float scale, int64_t HS)
{
	for (int64_t d = threadIdx.x % REDUCE_WARP; d < HS; d += REDUCE_WARP)
		element_set(to + d, from[d] * scale);
}

template <typename E>
static __global__ void __launch_bounds__(WARPS *REDUCE_WARP)
	attention_forward_plainly(const __grid_constant__ struct attention<E> a)
{
	extern __shared__ float memory[];
	int lane = threadIdx.x % REDUCE_WARP;
	float *q = memory + threadIdx.x / REDUCE_WARP * 2 * a.HS, *acc = q + a.HS;
	float max = -INFINITY, sum = 0;
	int64_t C;
	struct place p = find(a, &C);
	const E *keys = a.qkv + p.at3 + C, *values = keys + C;

	if (p.row >= a.T)
		return;
	take(q, a.qkv + p.at3 + p.row * 3 * C, a.HS);
	take(acc, (const E *)NULL, a.HS);
	for (int64_t first = 0; first <= p.row; first += REDUCE_WARP) {
		int64_t key = first + lane, rows = p.row + 1 - first;
		float score = -INFINITY, weight, larger, keep;

		if (key <= p.row)
			score = a.scale * dot(q, keys + key * 3 * C, a.HS);
		larger = fmaxf(max, reduce_warp_max(score));
		weight = expf(score - larger);
		keep = expf(max - larger);
		sum = sum * keep + reduce_warp_sum(weight);
		max = larger;
		if (a.drop.on && key <= p.row)
			weight *= philox_mask(a.drop, (p.head * a.T + p.row) * a.T + key);
		gather(acc, keep, weight, values + first * 3 * C, 3 * C,
			(int)(rows < REDUCE_WARP ? rows : REDUCE_WARP), a.HS);
	}
	put(a.out + p.at + p.row * C, acc, 1 / sum, a.HS);
	if (lane == 0)
		a.lse_out[p.head * a.T + p.row] = max + logf(sum);
}

/* For one query and one key: the probability after dropout, the score's gradient. */
struct pair {
	float weight, dscore;
};

template <typename E>
static __device__ struct pair gradient(const struct attention<E> &a, const struct place &p,
	int64_t query, int64_t key, float score, float dprob)
{
	int64_t at = p.head * a.T + query;
	float prob = expf(score * a.scale - a.lse[at]);
	float mask = a.drop.on ? philox_mask(a.drop, at * a.T + key) : 1;
	struct pair r;

	r.weight = prob * mask;
	r.dscore = prob * (dprob * mask - a.delta[at]);
	return r;
}

template <typename E>
static __global__ void __launch_bounds__(WARPS *REDUCE_WARP)
	attention_backward_queries_plainly(const __grid_constant__ struct attention<E> a)
{
	extern __shared__ float memory[];
	int lane = threadIdx.x % REDUCE_WARP;
	float *q = memory + threadIdx.x / REDUCE_WARP * 3 * a.HS, *dout = q + a.HS;
	float *acc = dout + a.HS;
	int64_t C;
	struct place p = find(a, &C);
	const E *keys = a.qkv + p.at3 + C, *values = keys + C;

	if (p.row >= a.T)
		return;
	take(q, a.qkv + p.at3 + p.row * 3 * C, a.HS);
	take(dout, a.dout + p.at + p.row * C, a.HS);
	take(acc, (const E *)NULL, a.HS);
	for (int64_t first = 0; first <= p.row; first += REDUCE_WARP) {
		int64_t key = first + lane, rows = p.row + 1 - first;
		struct pair pair = {0, 0};

		if (key <= p.row)
			pair = gradient(a, p, p.row, key, dot(q, keys + key * 3 * C, a.HS),
				dot(dout, values + key * 3 * C, a.HS));
		gather(acc, 1, pair.dscore, keys + first * 3 * C, 3 * C,
			(int)(rows < REDUCE_WARP ? rows : REDUCE_WARP), a.HS);
	}
	put(a.dqkv + p.at3 + p.row * 3 * C, acc, a.scale, a.HS);
}

template <typename E>
static __global__ void __launch_bounds__(WARPS *REDUCE_WARP)
	attention_backward_keys_plainly(const __grid_constant__ struct attention<E> a)
{
	extern __shared__ float memory[];
	int lane = threadIdx.x % REDUCE_WARP;
	float *k = memory + threadIdx.x / REDUCE_WARP * 4 * a.HS, *v = k + a.HS;
	float *dk = v + a.HS, *dv = dk + a.HS;
	int64_t C;
	struct place p = find(a, &C);
	const E *queries = a.qkv + p.at3, *dout = a.dout + p.at;
	E *to = a.dqkv + p.at3 + p.row * 3 * C;

	if (p.row >= a.T)
		return;
	take(k, queries + p.row * 3 * C + C, a.HS);
	take(v, queries + p.row * 3 * C + 2 * C, a.HS);
	take(dk, (const E *)NULL, a.HS);
	take(dv, (const E *)NULL, a.HS);
	for (int64_t first = p.row; first < a.T; first += REDUCE_WARP) {
		int64_t query = first + lane, rows = a.T - first;
		int n = (int)(rows < REDUCE_WARP ? rows : REDUCE_WARP);
		struct pair pair = {0, 0};

		if (query < a.T)
			pair = gradient(a, p, query, p.row, dot(k, queries + query * 3 * C, a.HS),
				dot(v, dout + query * C, a.HS));
		gather(dk, 1, pair.dscore, queries + first * 3 * C, 3 * C, n, a.HS);
		gather(dv, 1, pair.weight, dout + first * C, C, n, a.HS);
	}
	put(to + C, dk, a.scale, a.HS);
	put(to + 2 * C, dv, 1, a.HS);
}

template <typename E>
static void launch(struct k_stream *s, void (*kernel)(const struct attention<E>), int rows_held,
	const struct attention<E> &a)
{
	size_t bytes = (size_t)(WARPS * rows_held * a.HS) * sizeof(float);

	context_check(s->ctx, "attention",
		cudaFuncSetAttribute(
			kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	kernel<<<(unsigned int)(a.B * a.NH * ((a.T + WARPS - 1) / WARPS)), WARPS * REDUCE_WARP,
		bytes, s->cuda>>>(a);
}

template <typename E> void attention_plain_forward(struct k_stream *s, const struct attention<E> &a)
{
	launch(s, attention_forward_plainly<E>, 2, a);
}

template <typename E>
void attention_plain_backward(struct k_stream *s, const struct attention<E> &a)
{
	launch(s, attention_backward_queries_plainly<E>, 3, a);
	launch(s, attention_backward_keys_plainly<E>, 4, a);
}

template void attention_plain_forward(struct k_stream *s, const struct attention<float> &a);
template void attention_plain_forward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_plain_forward(struct k_stream *s, const struct attention<__half> &a);
template void attention_plain_backward(struct k_stream *s, const struct attention<float> &a);
template void attention_plain_backward(
	struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_plain_backward(struct k_stream *s, const struct attention<__half> &a);
