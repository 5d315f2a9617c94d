/*
 * attention.cuh: causal attention for the choice made in attention.cu. Six ways give the same
 * result: for head size 64 (Dao, arXiv:2307.08691) in 16 bits the matrix units of Hopper, sm_80 or
 * sm_70, and in 32 bits those of sm_80 or tiles of fp32 arithmetic; plain fp32 arithmetic for
 * everything else. Any backward accepts the results of any forward. Dropout element: ((b*NH + h)*T
 * + query)*T + key.
 */
#ifndef GPT2D_KERNELS_CUDA_ATTENTION_CUH
#define GPT2D_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/stream.cuh"

enum { ATTENTION_MMA_HS = 64, ATTENTION_MMA_CAPABILITY = 80, ATTENTION_WGMMA_CAPABILITY = 90 };
enum { ATTENTION_WMMA_CAPABILITY = 70, ATTENTION_WMMA_BF16_CAPABILITY = 80 };
enum { ATTENTION_TILED_HS = 64, ATTENTION_TILED_CAPABILITY = 80 };

/* Exponentials are of base 2. */
static const float attention_log2_e = 1.4426950408889634f;
static const float attention_ln_2 = 0.6931471805599453f;

template <typename E> struct attention {
	E *out; /* (B,T,C) forward */
	float *lse_out;
	E *dqkv; /* (B,T,3C) backward */
	float *sums; /* wgmma: (b, tile, 3C) column sums of 64 rows of dqkv; NULL: not wanted */
	const E *dout, *qkv;
	const float *lse;   /* (B,NH,T) */
	const float *delta; /* (B,NH,T): for each query, dout . out */
	int64_t B, T, NH, HS;
	float scale;
	struct philox_dropout drop;
};

/*
 * One block per tile of each head; a head's tiles are neighbours. Heads use y and, since y has at
 * most 65535, z; at the last z some blocks have no head (see attention_head).
 */
static inline dim3 attention_grid(int64_t tiles, int64_t heads)
{
	const int64_t most = 65535;
	int64_t layers = (heads + most - 1) / most;

	return dim3((unsigned int)tiles, (unsigned int)((heads + layers - 1) / layers),
		(unsigned int)layers);
}

static __device__ __forceinline__ int64_t attention_head(void)
{
	return (int64_t)(blockIdx.z * gridDim.y + blockIdx.y);
}

/* Each launches on the stream; the caller checks. */
template <typename E> void attention_mma_forward(struct k_stream *s, const struct attention<E> &a);
template <typename E> void attention_mma_backward(struct k_stream *s, const struct attention<E> &a);
template <typename E>
void attention_wgmma_forward(struct k_stream *s, const struct attention<E> &a);
/* Unlike the others it computes delta; out: the result of forward. */
template <typename E>
void attention_wgmma_backward(struct k_stream *s, const struct attention<E> &a, const E *out);
size_t attention_wgmma_rows_bytes(int64_t B, int64_t T, int64_t NH); /* scratch memory */
int64_t attention_wgmma_sums(int64_t B, int64_t T); /* rows of sums */
/* By the matrix units, in fp32 or tf32 as the context's type is. */
void attention_tf32_forward(struct k_stream *s, const struct attention<float> &a);
void attention_tf32_backward(struct k_stream *s, const struct attention<float> &a);
/* __nv_bfloat16 only on sm_80 and up. */
template <typename E> void attention_wmma_forward(struct k_stream *s, const struct attention<E> &a);
template <typename E>
void attention_wmma_backward(struct k_stream *s, const struct attention<E> &a);
void attention_tiled_forward(struct k_stream *s, const struct attention<float> &a);
void attention_tiled_backward(struct k_stream *s, const struct attention<float> &a);
template <typename E>
void attention_plain_forward(struct k_stream *s, const struct attention<E> &a);
template <typename E>
void attention_plain_backward(struct k_stream *s, const struct attention<E> &a);

#endif
