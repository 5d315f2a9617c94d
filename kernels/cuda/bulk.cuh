/*
 * bulk.cuh: Hopper's copy engine, and barriers in shared memory that count what it brings. For
 * sm_90a alone, as wgmma.cuh. Addresses are of shared memory.
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

/* Barriers made and shared memory written by this thread are seen by the copy engine. */
static __device__ __forceinline__ void bulk_fence()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The same of shared memory alone. */
static __device__ __forceinline__ void bulk_fence_tiles()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void bulk_arrive(uint32_t barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/*
 * At the barrier in the same place of another block of the cluster. Who waits there sees nothing of
 * what this thread wrote, for which all of the device would have to be waited for; that products
 * have read what they read holds once these have ended.
 */
static __device__ __forceinline__ void bulk_arrive_at(uint32_t barrier, int block)
{
	asm volatile("{.reg .b32 there; "
		     "mapa.shared::cluster.u32 there, %0, %1; "
		     "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
		     "r"(block)
		     : "memory");
}

/* All threads of the cluster. */
static __device__ __forceinline__ void bulk_cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* An arrival, and so many bytes to come. */
static __device__ __forceinline__ void bulk_expect(uint32_t barrier, int bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
		: "memory");
}

/* Until the barrier's phase of this parity has ended. */
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

/* The map will be used soon. */
static __device__ __forceinline__ void bulk_prefetch(const CUtensorMap *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* A tile from x, y, z of a tensor; what lies outside the tensor is zero. */
static __device__ __forceinline__ void bulk_load(
	uint32_t tile, const CUtensorMap *map, int x, int y, int z, uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(tile),
		     "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
		     : "memory");
}

/* The same to the same place of each block of the cluster whose bit is set in blocks. */
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

/* A tile to x, y, z of a tensor, but for what lies outside; it may be written again after wait. */
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

/* What was stored since the last is one batch. */
static __device__ __forceinline__ void bulk_store_batch()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until the tiles of all batches but the last LEFT may be written again. */
template <int LEFT> static __device__ __forceinline__ void bulk_store_left()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/* Until all that was stored is in memory. */
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
