/*
 * attention_tiled.cuh: shared by the tiled fp32 attention: tiles of 64 rows of 64 floats in shared
 * memory, and their products in registers by FMA, so that fp32 stays fp32. For sm_80 and up, for
 * asynchronous copies; for older devices its users compile to nothing.
 *
 * A tile's rows lie 68 floats apart: eight rows at one column are in different banks, and so are
 * the two rows that a warp reads at a time. Of a 64 x 64 product a warp has 16 rows and a lane
 * eight: tiled_row() and every second row from there. Its columns are l, l + 16, l + 32, l + 48
 * (products with rows) or 4l .. 4l+3 (products with a tile), where l is lane % 16. Rows that only
 * their own warp accesses need no barrier of the block.
 */
#ifndef GPT2D_KERNELS_CUDA_ATTENTION_TILED_CUH
#define GPT2D_KERNELS_CUDA_ATTENTION_TILED_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

enum { TILED_SIDE = 64, TILED_STRIDE = 68, TILED_FLOATS = TILED_SIDE * TILED_STRIDE };
enum { TILED_THREADS = 128, TILED_WARP_ROWS = 16, TILED_ROWS = 8, TILED_COLUMNS = 4 };

/* The block's tile of a head. */
struct tiled_place {
	int64_t head; /* b*NH + h */
	int64_t first; /* query or key */
	int64_t width; /* C */
	int64_t at3;  /* of the head's first q in (B,T,3C) */
	int64_t at;   /* of its first element in (B,T,C) */
	int tile;
};

/* One block per tile of each head; bytes: its shared memory. */
static inline void tiled_launch(struct k_stream *s, void (*kernel)(const struct attention<float>),
	const struct attention<float> &a, int bytes)
{
	unsigned int blocks =
		(unsigned int)((a.T + TILED_SIDE - 1) / TILED_SIDE * a.B * a.NH);

	context_check(s->ctx, "attention",
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	kernel<<<blocks, TILED_THREADS, (size_t)bytes, s->cuda>>>(a);
}

#if MMA_THERE

/* last_first: blocks that start first get the last tiles. */
static __device__ __forceinline__ struct tiled_place tiled_find(
	const struct attention<float> &a, bool last_first)
{
	unsigned int heads = (unsigned int)(a.B * a.NH), turn = blockIdx.x / heads;
	struct tiled_place p;
	int64_t b, h;

	p.head = blockIdx.x % heads;
	p.tile = (int)(last_first ? gridDim.x / heads - 1 - turn : turn);
	p.first = (int64_t)p.tile * TILED_SIDE;
	p.width = a.NH * a.HS;
	b = p.head / a.NH;
	h = p.head % a.NH;
	p.at3 = b * a.T * 3 * p.width + h * a.HS;
	p.at = b * a.T * p.width + h * a.HS;
	return p;
}

static __device__ __forceinline__ int tiled_there(int64_t T, int64_t first)
{
	return (int)(T - first < TILED_SIDE ? T - first : TILED_SIDE);
}

static __device__ __forceinline__ int tiled_row()
{
	return (int)(threadIdx.x >> 5) * TILED_WARP_ROWS + (int)(threadIdx.x >> 4 & 1);
}

static __device__ __forceinline__ int tiled_lane()
{
	return (int)(threadIdx.x & 15);
}

/* Loads a tile asynchronously (mma_fetch_end ends it); rows from `there` on become zero. */
static __device__ __forceinline__ void tiled_fetch(
	float *tile, const float *from, int64_t stride, int there)
{
	uint32_t to = (uint32_t)__cvta_generic_to_shared(tile);

#pragma unroll
	for (int i = 0; i < TILED_SIDE * 16 / TILED_THREADS; i++) {
		int at = i * TILED_THREADS + (int)threadIdx.x, row = at / 16, column = at % 16 * 4;
		int bytes = row < there ? 16 : 0;
		const float *src = from + (row < there ? row : 0) * stride + column;

		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
				     to + (uint32_t)(row * TILED_STRIDE + column) * 4),
			     "l"(src), "r"(bytes)
			     : "memory");
	}
}

/* d += the rows of a times the transposed rows of b */
static __device__ __forceinline__ void tiled_times_rows(
	float (&d)[TILED_ROWS][TILED_COLUMNS], const float *a, const float *b)
{
	const float *from = a + tiled_row() * TILED_STRIDE;
	const float *with = b + tiled_lane() * TILED_STRIDE;

#pragma unroll 2
	for (int k = 0; k < TILED_SIDE; k += 4) {
		float4 x[TILED_ROWS], y[TILED_COLUMNS];

#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++)
			y[j] = *(const float4 *)(with + 16 * j * TILED_STRIDE + k);
#pragma unroll
		for (int i = 0; i < TILED_ROWS; i++)
			x[i] = *(const float4 *)(from + 2 * i * TILED_STRIDE + k);
#pragma unroll
		for (int i = 0; i < TILED_ROWS; i++) {
#pragma unroll
			for (int j = 0; j < TILED_COLUMNS; j++) {
				d[i][j] = fmaf(x[i].x, y[j].x, d[i][j]);
				d[i][j] = fmaf(x[i].y, y[j].y, d[i][j]);
				d[i][j] = fmaf(x[i].z, y[j].z, d[i][j]);
				d[i][j] = fmaf(x[i].w, y[j].w, d[i][j]);
			}
		}
	}
}

static __device__ __forceinline__ void tiled_add(
	float (&d)[TILED_COLUMNS], float x, const float4 &y)
{
	d[0] = fmaf(x, y.x, d[0]);
	d[1] = fmaf(x, y.y, d[1]);
	d[2] = fmaf(x, y.z, d[2]);
	d[3] = fmaf(x, y.w, d[3]);
}

/* d += columns from .. to-1 (multiples of 4) of x times these rows of b */
static __device__ __forceinline__ void tiled_times_tile(float (&d)[TILED_ROWS][TILED_COLUMNS],
	const float *x_tile, const float *b, int from, int to)
{
	const float *row = x_tile + tiled_row() * TILED_STRIDE, *with = b + 4 * tiled_lane();

#pragma unroll 2
	for (int k = from; k < to; k += 4) {
		float4 x[TILED_ROWS], y[4];

#pragma unroll
		for (int j = 0; j < 4; j++)
			y[j] = *(const float4 *)(with + (k + j) * TILED_STRIDE);
#pragma unroll
		for (int i = 0; i < TILED_ROWS; i++)
			x[i] = *(const float4 *)(row + 2 * i * TILED_STRIDE + k);
#pragma unroll
		for (int i = 0; i < TILED_ROWS; i++) {
			tiled_add(d[i], x[i].x, y[0]);
			tiled_add(d[i], x[i].y, y[1]);
			tiled_add(d[i], x[i].z, y[2]);
			tiled_add(d[i], x[i].w, y[3]);
		}
	}
}

/* Writes d of a product with rows to the warp's own rows of a tile; the warp reads them */
static __device__ __forceinline__ void tiled_put(
	float *tile, const float (&d)[TILED_ROWS][TILED_COLUMNS])
{
	float *to = tile + tiled_row() * TILED_STRIDE + tiled_lane();

	__syncwarp();
#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++)
			to[2 * i * TILED_STRIDE + 16 * j] = d[i][j];
	}
	__syncwarp();
}

/* Writes d of a product with a tile, times scale, to the existing rows of memory */
static __device__ __forceinline__ void tiled_store(float *to, int64_t stride,
	const float (&d)[TILED_ROWS][TILED_COLUMNS], int there, float scale)
{
#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
		int row = tiled_row() + 2 * i;

		if (row < there)
			*(float4 *)(to + row * stride + 4 * tiled_lane()) =
				make_float4(d[i][0] * scale, d[i][1] * scale, d[i][2] * scale,
					d[i][3] * scale);
	}
}

#endif

#endif
