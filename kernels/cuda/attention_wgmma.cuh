/*
 * attention_wgmma.cuh: shared by the kernels for Hopper. A block has GROUPS groups of four warps,
 * each with its own 64 rows (queries, or keys in the part of backward that owns keys). All groups
 * visit the same pairs of tiles of the other kind, which the copy engine loads into a ring of
 * STAGES places. Thread 0 requests them; a place is free once every warp has released it.
 */
#ifndef GPT2D_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#define GPT2D_KERNELS_CUDA_ATTENTION_WGMMA_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/bulk_map.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pair.cuh"
#include "kernels/cuda/reduce.cuh"

/* Log-sum-exp (base 2) of 64 queries, then their deltas. */
enum { ATTENTION_ROWS_FLOATS = 2 * WGMMA_TILE, ATTENTION_ROWS_BYTES = 4 * ATTENTION_ROWS_FLOATS };

/* (B,T,3C), (B,T,C) and the output, for tiles of a head's 64 columns */
struct attention_maps {
	CUtensorMap qkv, dout, to;
};

/*
 * A block's head, and its rank in the head: rank 0 has most work. Heads run in sequence, so that
 * concurrent blocks share tiles; of the last heads all blocks of rank 0 run first, then those of
 * rank 1, so that all multiprocessors end at about the same time.
 */
struct attention_order {
	int blocks;  /* per head */
	int in_turn; /* heads that run in sequence */
	int last;    /* heads after them */
};

/* OWN: tiles of the groups; ROWS: each place also has a tile's ROWS_FLOATS. */
template <int GROUPS, int STAGES, int OWN, bool ROWS> struct attention_ring {
	static const int pair_bytes = 2 * WGMMA_TILE_BYTES + (ROWS ? ATTENTION_ROWS_BYTES : 0);
	static const int rows_at = (OWN + 2 * STAGES) * WGMMA_TILE_BYTES;
	static const int barriers_at = rows_at + (ROWS ? STAGES * ATTENTION_ROWS_BYTES : 0);
	/* 1024 more: the tiles' address is rounded up to a multiple of it */
	static const int bytes = barriers_at + (2 * STAGES + 1) * 8 + 1024;

	uint32_t base;

	__device__ uint32_t own(int i) const
	{
		return base + (uint32_t)(i * WGMMA_TILE_BYTES);
	}
	__device__ uint32_t pair(int stage) const
	{
		return base + (uint32_t)((OWN + 2 * stage) * WGMMA_TILE_BYTES);
	}
	__device__ uint32_t rows(int stage) const
	{
		return base + (uint32_t)(rows_at + stage * ATTENTION_ROWS_BYTES);
	}
	/* offset in the block's memory */
	__device__ uint32_t rows_offset(int stage) const
	{
		extern __shared__ char attention_memory[];

		return rows(stage) - (uint32_t)__cvta_generic_to_shared(attention_memory);
	}
	__device__ uint32_t full(int stage) const
	{
		return base + (uint32_t)(barriers_at + 8 * stage);
	}
	__device__ uint32_t empty(int stage) const
	{
		return full(STAGES + stage);
	}
	__device__ uint32_t owned() const
	{
		return full(2 * STAGES);
	}
};

#if WGMMA_THERE

/* A kernel launched early waits for the writes of the kernel before it; that one lets it begin. */
static __device__ __forceinline__ void attention_await()
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

static __device__ __forceinline__ void attention_let_next_begin()
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

struct attention_work {
	int head, rank;
};

static __device__ __forceinline__ struct attention_work attention_work_of(
	const struct attention_order &o)
{
	int at = (int)blockIdx.x - o.in_turn * o.blocks;

	if (at < 0)
		return {(int)blockIdx.x / o.blocks, (int)blockIdx.x % o.blocks};
	return {o.in_turn + at % o.last, at / o.last};
}

/* Thread 0 may request tiles at once; the others need a barrier of the block first. */
template <typename R>
static __device__ __forceinline__ void attention_ring_init(R &r, int groups, int stages)
{
	extern __shared__ char attention_memory[];
	uint32_t at = (uint32_t)__cvta_generic_to_shared(attention_memory);

	r.base = (at + 1023) & ~1023u;
	if (threadIdx.x == 0) {
		for (int i = 0; i < stages; i++) {
			bulk_barrier_init(r.full(i), 1);
			bulk_barrier_init(r.empty(i), 4 * groups);
		}
		bulk_barrier_init(r.owned(), 1);
		bulk_fence();
	}
}

/* The whole warp releases a place. */
static __device__ __forceinline__ void attention_let_go(uint32_t empty)
{
	__syncwarp();
	if (threadIdx.x % REDUCE_WARP == 0)
		bulk_arrive(empty);
}

static __device__ __forceinline__ void attention_zero(float (&d)[8][4])
{
#pragma unroll
	for (int n = 0; n < 8; n++)
		d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
}

template <typename E>
static __device__ __forceinline__ void attention_pack(
	uint32_t (&a)[4][4], const float (&x)[8][4], E type)
{
#pragma unroll
	for (int k = 0; k < 4; k++)
		mma_pack_a(a[k], x[2 * k], x[2 * k + 1], type);
}

static __device__ __forceinline__ void attention_group_sync(int group)
{
	asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

/* Writes a group's accumulators to its own tile, rows times scale0 (l / 4) and scale1. */
template <typename E>
static __device__ __forceinline__ void attention_put(
	uint32_t tile, const float (&d)[8][4], float scale0, float scale1, E type)
{
	int warp = (int)(threadIdx.x % WGMMA_THREADS / REDUCE_WARP), lane = threadIdx.x & 31;
	int row = warp * 16 + (lane >> 2);
	uint32_t in_piece = (uint32_t)(4 * (lane & 3));

#pragma unroll
	for (int n = 0; n < 8; n++) {
		asm volatile("st.shared.b32 [%0], %1;" ::"r"(mma_piece(tile, row, n) + in_piece),
			     "r"(pair_pack(d[n][0] * scale0, d[n][1] * scale0, type))
			     : "memory");
		asm volatile(
			"st.shared.b32 [%0], %1;" ::"r"(mma_piece(tile, row + 8, n) + in_piece),
			"r"(pair_pack(d[n][2] * scale1, d[n][3] * scale1, type))
			: "memory");
	}
}

#endif

/* host: the kernel may start before the last one on the stream ends, if that one allows it */
template <typename... P, typename... A>
static inline cudaError_t attention_launch_early(struct k_stream *s, void (*kernel)(P...),
	int64_t blocks, int threads, int bytes, const A &...arguments)
{
	cudaLaunchAttribute early = {};
	cudaLaunchConfig_t config = {};

	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3((unsigned int)blocks);
	config.blockDim = dim3((unsigned int)threads);
	config.dynamicSmemBytes = (size_t)bytes;
	config.stream = s->cuda;
	config.attrs = &early;
	config.numAttrs = CUDART_VERSION >= 12030; /* graphs support it from there on */
	return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/*
 * Writes backward's values per query to rows, ATTENTION_ROWS_FLOATS per 64 of a head:
 * attention_wgmma_rows.cu. Lets the next kernel begin.
 */
template <typename E>
void attention_wgmma_rows(
	struct k_stream *s, float *rows, const struct attention<E> &a, const E *out);

/* host, see attention_wgmma.cu; at_once: blocks per multiprocessor */
struct attention_order attention_order_of(
	const struct k_context *ctx, int64_t heads, int64_t blocks, int at_once);

#endif
