#include "kernels/cuda/token_order.cuh"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/scratch.cuh"

static __global__ void token_order_count(int32_t *rows, int64_t R)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x;

	for (int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; r < R; r += stride)
		rows[r] = (int32_t)r;
}

static size_t rounded_up(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

enum { TOKEN_BITS = 31 }; /* tokens are not negative */

/* The sort's own memory. */
static cudaError_t sort_bytes(int64_t R, cudaStream_t stream, size_t *out)
{
	return cub::DeviceRadixSort::SortPairs(NULL, *out, (const int32_t *)NULL, (int32_t *)NULL,
		(const int32_t *)NULL, (int32_t *)NULL, R, 0, TOKEN_BITS, stream);
}

cudaError_t scratch_token_order_bytes(int64_t R, cudaStream_t stream, size_t *out)
{
	size_t sort = 0;
	cudaError_t rc = sort_bytes(R, stream, &sort);

	*out = 3 * rounded_up((size_t)R * sizeof(int32_t)) + sort;
	return rc;
}

/* A radix sort is stable: rows of one token keep their order. */
int32_t *token_order_make(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R)
{
	size_t part = rounded_up((size_t)R * sizeof(int32_t)), needed = 0;
	cudaError_t rc;
	char *memory;

	rc = sort_bytes(R, s->cuda, &needed);
	if (!context_check(s->ctx, "k_token_order", rc))
		return NULL;
	memory = (char *)stream_scratch(s, 3 * part + needed);
	if (!memory)
		return NULL;
	if (!order)
		order = (int32_t *)memory;
	token_order_count<<<element_blocks(R, 256, 1024), 256, 0, s->cuda>>>(
		(int32_t *)(memory + 2 * part), R);
	rc = cub::DeviceRadixSort::SortPairs(memory + 3 * part, needed, tokens, order,
		(const int32_t *)(memory + 2 * part), order + R, R, 0, TOKEN_BITS, s->cuda);
	return context_check(s->ctx, "k_token_order", rc) ? order : NULL;
}
