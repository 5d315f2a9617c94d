/* reduce.cuh: sums and maxima over a warp or a block, always in the same order. */
#ifndef GPT2D_KERNELS_CUDA_REDUCE_CUH
#define GPT2D_KERNELS_CUDA_REDUCE_CUH

enum { REDUCE_WARP = 32 };
static const unsigned int reduce_all_lanes = 0xffffffff;

static __device__ __forceinline__ float reduce_warp_sum(float x)
{
#pragma unroll
	for (int lane = REDUCE_WARP / 2; lane > 0; lane /= 2)
		x += __shfl_xor_sync(reduce_all_lanes, x, lane);
	return x;
}

static __device__ __forceinline__ float reduce_warp_max(float x)
{
#pragma unroll
	for (int lane = REDUCE_WARP / 2; lane > 0; lane /= 2)
		x = fmaxf(x, __shfl_xor_sync(reduce_all_lanes, x, lane));
	return x;
}

/* The sum in every thread; shared: one float for each warp; all threads of the block call it. */
static __device__ __forceinline__ float reduce_block_sum(float x, float *shared)
{
	int warps = (blockDim.x + REDUCE_WARP - 1) / REDUCE_WARP;
	int lane = threadIdx.x % REDUCE_WARP;

	x = reduce_warp_sum(x);
	__syncthreads();
	if (lane == 0)
		shared[threadIdx.x / REDUCE_WARP] = x;
	__syncthreads();
	return reduce_warp_sum(lane < warps ? shared[lane] : 0);
}

#endif
