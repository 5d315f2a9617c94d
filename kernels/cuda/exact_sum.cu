#include <math.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/stream.cuh"

enum { LIMB_BITS = 32, LOWEST_BIT = 448, MANTISSA_BITS = 53 };
static const int64_t limb_mask = 0xffffffff;

static __host__ __device__ double exact_value(const struct k_exact_sum *sum)
{
	double value = 0;
	int64_t carry = 0;

	/* Carries are passed on first; from the lowest limb up each addition rounds once. */
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

/* Three neighbouring limbs, kept in registers while addends fall into the same ones. */
struct pending {
	int limb; /* of the lowest; -1: none */
	int64_t value[3];
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
		for (int i = 0; i < 3; i++)
			add_limb(&sum->limb[p->limb + i], p->value[i]);
	}
	p->limb = -1;
}

/* d >= 0, finite, what squares of fp32 add up to: never below the lowest limb or above the highest.
 */
static __device__ void add(struct pending *p, struct k_exact_sum *shared, double d)
{
	int exponent, limb, shift;
	uint64_t mantissa, low, high;

	if (d == 0)
		return;
	mantissa = (uint64_t)ldexp(frexp(d, &exponent), MANTISSA_BITS);
	exponent += LOWEST_BIT - MANTISSA_BITS;
	limb = exponent / LIMB_BITS;
	shift = exponent % LIMB_BITS;
	if (limb != p->limb) {
		flush(p, shared);
		p->limb = limb;
		p->value[0] = p->value[1] = p->value[2] = 0;
	}
	low = (mantissa & (uint64_t)limb_mask) << shift;
	high = (mantissa >> LIMB_BITS) << shift;
	p->value[0] += (int64_t)(low & (uint64_t)limb_mask);
	p->value[1] += (int64_t)((low >> LIMB_BITS) + (high & (uint64_t)limb_mask));
	p->value[2] += (int64_t)(high >> LIMB_BITS);
}

/*
 * K_SUM_LANES threads take a block, each its lane in turn. A square of fp32 is exact in double, so
 * fused or not the addition rounds the same.
 */
template <typename T>
static __device__ double lane_squares(const T *x, int64_t n, int lane, int64_t *nonfinite)
{
	double d = 0;

#pragma unroll
	for (int i = 0; i < K_SUM_BLOCK_ELEMS / K_SUM_LANES; i++) {
		int at = i * K_SUM_LANES + lane;
		double value = at < n ? (double)element_float(x[at]) : 0;

		if (!isfinite(value)) {
			++*nonfinite;
			value = 0;
		}
		d += value * value;
	}
#pragma unroll
	for (int step = K_SUM_LANES / 2; step > 0; step /= 2)
		d += __shfl_down_sync(reduce_all_lanes, d, (unsigned int)step, K_SUM_LANES);
	return d;
}

/* Whole numbers are added: in whatever order, the same bits. */
template <typename T>
static __global__ void sum_squares(struct k_exact_sum *sum, const T *x, int64_t n)
{
	__shared__ struct k_exact_sum shared;
	struct pending p = {-1, {0, 0, 0}, 0};
	int lane = threadIdx.x % K_SUM_LANES, per_block = blockDim.x / K_SUM_LANES;
	int64_t blocks = (n + K_SUM_BLOCK_ELEMS - 1) / K_SUM_BLOCK_ELEMS;

	for (int i = threadIdx.x; i < K_EXACT_LIMBS; i += blockDim.x)
		shared.limb[i] = 0;
	if (threadIdx.x == 0)
		shared.nonfinite = 0;
	__syncthreads();
	for (int64_t first = (int64_t)blockIdx.x * per_block; first < blocks;
		first += (int64_t)gridDim.x * per_block) {
		int64_t at = (first + threadIdx.x / K_SUM_LANES) * K_SUM_BLOCK_ELEMS;
		double d = lane_squares(x + at, n - at, lane, &p.nonfinite);

		if (lane == 0)
			add(&p, &shared, d);
	}
	flush(&p, &shared);
	add_limb(&shared.nonfinite, p.nonfinite);
	__syncthreads();
	for (int i = threadIdx.x; i < K_EXACT_LIMBS; i += blockDim.x)
		add_limb(&sum->limb[i], shared.limb[i]);
	if (threadIdx.x == 0)
		add_limb(&sum->nonfinite, shared.nonfinite);
}

void k_sum_squares(struct k_stream *s, struct k_exact_sum *sum, const void *x, int64_t n)
{
	int64_t per_block = 256 / K_SUM_LANES * K_SUM_BLOCK_ELEMS;

	if (n <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		sum_squares<<<element_blocks(n, per_block, 8 * s->ctx->multiprocessors), 256, 0,
			s->cuda>>>(sum, (const decltype(zero) *)x, n);
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
