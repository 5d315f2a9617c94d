/* column_sum.cuh: sums over rows, in an order that the shape alone fixes. */
#ifndef GPT2D_KERNELS_CUDA_COLUMN_SUM_CUH
#define GPT2D_KERNELS_CUDA_COLUMN_SUM_CUH

#include "kernels/cuda/stream.cuh"

/*
 * out (n) += column sums of in (R,n), both of the compute type. Uses the stream's scratch memory,
 * in which in may lie only when R is 1.
 */
void column_sum_add(struct k_stream *s, void *out, const void *in, int64_t R, int64_t n);

/*
 * The last step of such sums: outs[i] (n) += the column sums of columns i n .. i n + n - 1 of
 * partial (parts, width), fp32; at most COLUMN_SUM_OUTS of them. beside: on a branch of s.
 */
enum { COLUMN_SUM_OUTS = 3 };
void column_sum_finish(struct k_stream *s, void *const *outs, int n_outs, const float *partial,
	int64_t parts, int64_t width, int64_t n);
void column_sum_finish_beside(struct k_stream *s, void *const *outs, int n_outs,
	struct stream_part *partial, int64_t parts, int64_t width, int64_t n);

/* (R,n) for blocks of so many columns that take `lanes` rows at a time. */
struct column_sum_cut {
	int64_t across, parts; /* blocks */
	int64_t rows;          /* of a part; the last may have fewer */
};
struct column_sum_cut column_sum_cut(
	const struct k_context *ctx, int64_t R, int64_t n, int64_t columns, int64_t lanes);

/* All parts of such a cut at most, in fp32: blocks of so many groups of one access or column. */
size_t column_sum_part_bytes(
	const struct k_context *ctx, int64_t R, int64_t n, int64_t groups, int64_t lanes);

#endif
