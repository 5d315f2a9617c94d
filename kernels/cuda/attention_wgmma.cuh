/*
 * attention_wgmma.cuh: what the kernels for Hopper share. A block has GROUPS groups of four warps,
 * each with 64 rows of its own (queries, or keys in the half of backward that owns keys), and all
 * go over the same pairs of tiles of the other kind, which the copy engine brings into a ring of
 * STAGES places. Thread 0 asks for them; a place is free once every warp has let it go.
 */
#ifndef GPT2D_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#define GPT2D_KERNELS_CUDA_ATTENTION_WGMMA_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/bulk_map.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pair.cuh"
#include "kernels/cuda/reduce.cuh"

/* Log-sum-exp (base 2) of 64 queries, then as many deltas. */
enum { ATTENTION_ROWS_FLOATS = 2 * WGMMA_TILE, ATTENTION_ROWS_BYTES = 4 * ATTENTION_ROWS_FLOATS };

/* (B,T,3C), (B,T,C) and what is written, for tiles of a head's 64 columns */
struct attention_maps {
	CUtensorMap qkv, dout, to;
};

/*
 * Which head a block works for, and which of a head's blocks it is: rank 0 has most work. Heads go
 * one after another, so that what runs at the same time shares tiles; of the last ones all blocks
 * of rank 0 go first, then those of rank 1, so that multiprocessors end at about the same time.
 */
struct attention_order {
	int blocks;  /* of a head */
	int in_turn; /* heads that go one after another */
	int last;    /* heads behind them */
};

/* OWN: tiles that belong to the groups; ROWS: each place has also a tile's ROWS_FLOATS. */
template <int GROUPS, int STAGES, int OWN, bool ROWS> struct attention_ring {
	static const int pair_bytes = 2 * WGMMA_TILE_BYTES + (ROWS ? ATTENTION_ROWS_BYTES : 0);
	static const int rows_at = (OWN + 2 * STAGES) * WGMMA_TILE_BYTES;
	static const int barriers_at = rows_at + (ROWS ? STAGES * ATTENTION_ROWS_BYTES : 0);
	/* 1024 more: the tiles' place is rounded up to a multiple of it */
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
	/* from the start of the block's memory */
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

/*
 * Of a kernel that is launched early: until what the one before it writes is there. Of that one:
 * the other may begin.
 */
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

/* Thread 0 may ask for tiles at once, the others know of the ring after a barrier of the block. */
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

/* All of a warp have done with a place. */
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

/* A group's accumulators, rows times scale0 (rows l / 4) and scale1, to a tile of its own. */
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

/* host: the kernel may begin before the stream's last kernel has ended, if that one lets it */
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
	config.numAttrs = CUDART_VERSION >= 12030; /* graphs know of it from there on */
	return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/*
 * What backward needs of each query, to rows, ATTENTION_ROWS_FLOATS for each 64 of a head:
 * attention_wgmma_rows.cu. Lets the next kernel begin.
 */
template <typename E>
void attention_wgmma_rows(
	struct k_stream *s, float *rows, const struct attention<E> &a, const E *out);

/* host, see attention_wgmma.cu; at_once: blocks that a multiprocessor holds */
struct attention_order attention_order_of(
	const struct k_context *ctx, int64_t heads, int64_t blocks, int at_once);

#endif
