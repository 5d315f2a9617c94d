/*
 * product.cuh: a matrix product with operands as stored, or transposed first if that is faster in
 * all. In 16 bits every layout is as fast. In tf32 the matrix units want k to run fastest in both
 * operands (a transposed, b not), in fp32 the library prefers the opposite.
 */
#ifndef GPT2D_KERNELS_CUDA_PRODUCT_CUH
#define GPT2D_KERNELS_CUDA_PRODUCT_CUH

#include "kernels/cuda/gemm.cuh"

/* Transposed operands lie in the stream's scratch memory, within this limit. */
enum { PRODUCT_TURNED_BYTES_MAX = 192 << 20 };

struct product {
	struct gemm_call call; /* as stored */
	bool turn_a, turn_b;
	double seconds; /* turning included */
};

/* sums: b's sums over k are needed too, with b transposed; turning b computes them. */
struct product product_choose(struct k_stream *s, const struct gemm_call *call, bool sums);

/* The most scratch memory that product_run takes, for any choice. */
size_t product_scratch_bytes(enum k_dtype dtype, const struct gemm_call *call, bool sums);

/* sums: NULL, or (n) += sums of b over k. No operand lies in the stream's scratch memory. */
void product_run(struct k_stream *s, const char *name, const struct product *p, void *sums);

#endif
