#include <math.h>

#include "kernels/cuda/attention_wmma.cuh"

/*
 * For devices older than sm_80. A block has 64 queries and processes the keys up to them, 64 at a
 * time; accumulators stay in registers, in the lanes' row layout. Exponentials are of base 2.
 */
enum { TILES = 3, BYTES = TILES * WMMA_TILE_BYTES + WMMA_SCORES_BYTES };

/* A lane's row; sum: of the lane's half. */
struct row {
	float max, sum;
};

/* scores become the values' weights; the caller multiplies earlier results by keep */
static __device__ __forceinline__ float softmax(
	struct row &r, float (&scores)[8][4], bool diagonal, float scale)
{
	float max = -INFINITY, keep;

#pragma unroll
	for (int j = 0; j < 8; j++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (diagonal && 8 * j + wmma_column() + i > wmma_row())
				scores[j][i] = -INFINITY;
			max = fmaxf(max, scores[j][i]);
		}
	}
	max = fmaxf(max, __shfl_xor_sync(reduce_all_lanes, max, 1));
	max = fmaxf(r.max, max * scale);
	keep = element_exp2(r.max - max);
	r.max = max;
	r.sum *= keep;
#pragma unroll
	for (int j = 0; j < 8; j++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			scores[j][i] = element_exp2(fmaf(scores[j][i], scale, -max));
			r.sum += scores[j][i];
		}
	}
	return keep;
}

template <typename E>
static __device__ __forceinline__ void drop(float (&scores)[8][4], const struct attention<E> &a,
	int64_t head, int64_t query, int64_t key)
{
	int64_t at = (head * a.T + query) * a.T + key;

#pragma unroll
	for (int j = 0; j < 8; j++) {
		float mask[4];

		wmma_mask(mask, a.drop, at + 8 * j, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++)
			scores[j][i] *= mask[i];
	}
}

template <typename E> static __device__ __forceinline__ void forward(const struct attention<E> &a)
{
	extern __shared__ __align__(128) char memory[];
	E *q_tile = (E *)memory, *k_tile = q_tile + WMMA_TILE_ELEMS;
	E *v_tile = k_tile + WMMA_TILE_ELEMS;
	float *scores = (float *)(memory + TILES * WMMA_TILE_BYTES);
	const float scale = a.scale * attention_log2_e;
	int64_t head = attention_head(), b = head / a.NH, h = head % a.NH, C = a.NH * a.HS;
	/* blocks with most keys go first */
	int64_t tile = gridDim.x - 1 - blockIdx.x, first = tile * WMMA_SIDE, stride = 3 * C;
	const E *q = a.qkv + b * a.T * stride + h * a.HS, *k = q + C, *v = k + C;
	int there = wmma_there(a.T, first);
	float out[8][4] = {}, x[8][4], sum;
	struct row r = {-INFINITY, 0};

	if (head >= a.B * a.NH)
		return;
	wmma_fetch(q_tile, q + first * stride, stride, there);
	for (int64_t t = 0; t <= tile; t++) {
		int64_t here = t * WMMA_SIDE;
		wmma_sum d[WMMA_UNITS];
		float keep;

		__syncthreads();
		wmma_fetch(k_tile, k + here * stride, stride, wmma_there(a.T, here));
		wmma_fetch(v_tile, v + here * stride, stride, wmma_there(a.T, here));
		__syncthreads();
		wmma_zero(d);
		wmma_times_rows(d, q_tile, k_tile);
		wmma_take(x, scores, d);
		keep = softmax(r, x, t == tile, scale);
		if (a.drop.on)
			drop(x, a, head, first + wmma_row(), here + wmma_column());
		wmma_put_rounded(scores, 0, x, E());
		__syncwarp();
		wmma_zero(d);
		wmma_times_tile(d, scores, 0, v_tile);
		wmma_take(x, scores, d);
#pragma unroll
		for (int j = 0; j < 8; j++) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				out[j][i] = fmaf(out[j][i], keep, x[j][i]);
		}
	}
	sum = r.sum + __shfl_xor_sync(reduce_all_lanes, r.sum, 1);
	if (wmma_column() == 0 && wmma_row() < there)
		a.lse_out[head * a.T + first + wmma_row()] = (r.max + log2f(sum)) * attention_ln_2;
	wmma_store(a.out + (b * a.T + first) * C + h * a.HS, C, out, there, 1 / sum);
}

template <typename E>
static __global__ void __launch_bounds__(WMMA_THREADS)
	attention_forward_by_wmma(const __grid_constant__ struct attention<E> a)
{
	if constexpr ((int)WMMA_ARCH >= (int)wmma_asks<E>::arch)
		forward(a);
}

template <typename E> void attention_wmma_forward(struct k_stream *s, const struct attention<E> &a)
{
	dim3 grid = attention_grid((a.T + WMMA_SIDE - 1) / WMMA_SIDE, a.B * a.NH);

	attention_forward_by_wmma<<<grid, WMMA_THREADS, BYTES, s->cuda>>>(a);
}

template void attention_wmma_forward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_wmma_forward(struct k_stream *s, const struct attention<__half> &a);
