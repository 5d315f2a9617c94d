/* bulk_map.cuh: describes a tensor of 16 bits to the copy engine, in tiles of wgmma.cuh. */
#ifndef GPT2D_KERNELS_CUDA_BULK_MAP_CUH
#define GPT2D_KERNELS_CUDA_BULK_MAP_CUH

#include <cuda.h>

#include "kernels/cuda/context.cuh"

/*
 * For a tensor (planes,rows,columns) in the context's type, at a multiple of 16 bytes, columns a
 * multiple of 8; a copy moves so many rows (a multiple of 8) of 64 columns. False: the context has
 * failed.
 */
bool bulk_map_make(struct k_context *ctx, CUtensorMap *map, const void *tensor, int64_t planes,
	int64_t rows, int64_t columns, int at_a_time);

#endif
