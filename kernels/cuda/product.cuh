/*
 * product.cuh: a matrix product with its operands as they lie, or turned first where that takes
 * less time in all. In 16 bits every layout is as fast. In tf32 the matrix units want k to run
 * fastest in both operands (a transposed, b not), in fp32 the library is fastest the other way.
 */
#ifndef GPT2D_KERNELS_CUDA_PRODUCT_CUH
#define GPT2D_KERNELS_CUDA_PRODUCT_CUH

#include "kernels/cuda/gemm.cuh"

/* What is turned lies in the stream's scratch memory, at most so much of it. */
enum { PRODUCT_TURNED_BYTES_MAX = 192 << 20 };

struct product {
	struct gemm_call call; /* as it lies */
	bool turn_a, turn_b;
	double seconds; /* turning included */
};

/* sums: those of b over k are wanted too, where b is transposed; they go along with turning b. */
struct product product_choose(struct k_stream *s, const struct gemm_call *call, bool sums);

/* Scratch memory that product_run takes at most, however the choice falls. */
size_t product_scratch_bytes(enum k_dtype dtype, const struct gemm_call *call, bool sums);

/* sums: NULL, or (n) += sums of b over k. Neither operand lies in the stream's scratch memory. */
void product_run(struct k_stream *s, const char *name, const struct product *p, void *sums);

#endif
