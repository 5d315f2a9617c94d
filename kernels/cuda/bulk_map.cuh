/* bulk_map.cuh: tells the copy engine where a tensor of 16 bits lies, in tiles of wgmma.cuh. */
#ifndef GPT2D_KERNELS_CUDA_BULK_MAP_CUH
#define GPT2D_KERNELS_CUDA_BULK_MAP_CUH

#include <cuda.h>

#include "kernels/cuda/context.cuh"

/*
 * Of a tensor (planes,rows,columns) in the context's type, at a multiple of 16 bytes, columns a
 * multiple of 8, of which so many rows (a multiple of 8) of 64 columns are moved at a time. False:
 * the context has failed.
 */
bool bulk_map_make(struct k_context *ctx, CUtensorMap *map, const void *tensor, int64_t planes,
	int64_t rows, int64_t columns, int at_a_time);

#endif
