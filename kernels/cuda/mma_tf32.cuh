/*
 * mma_tf32.cuh: products of the tiles of attention_tiled.cuh by the matrix units, mma.sync m16n8k8
 * on tf32. For sm_80 and up; for older devices its users compile to nothing.
 *
 * The units use 11 bits of a number. In tf32 each number is rounded to them; for fp32 (FINE) it is
 * split into two parts of 11 bits, and of the four products of parts all but the smallest, 2^-22 of
 * the whole, are added (Markidis et al., IPDPSW 2018; Ootomo and Yokota, IJHPCA 2022). The units
 * truncate where fp32 rounds, so a sum over many tiles adds up sums of one tile each.
 *
 * A tile's rows lie 68 floats apart: concurrent reads of a warp, eight rows of four floats or four
 * pairs of rows at eight columns, are in different banks. The layout of fragments is PTX's. Of a 64
 * x 64 product a warp has 16 rows: in d[n], lane l has columns 8n + 2(l % 4) and the next of rows l
 * / 4 (elements 0, 1) and l / 4 + 8 (2, 3).
 */
#ifndef GPT2D_KERNELS_CUDA_MMA_TF32_CUH
#define GPT2D_KERNELS_CUDA_MMA_TF32_CUH

#include "kernels/cuda/attention_tiled.cuh"

enum { TF32_STEPS = TILED_SIDE / 8 };

#if MMA_THERE

/* To nearest; the units would truncate. */
static __device__ __forceinline__ uint32_t tf32_rounded(float x)
{
	uint32_t y;

	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
	return y;
}

/*
 * Rounds this thread's fetched part of a tile after its arrival, unless FINE; a barrier publishes
 * it to the others.
 */
template <bool FINE> static __device__ __forceinline__ void tf32_fetched(float *tile)
{
	if (!FINE) {
#pragma unroll
		for (int i = 0; i < TILED_SIDE * 16 / TILED_THREADS; i++) {
			int at = i * TILED_THREADS + (int)threadIdx.x;
			float *to = tile + at / 16 * TILED_STRIDE + at % 16 * 4;
			float4 x = *(const float4 *)to;

			*(uint4 *)to = make_uint4(tf32_rounded(x.x), tf32_rounded(x.y),
				tf32_rounded(x.z), tf32_rounded(x.w));
		}
	}
}

/* The warp's first row of the block's 64. */
static __device__ __forceinline__ int tf32_warp_row()
{
	return (int)(threadIdx.x >> 5) * 16;
}

static __device__ __forceinline__ void tf32_multiply(
	float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* N numbers in the units' format; low only if FINE. */
template <int N> struct tf32_parts {
	uint32_t high[N], low[N];
};

/* x: already rounded, unless FINE */
template <bool FINE, int N>
static __device__ __forceinline__ void tf32_cut(struct tf32_parts<N> &p, const uint32_t (&x)[N])
{
	const uint32_t units_bits = 0xffffe000, half_of_last = 0x1000;

#pragma unroll
	for (int i = 0; i < N; i++) {
		p.high[i] = x[i];
		if (FINE) {
			p.high[i] = x[i] & units_bits;
			p.low[i] = half_of_last +
				__float_as_uint(__uint_as_float(x[i]) - __uint_as_float(p.high[i]));
		}
	}
}

/* b: which two of y */
template <bool FINE>
static __device__ __forceinline__ void tf32_multiply_parts(
	float (&d)[4], const struct tf32_parts<4> &x, const struct tf32_parts<4> &y, int b)
{
	if (FINE) {
		tf32_multiply(d, x.low, y.high[b], y.high[b + 1]);
		tf32_multiply(d, x.high, y.low[b], y.low[b + 1]);
	}
	tf32_multiply(d, x.high, y.high[b], y.high[b + 1]);
}

/* d += the warp's rows of tile a times the transposed rows of tile b */
template <bool FINE>
static __device__ __forceinline__ void tf32_times_rows(
	float (&d)[8][4], const float *a, const float *b)
{
	int lane = threadIdx.x & 31;
	const float *a_row = a + (tf32_warp_row() + (lane & 15)) * TILED_STRIDE + (lane >> 4) * 4;
	const float *b_row =
		b + ((lane & 7) + (lane >> 4) * 8) * TILED_STRIDE + (lane >> 3 & 1) * 4;
	uint32_t a_at = (uint32_t)__cvta_generic_to_shared(a_row);
	uint32_t b_at = (uint32_t)__cvta_generic_to_shared(b_row);

#pragma unroll
	for (int k = 0; k < TF32_STEPS; k++) {
		struct tf32_parts<4> x, y;
		uint32_t whole[4];

		mma_matrices(whole, a_at + 32 * k);
		tf32_cut<FINE>(x, whole);
#pragma unroll
		for (int n = 0; n < 8; n += 2) {
			mma_matrices(whole, b_at + 32 * k + 8 * n * TILED_STRIDE * 4);
			tf32_cut<FINE>(y, whole);
			tf32_multiply_parts<FINE>(d[n], x, y, 0);
			tf32_multiply_parts<FINE>(d[n + 1], x, y, 2);
		}
	}
}

/*
 * sum += x (16 x 64, accumulators) times tile b. In a fragment of x, k of lanes t and t + 4 are
 * columns 2t and 2t + 1, as in the accumulators; b's rows are read in that order.
 */
template <bool FINE>
static __device__ __forceinline__ void tf32_times_tile(
	float (&sum)[8][4], const float (&x)[8][4], const float *b)
{
	int lane = threadIdx.x & 31;
	const float *from = b + 2 * (lane & 3) * TILED_STRIDE + (lane >> 2);
	float own[8][4] = {};
	float(&d)[8][4] = FINE ? own : sum;

#pragma unroll
	for (int k = 0; k < TF32_STEPS; k++) {
		uint32_t whole[4] = {__float_as_uint(x[k][0]), __float_as_uint(x[k][2]),
			__float_as_uint(x[k][1]), __float_as_uint(x[k][3])};
		struct tf32_parts<4> a, y;

#pragma unroll
		for (int i = 0; i < 4 && !FINE; i++)
			whole[i] = tf32_rounded(__uint_as_float(whole[i]));
		tf32_cut<FINE>(a, whole);
#pragma unroll
		for (int n = 0; n < 8; n += 2) {
			const float *at = from + 8 * k * TILED_STRIDE + 8 * n;
			const uint32_t two[4] = {__float_as_uint(at[0]),
				__float_as_uint(at[TILED_STRIDE]), __float_as_uint(at[8]),
				__float_as_uint(at[TILED_STRIDE + 8])};

			tf32_cut<FINE>(y, two);
			tf32_multiply_parts<FINE>(d[n], a, y, 0);
			tf32_multiply_parts<FINE>(d[n + 1], a, y, 2);
		}
	}
#pragma unroll
	for (int n = 0; n < 8 && FINE; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			sum[n][i] += own[n][i];
	}
}

/* Writes the warp's rows of d, each half times its scale, to the existing rows of memory. */
static __device__ __forceinline__ void tf32_store(
	float *to, int64_t stride, const float (&d)[8][4], int there, float scale0, float scale1)
{
	int row = tf32_warp_row() + ((threadIdx.x & 31) >> 2), column = 2 * (threadIdx.x & 3);

#pragma unroll
	for (int n = 0; n < 8; n++) {
		float *at = to + row * stride + 8 * n + column;

		if (row < there)
			*(float2 *)at = make_float2(d[n][0] * scale0, d[n][1] * scale0);
		if (row + 8 < there)
			*(float2 *)(at + 8 * stride) =
				make_float2(d[n][2] * scale1, d[n][3] * scale1);
	}
}

#endif

#endif
