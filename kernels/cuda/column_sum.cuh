/* column_sum.cuh: sums over rows, in an order that only the shape fixes. */
#ifndef GPT2D_KERNELS_CUDA_COLUMN_SUM_CUH
#define GPT2D_KERNELS_CUDA_COLUMN_SUM_CUH

#include "kernels/cuda/stream.cuh"

/*
 * out (n) += column sums of in (R,n), both of the compute type. Uses the stream's scratch memory;
 * in may lie there only if R is 1.
 */
void column_sum_add(struct k_stream *s, void *out, const void *in, int64_t R, int64_t n);

/*
 * The last step of such sums: outs[i] (n) += the column sums of columns i n .. i n + n - 1 of
 * partial (parts, width), fp32; at most COLUMN_SUM_OUTS outs. beside: on a branch of s.
 */
enum { COLUMN_SUM_OUTS = 3 };
void column_sum_finish(struct k_stream *s, void *const *outs, int n_outs, const float *partial,
	int64_t parts, int64_t width, int64_t n);
void column_sum_finish_beside(struct k_stream *s, void *const *outs, int n_outs,
	struct stream_part *partial, int64_t parts, int64_t width, int64_t n);

/*
 * Writes a block's sums, in GROUPS groups of N columns by LANES threads each, to its row of partial
 * (parts, n): blockIdx.x selects columns, blockIdx.y the row. All its threads call it.
 */
enum { COLUMN_SUM_GROUPS = 32, COLUMN_SUM_LANES = 8 };
template <int N>
static __device__ __forceinline__ void column_sum_block(float *partial,
	float (&shared)[COLUMN_SUM_LANES][COLUMN_SUM_GROUPS * N + 1], const float (&total)[N],
	int64_t n)
{
	const int columns = COLUMN_SUM_GROUPS * N;
	int group = threadIdx.x % COLUMN_SUM_GROUPS, lane = threadIdx.x / COLUMN_SUM_GROUPS;

#pragma unroll
	for (int j = 0; j < N; j++)
		shared[lane][group * N + j] = total[j];
	__syncthreads();
	for (int at = threadIdx.x; at < columns; at += COLUMN_SUM_GROUPS * COLUMN_SUM_LANES) {
		int64_t column = (int64_t)blockIdx.x * columns + at;
		float sum = 0;

		for (int i = 0; i < COLUMN_SUM_LANES; i++)
			sum += shared[i][at];
		if (column < n)
			partial[blockIdx.y * n + column] = sum;
	}
}

/* (R,n) for blocks of so many columns and `lanes` rows at a time. */
struct column_sum_cut {
	int64_t across, parts; /* blocks */
	int64_t rows;          /* per part; the last may have fewer */
};
struct column_sum_cut column_sum_cut(
	const struct k_context *ctx, int64_t R, int64_t n, int64_t columns, int64_t lanes);

/* Bytes of all fp32 parts at most: blocks of so many groups of one access or column. */
size_t column_sum_part_bytes(
	const struct k_context *ctx, int64_t R, int64_t n, int64_t groups, int64_t lanes);

#endif
