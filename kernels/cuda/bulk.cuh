/*
 * bulk.cuh: Hopper's copy engine, and barriers in shared memory that count its bytes. Only for
 * sm_90a, like wgmma.cuh. Addresses are of shared memory.
 */
#ifndef GPT2D_KERNELS_CUDA_BULK_CUH
#define GPT2D_KERNELS_CUDA_BULK_CUH

#include <cuda.h>

#include "kernels/cuda/wgmma.cuh"

#if WGMMA_THERE

static __device__ __forceinline__ void bulk_barrier_init(uint32_t barrier, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
		     : "memory");
}

/* Makes this thread's barriers and shared memory writes visible to the copy engine. */
static __device__ __forceinline__ void bulk_fence()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The same for shared memory only. */
static __device__ __forceinline__ void bulk_fence_tiles()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void bulk_arrive(uint32_t barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/*
 * Arrives at the barrier at the same address in another block of the cluster. It does not publish
 * this thread's writes, which would take a wait for the whole device; products have read their
 * operands once they have ended.
 */
static __device__ __forceinline__ void bulk_arrive_at(uint32_t barrier, int block)
{
	asm volatile("{.reg .b32 there; "
		     "mapa.shared::cluster.u32 there, %0, %1; "
		     "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
		     "r"(block)
		     : "memory");
}

/* The cluster's barrier. */
static __device__ __forceinline__ void bulk_cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* An arrival that expects so many bytes. */
static __device__ __forceinline__ void bulk_expect(uint32_t barrier, int bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
		: "memory");
}

/* Waits for the end of the barrier's phase of this parity. */
static __device__ __forceinline__ void bulk_wait(uint32_t barrier, int parity)
{
	uint32_t done;

	do {
		asm volatile("{.reg .pred p; "
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
			     "selp.u32 %0, 1, 0, p;}"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
	} while (!done);
}

/* Prefetches the map. */
static __device__ __forceinline__ void bulk_prefetch(const CUtensorMap *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Loads a tile from x, y, z of a tensor; zeros replace what is outside. */
static __device__ __forceinline__ void bulk_load(
	uint32_t tile, const CUtensorMap *map, int x, int y, int z, uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(tile),
		     "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
		     : "memory");
}

/* The same to the same address in each block of the cluster with a set bit in blocks. */
static __device__ __forceinline__ void bulk_load_to(uint32_t tile, const CUtensorMap *map, int x,
	int y, int z, uint32_t barrier, uint16_t blocks)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes.multicast::cluster "
		     "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(tile),
		     "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
		     : "memory");
}

/* Bytes and both addresses are multiples of 16. */
static __device__ __forceinline__ void bulk_load_bytes(
	uint32_t to, const void *from, int bytes, uint32_t barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
		     "[%0], [%1], %2, [%3];" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(barrier)
		     : "memory");
}

/* Stores a tile to x, y, z of a tensor, clipped to it; see bulk_store_left for its reuse. */
static __device__ __forceinline__ void bulk_store(
	const CUtensorMap *map, int x, int y, int z, uint32_t tile)
{
	asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
		     "[%0, {%1, %2, %3}], [%4];" ::"l"(map),
		     "r"(x), "r"(y), "r"(z), "r"(tile)
		     : "memory");
}

static __device__ __forceinline__ void bulk_store_bytes(void *to, uint32_t from, int bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
		     "r"(from), "r"(bytes)
		     : "memory");
}

/* Ends a batch of stores. */
static __device__ __forceinline__ void bulk_store_batch()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until only the last LEFT batches may still read their tiles. */
template <int LEFT> static __device__ __forceinline__ void bulk_store_left()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/* Waits until all stores are in memory. */
static __device__ __forceinline__ void bulk_store_end()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

static __device__ __forceinline__ void bulk_store_wait()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
	asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

#endif

#endif
