#include "kernels/cuda/bulk_map.cuh"

#include "kernels/cuda/wgmma.cuh"

typedef CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *tensor,
	const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
	const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
	CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

/* Found in the driver at run time, so that nothing is linked with it. */
static encode *find_encode(struct k_context *ctx)
{
	void *function = __atomic_load_n(&ctx->tensor_map_encode, __ATOMIC_RELAXED);
	cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
	cudaError_t rc;

	if (function)
		return (encode *)function;
#if CUDART_VERSION >= 12050
	rc = cudaGetDriverEntryPointByVersion(
		"cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
	rc = cudaGetDriverEntryPoint(
		"cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
	if (!context_check(ctx, "cuTensorMapEncodeTiled", rc))
		return NULL;
	if (found != cudaDriverEntryPointSuccess || !function) {
		context_fail(ctx, "cuTensorMapEncodeTiled: not in this driver, 12.0 expected");
		return NULL;
	}
	__atomic_store_n(&ctx->tensor_map_encode, function, __ATOMIC_RELAXED);
	return (encode *)function;
}

bool bulk_map_make(struct k_context *ctx, CUtensorMap *map, const void *tensor, int64_t planes,
	int64_t rows, int64_t columns, int at_a_time)
{
	encode *make = find_encode(ctx);
	cuuint64_t dims[] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)planes};
	cuuint64_t strides[] = {2 * (cuuint64_t)columns, 2 * (cuuint64_t)(columns * rows)};
	cuuint32_t box[] = {WGMMA_TILE, (cuuint32_t)at_a_time, 1}, steps[] = {1, 1, 1};
	CUresult rc;

	if (!make)
		return false;
	rc = make(map,
		ctx->dtype == K_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
				     : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
		3, (void *)tensor, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
		CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (rc != CUDA_SUCCESS)
		context_fail(ctx, "cuTensorMapEncodeTiled: error %d for (%lld,%lld,%lld) at %p",
			(int)rc, (long long)planes, (long long)rows, (long long)columns, tensor);
	return rc == CUDA_SUCCESS;
}
