#include <math.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/stream.cuh"

enum { LIMB_BITS = 32, LOWEST_BIT = 448, MANTISSA_BITS = 53, EXPONENT_BIAS = 1023 };
/*
 * Threads of a block, for 16-bit elements, so that its shared memory stays below the default limit,
 * 48 KiB; blocks of a multiprocessor so that registers suffice for prefetched elements.
 */
enum { SQUARES_THREADS = 128, SQUARES_BLOCKS = 4 };
static const int64_t limb_mask = 0xffffffff;

static __host__ __device__ double exact_value(const struct k_exact_sum *sum)
{
	double value = 0;
	int64_t carry = 0;

	/* Carries first; then each addition, from the lowest limb up, rounds once. */
	for (int i = 0; i < K_EXACT_LIMBS; i++) {
		int64_t limb = sum->limb[i] + carry;

		carry = limb >> LIMB_BITS;
		value += ldexp((double)(limb & limb_mask), LIMB_BITS * i - LOWEST_BIT);
	}
	return value + ldexp((double)carry, LIMB_BITS * K_EXACT_LIMBS - LOWEST_BIT);
}

double k_exact_value(const struct k_exact_sum *sum)
{
	return exact_value(sum);
}

/*
 * Neighbouring limbs, in registers while addends fall among them: the lowest bit of an addend is in
 * one of the first three.
 */
enum { PENDING_STARTS = 3, PENDING_LIMBS = PENDING_STARTS + 2 };
struct pending {
	int limb; /* lowest one's; -1: none */
	int64_t value[PENDING_LIMBS];
	int64_t nonfinite;
};

static __device__ void add_limb(int64_t *to, int64_t value)
{
	if (value != 0)
		atomicAdd((unsigned long long *)to, (unsigned long long)value);
}

static __device__ void flush(struct pending *p, struct k_exact_sum *sum)
{
	if (p->limb >= 0) {
		for (int i = 0; i < PENDING_LIMBS; i++)
			add_limb(&sum->limb[p->limb + i], p->value[i]);
	}
	p->limb = -1;
}

static __device__ int64_t warp_sum(int64_t x)
{
#pragma unroll
	for (int lane = REDUCE_WARP / 2; lane > 0; lane /= 2)
		x += __shfl_xor_sync(reduce_all_lanes, x, lane);
	return x;
}

/* The same for a whole warp at once, one addition for threads with the same limbs. */
static __device__ void flush_warp(struct pending *p, struct k_exact_sum *sum)
{
	unsigned int left;

	while ((left = __ballot_sync(reduce_all_lanes, p->limb >= 0)) != 0) {
		int limb = __shfl_sync(reduce_all_lanes, p->limb, __ffs((int)left) - 1);
		bool mine = p->limb == limb;

#pragma unroll
		for (int i = 0; i < PENDING_LIMBS; i++) {
			int64_t all = warp_sum(mine ? p->value[i] : 0);

			if (threadIdx.x % REDUCE_WARP == 0)
				add_limb(&sum->limb[limb + i], all);
		}
		if (mine)
			p->limb = -1;
	}
}

/*
 * d >= 0, a normal number, a sum of squares of fp32: it lies between limbs 3 and 21, so there are
 * limbs on either side.
 */
static __device__ void add(struct pending *p, struct k_exact_sum *shared, double d)
{
	uint64_t bits = (uint64_t)__double_as_longlong(d), mantissa, low, high;
	int exponent, limb, shift;
	int64_t part[3];

	if (d == 0)
		return;
	mantissa = (bits & ((UINT64_C(1) << (MANTISSA_BITS - 1)) - 1)) |
		UINT64_C(1) << (MANTISSA_BITS - 1);
	exponent = (int)(bits >> (MANTISSA_BITS - 1)) - EXPONENT_BIAS + LOWEST_BIT -
		(MANTISSA_BITS - 1);
	limb = exponent / LIMB_BITS;
	shift = exponent % LIMB_BITS;
	if (p->limb < 0 || limb < p->limb || limb >= p->limb + PENDING_STARTS) {
		flush(p, shared);
		p->limb = limb - 1;
#pragma unroll
		for (int i = 0; i < PENDING_LIMBS; i++)
			p->value[i] = 0;
	}
	low = (mantissa & (uint64_t)limb_mask) << shift;
	high = (mantissa >> LIMB_BITS) << shift;
	part[0] = (int64_t)(low & (uint64_t)limb_mask);
	part[1] = (int64_t)((low >> LIMB_BITS) + (high & (uint64_t)limb_mask));
	part[2] = (int64_t)(high >> LIMB_BITS);
#pragma unroll
	for (int start = 0; start < PENDING_STARTS; start++) {
		bool here = limb - p->limb == start;

#pragma unroll
		for (int i = 0; i < 3; i++)
			p->value[start + i] += here ? part[i] : 0;
	}
}

/* Counts a nonfinite value and returns 0. */
static __device__ double finite(double value, int64_t *nonfinite)
{
	if (isfinite(value))
		return value;
	++*nonfinite;
	return 0;
}

/*
 * K_SUM_LANES threads take a block, one lane each. A square of fp32 is exact in double, so a fused
 * addition rounds the same.
 */
template <typename T>
static __device__ double lane_squares(const T *x, int64_t n, int lane, int64_t *nonfinite)
{
	double d = 0;

#pragma unroll
	for (int i = 0; i < K_SUM_BLOCK_ELEMS / K_SUM_LANES; i++) {
		int at = i * K_SUM_LANES + lane;
		double value = finite(at < n ? (double)element_float(x[at]) : 0, nonfinite);

		d += value * value;
	}
#pragma unroll
	for (int step = K_SUM_LANES / 2; step > 0; step /= 2)
		d += __shfl_down_sync(reduce_all_lanes, d, (unsigned int)step, K_SUM_LANES);
	return d;
}

/* A warp's 32 blocks in shared memory, a row each, padded so that rows begin in other banks. */
template <typename T> struct staged {
	static const int wide = element_wide<T>::n, vecs = K_SUM_BLOCK_ELEMS / wide;
	typedef struct element_packed<T, wide> vec;
	vec rows[REDUCE_WARP][vecs + 1];
};

/* The same as a warp reads it: each thread has its pieces. */
template <typename T> struct fetched {
	typename staged<T>::vec piece[staged<T>::vecs];
};

template <typename T>
static __device__ __forceinline__ void fetch(struct fetched<T> *to, const T *x)
{
	const typename staged<T>::vec *from = (const typename staged<T>::vec *)x;

#pragma unroll
	for (int i = 0; i < staged<T>::vecs; i++)
		to->piece[i] = from[i * REDUCE_WARP + threadIdx.x % REDUCE_WARP];
}

template <typename T>
static __device__ __forceinline__ void stage(struct staged<T> *to, const struct fetched<T> *from)
{
	__syncwarp();
#pragma unroll
	for (int i = 0; i < staged<T>::vecs; i++) {
		int at = i * REDUCE_WARP + threadIdx.x % REDUCE_WARP;

		to->rows[at / staged<T>::vecs][at % staged<T>::vecs] = from->piece[i];
	}
	__syncwarp();
}

/* One thread sums all lanes of a row. */
template <typename T>
static __device__ __forceinline__ double row_squares(
	const typename staged<T>::vec *row, bool careful, int64_t *nonfinite)
{
	const int wide = staged<T>::wide, at_once = K_SUM_LANES / wide;
	double lane[K_SUM_LANES] = {};

#pragma unroll 4
	for (int i = 0; i < staged<T>::vecs; i += at_once) {
#pragma unroll
		for (int j = 0; j < K_SUM_LANES; j++) {
			float some[wide];
			double x;

			element_unpack(some, row[i + j / wide]);
			x = (double)some[j % wide];
			if (careful)
				x = finite(x, nonfinite);
			lane[j] += x * x;
		}
	}
#pragma unroll
	for (int step = K_SUM_LANES / 2; step > 0; step /= 2) {
#pragma unroll
		for (int j = 0; j < step; j++)
			lane[j] += lane[j + step];
	}
	return lane[0];
}

/*
 * A warp takes 32 of the first `staged_blocks` (a multiple of 32) at a time, one row per thread,
 * and prefetches its next ones.
 */
template <typename T>
static __device__ __forceinline__ void staged_squares(struct staged<T> *mine, const T *x,
	int64_t staged_blocks, struct pending *p, struct k_exact_sum *shared)
{
	const typename staged<T>::vec *row = mine->rows[threadIdx.x % REDUCE_WARP];
	int64_t warps = (int64_t)gridDim.x * blockDim.x / REDUCE_WARP, stride = warps * REDUCE_WARP;
	int64_t first =
		((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / REDUCE_WARP * REDUCE_WARP;
	struct fetched<T> next;

	if (first < staged_blocks)
		fetch(&next, x + first * K_SUM_BLOCK_ELEMS);
	for (; first < staged_blocks; first += stride) {
		double d;

		stage(mine, &next);
		if (first + stride < staged_blocks)
			fetch(&next, x + (first + stride) * K_SUM_BLOCK_ELEMS);
		d = row_squares<T>(row, false, NULL);
		if (!isfinite(d))
			d = row_squares<T>(row, true, &p->nonfinite);
		add(p, shared, d);
	}
}

template <typename T> struct squares_of {
	static const int threads = sizeof(T) == 2 ? SQUARES_THREADS : SQUARES_THREADS / 2;
};

/* Integer additions: any order gives the same bits. Lanes take the blocks not staged. */
template <typename T>
static __global__ void __launch_bounds__(squares_of<T>::threads, SQUARES_BLOCKS)
	sum_squares(struct k_exact_sum *sum, const T *x, int64_t n, int64_t staged_blocks)
{
	extern __shared__ __align__(16) char memory[];
	__shared__ struct k_exact_sum shared;
	struct pending p = {-1, {}, 0};
	int lane = threadIdx.x % K_SUM_LANES, per_block = blockDim.x / K_SUM_LANES;
	int64_t blocks = (n + K_SUM_BLOCK_ELEMS - 1) / K_SUM_BLOCK_ELEMS;
	struct staged<T> *mine = (struct staged<T> *)memory + threadIdx.x / REDUCE_WARP;

	for (int i = threadIdx.x; i < K_EXACT_LIMBS; i += blockDim.x)
		shared.limb[i] = 0;
	if (threadIdx.x == 0)
		shared.nonfinite = 0;
	__syncthreads();
	staged_squares(mine, x, staged_blocks, &p, &shared);
	for (int64_t first = staged_blocks + (int64_t)blockIdx.x * per_block; first < blocks;
		first += (int64_t)gridDim.x * per_block) {
		int64_t at = (first + threadIdx.x / K_SUM_LANES) * K_SUM_BLOCK_ELEMS;
		double d = lane_squares(x + at, n - at, lane, &p.nonfinite);

		if (lane == 0)
			add(&p, &shared, d);
	}
	flush_warp(&p, &shared);
	add_limb(&shared.nonfinite, p.nonfinite);
	__syncthreads();
	for (int i = threadIdx.x; i < K_EXACT_LIMBS; i += blockDim.x)
		add_limb(&sum->limb[i], shared.limb[i]);
	if (threadIdx.x == 0)
		add_limb(&sum->nonfinite, shared.nonfinite);
}

void k_sum_squares(struct k_stream *s, struct k_exact_sum *sum, const void *x, int64_t n)
{
	if (n <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int threads = squares_of<T>::threads;
		int64_t staged_blocks = element_aligned(x, 16)
			? n / (K_SUM_BLOCK_ELEMS * REDUCE_WARP) * REDUCE_WARP
			: 0;
		size_t bytes = threads / REDUCE_WARP * sizeof(struct staged<T>);
		int64_t per_block = threads * K_SUM_BLOCK_ELEMS;

		unsigned int grid =
			element_blocks(n, per_block, SQUARES_BLOCKS * s->ctx->multiprocessors);

		sum_squares<T>
			<<<grid, threads, bytes, s->cuda>>>(sum, (const T *)x, n, staged_blocks);
	});
	stream_check(s, "k_sum_squares");
}

static __global__ void step_prepare(struct k_step_state *state, const struct k_exact_sum *sum)
{
	double norm = sqrt(exact_value(sum)) / state->loss_scale, c = 1;

	if (sum->nonfinite != 0) {
		state->skip = 1;
		state->grad_norm = nan("");
		state->grad_mul = 0;
		return;
	}
	if (state->clip > 0 && (norm + 1e-6) / state->clip > 1)
		c = (norm + 1e-6) / state->clip;
	state->skip = 0;
	state->grad_norm = norm;
	state->grad_mul = 1 / (c * state->loss_scale);
}

void k_step_prepare(struct k_stream *s, struct k_step_state *state, const struct k_exact_sum *sum)
{
	if (!stream_ready(s))
		return;
	step_prepare<<<1, 1, 0, s->cuda>>>(state, sum);
	stream_check(s, "k_step_prepare");
}
