/* philox.cuh: the counter-based random numbers of kernels.h, and dropout by them. */
#ifndef GPT2D_KERNELS_CUDA_PHILOX_CUH
#define GPT2D_KERNELS_CUDA_PHILOX_CUH

#include "kernels/cuda/context.cuh"

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). */
static __device__ __forceinline__ uint4 philox_block(
	uint64_t counter, uint64_t seed, uint64_t place)
{
	uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32);
	uint32_t x2 = (uint32_t)place, x3 = (uint32_t)(place >> 32);
	uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);

#pragma unroll
	for (int round = 0; round < 10; round++) {
		uint32_t a_low = x0 * 0xd2511f53, a_high = __umulhi(x0, 0xd2511f53);
		uint32_t b_low = x2 * 0xcd9e8d57, b_high = __umulhi(x2, 0xcd9e8d57);

		x0 = b_high ^ x1 ^ key0;
		x1 = b_low;
		x2 = a_high ^ x3 ^ key1;
		x3 = a_low;
		key0 += 0x9e3779b9;
		key1 += 0xbb67ae85;
	}
	return make_uint4(x0, x1, x2, x3);
}

/* A dropout in kernels' arguments; on = false: nothing is dropped. */
struct philox_dropout {
	bool on;
	float kept; /* 1/(1-p) */
	uint32_t limit;
	uint64_t seed, place;
	const uint64_t *place_from; /* NULL: 0 */
};

static __device__ __forceinline__ uint4 philox_draw(const struct philox_dropout &d, int64_t block)
{
	uint64_t from = d.place_from ? __ldg((const unsigned long long *)d.place_from) : 0;

	return philox_block((uint64_t)block, d.seed, d.place + from);
}

static inline struct philox_dropout philox_dropout_of(const struct k_dropout *drop)
{
	struct philox_dropout d = {};
	uint64_t limit;

	if (!drop || drop->p == 0)
		return d;
	limit = (uint64_t)(drop->p * 4294967296.0);
	d.on = true;
	d.kept = (float)(1 / (1 - drop->p));
	d.limit = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
	d.seed = drop->seed;
	d.place = drop->offset;
	d.place_from = drop->offset_from;
	return d;
}

static __device__ __forceinline__ float philox_kept(const struct philox_dropout &d, uint32_t word)
{
	return word >= d.limit ? d.kept : 0.0f;
}

/* The factor of element i. */
static __device__ __forceinline__ float philox_mask(const struct philox_dropout &d, int64_t i)
{
	uint4 words = philox_draw(d, i / 4);
	int which = (int)(i & 3);
	uint32_t low = which & 1 ? words.y : words.x, high = which & 1 ? words.w : words.z;

	return philox_kept(d, which & 2 ? high : low);
}

/* Elements i and i + 1; one block of words when i is even. */
static __device__ __forceinline__ float2 philox_mask2(const struct philox_dropout &d, int64_t i)
{
	uint4 words;

	if (i & 1)
		return make_float2(philox_mask(d, i), philox_mask(d, i + 1));
	words = philox_draw(d, i / 4);
	return i & 2 ? make_float2(philox_kept(d, words.z), philox_kept(d, words.w))
		     : make_float2(philox_kept(d, words.x), philox_kept(d, words.y));
}

/*
 * Elements at, at + 1 and below, below + 1; all lanes call it, and lane 2k + 1 has the two after
 * those of lane 2k. whole: these four are one block, and each lane draws one block for both.
 */
static __device__ __forceinline__ void philox_mask_tile(
	float (&mask)[4], const struct philox_dropout &d, int64_t at, int64_t below, bool whole)
{
	bool odd = threadIdx.x & 1;
	uint32_t give0, give1;
	uint4 words;

	if (!whole) {
		float2 upper = philox_mask2(d, at), lower = philox_mask2(d, below);

		mask[0] = upper.x;
		mask[1] = upper.y;
		mask[2] = lower.x;
		mask[3] = lower.y;
		return;
	}
	words = philox_draw(d, (odd ? below : at) / 4);
	give0 = __shfl_xor_sync(0xffffffff, odd ? words.x : words.z, 1);
	give1 = __shfl_xor_sync(0xffffffff, odd ? words.y : words.w, 1);
	mask[0] = philox_kept(d, odd ? give0 : words.x);
	mask[1] = philox_kept(d, odd ? give1 : words.y);
	mask[2] = philox_kept(d, odd ? words.z : give0);
	mask[3] = philox_kept(d, odd ? words.w : give1);
}

/*
 * The transposed form: four lanes APART from each other (with 4, their number's bits 2 and 3) have
 * neighbouring elements. A lane's own four, at[i], lie in four blocks; each of the lanes draws one
 * block for all.
 */
template <int APART = 4>
static __device__ __forceinline__ void philox_mask_turned(
	float (&mask)[4], const struct philox_dropout &d, const int64_t (&at)[4], bool whole)
{
	int role = (int)(threadIdx.x / APART & 3);
	int64_t mine = at[0];
	uint4 words;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (whole)
			mine = role == i ? at[i] : mine;
		else
			mask[i] = philox_mask(d, at[i]);
	}
	if (!whole)
		return;
	words = philox_draw(d, mine / 4);
#pragma unroll
	for (int step = 0; step < 4; step++) {
		int other = role ^ step; /* takes the word of its place, gives the one of mine */
		uint32_t low = other & 1 ? words.y : words.x, high = other & 1 ? words.w : words.z;
		uint32_t word = __shfl_xor_sync(0xffffffff, other & 2 ? high : low, step * APART);

#pragma unroll
		for (int i = 0; i < 4; i++)
			mask[i] = other == i ? philox_kept(d, word) : mask[i];
	}
}

/* x times the mask of elements first .. first+N-1; first a multiple of 4 unless N is 1. */
template <int N>
static __device__ __forceinline__ void philox_drop(
	float (&x)[N], const struct philox_dropout &d, int64_t first)
{
	if (!d.on)
		return;
	if constexpr (N == 1) {
		x[0] *= philox_mask(d, first);
	} else {
#pragma unroll
		for (int i = 0; i + 4 <= N; i += 4) {
			uint4 words = philox_draw(d, (first + i) / 4);

			x[i] *= philox_kept(d, words.x);
			x[i + 1] *= philox_kept(d, words.y);
			x[i + 2] *= philox_kept(d, words.z);
			x[i + 3] *= philox_kept(d, words.w);
		}
	}
}

#endif
