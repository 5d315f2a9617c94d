#include "kernels/cuda/gelu.cuh"

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/gelu_approx.cuh"
#include "kernels/cuda/scratch.cuh"

static const float root_2_over_pi = 0.7978845608028654f, cubic = 0.044715f;
static const float root_half = 0.7071067811865476f, inv_root_2pi = 0.3989422804014327f;

/*
 * x P(x). tanh form: P = (1 + tanh u)/2 = 1/(1 + exp(-2u)), u = sqrt(2/pi)(x + 0.044715 x^3); exact
 * form: P = erfc(-x/sqrt 2)/2. If exp(-2u) is inf, P is 0 and no inf meets another.
 */
template <enum k_gelu GELU> static __device__ float value(float x)
{
	if (GELU == K_GELU_TANH)
		return x / (1 + expf(-2 * root_2_over_pi * x * (1 + cubic * x * x)));
	return x * 0.5f * erfcf(-x * root_half);
}

template <enum k_gelu GELU> static __device__ float derivative(float x)
{
	float held = fminf(fmaxf(x, -15), 15), e, part;

	if (GELU == K_GELU_TANH) {
		e = expf(-2 * root_2_over_pi * held * (1 + cubic * held * held));
		part = 1 / (1 + e);
		/* e large: part e is 1, not inf times 0 */
		return part +
			2 * held * part * (1 - part) * root_2_over_pi *
			(1 + 3 * cubic * held * held);
	}
	return 0.5f * erfcf(-held * root_half) + held * inv_root_2pi * expf(-0.5f * held * held);
}

template <typename T, int N, enum k_gelu GELU>
static __global__ void gelu_forward_pass(T *out, const T *pre, int64_t n)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x * N;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n; i += stride) {
		float x[N];

		element_load(x, pre + i);
#pragma unroll
		for (int j = 0; j < N; j++)
			x[j] = value<GELU>(x[j]);
		element_store(out + i, x);
	}
}

/*
 * A block has GROUPS groups of N columns and takes LANES rows at a time, `rows` in all; a thread
 * reads AHEAD of its rows before it writes the first.
 */
enum { GROUPS = COLUMN_SUM_GROUPS, LANES = COLUMN_SUM_LANES, AHEAD = 4 };

template <typename T, enum k_gelu GELU> static __device__ __forceinline__ float slope(float x)
{
	const float held = GELU_APPROX_HELD;

	if (sizeof(T) == 2 && GELU == K_GELU_TANH)
		return gelu_approx_slope(fminf(fmaxf(x, -held), held));
	return derivative<GELU>(x);
}

template <typename T, int N, enum k_gelu GELU>
static __device__ __forceinline__ void gelu_backward_piece(T *to, float (&total)[N],
	const struct element_packed<T, N> &pre, const struct element_packed<T, N> &grad)
{
	float x[N], g[N];

	element_unpack(x, pre);
	element_unpack(g, grad);
#pragma unroll
	for (int j = 0; j < N; j++) {
		g[j] *= slope<T, GELU>(x[j]);
		total[j] += element_rounded<T>(g[j]);
	}
	element_store(to, g);
}

template <typename T, int N, enum k_gelu GELU>
static __global__ void __launch_bounds__(GROUPS *LANES) gelu_backward_rows(
	T *grad, float *partial, const T *pre, int64_t R, int64_t C, int64_t rows)
{
	__shared__ float shared[LANES][GROUPS * N + 1];
	int group = threadIdx.x % GROUPS, lane = threadIdx.x / GROUPS;
	int64_t c = ((int64_t)blockIdx.x * GROUPS + group) * N, first = blockIdx.y * rows;
	int64_t end = first + rows < R ? first + rows : R;
	float total[N] = {};

	if (c >= C)
		end = first;
	for (int64_t at = first + lane; at < end; at += LANES * AHEAD) {
		struct element_packed<T, N> x[AHEAD], g[AHEAD];

#pragma unroll
		for (int i = 0; i < AHEAD; i++) {
			int64_t r = at + i * LANES < end ? at + i * LANES : at;

			x[i] = *(const struct element_packed<T, N> *)(pre + r * C + c);
			g[i] = *(const struct element_packed<T, N> *)(grad + r * C + c);
		}
#pragma unroll
		for (int i = 0; i < AHEAD; i++) {
			if (at + i * LANES < end)
				gelu_backward_piece<T, N, GELU>(
					grad + (at + i * LANES) * C + c, total, x[i], g[i]);
		}
	}
	if (!partial)
		return;
	column_sum_block(partial, shared, total, C);
}

template <typename T, int N>
static void launch_forward(struct k_stream *s, T *out, const T *pre, int64_t n, enum k_gelu gelu)
{
	unsigned int blocks = element_blocks(n / N, 256, 16384);

	if (gelu == K_GELU_TANH)
		gelu_forward_pass<T, N, K_GELU_TANH><<<blocks, 256, 0, s->cuda>>>(out, pre, n);
	else
		gelu_forward_pass<T, N, K_GELU_EXACT><<<blocks, 256, 0, s->cuda>>>(out, pre, n);
}

void gelu_forward(struct k_stream *s, void *out, const void *pre, int64_t n, enum k_gelu gelu)
{
	bool wide = element_aligned(out, 16) && element_aligned(pre, 16);

	if (n <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;

		if (wide && n % N == 0)
			launch_forward<T, N>(s, (T *)out, (const T *)pre, n, gelu);
		else
			launch_forward<T, 1>(s, (T *)out, (const T *)pre, n, gelu);
	});
	stream_check(s, "gelu");
}

template <typename T, int N>
static void launch_backward(struct k_stream *s, T *grad, float *partial, const T *pre, int64_t R,
	int64_t C, const struct column_sum_cut *cut, enum k_gelu gelu)
{
	dim3 blocks((unsigned int)cut->across, (unsigned int)cut->parts);

	if (gelu == K_GELU_TANH)
		gelu_backward_rows<T, N, K_GELU_TANH><<<blocks, GROUPS * LANES, 0, s->cuda>>>(
			grad, partial, pre, R, C, cut->rows);
	else
		gelu_backward_rows<T, N, K_GELU_EXACT><<<blocks, GROUPS * LANES, 0, s->cuda>>>(
			grad, partial, pre, R, C, cut->rows);
}

size_t scratch_gelu_part_bytes(const struct k_context *ctx, int64_t R, int64_t C)
{
	return column_sum_part_bytes(ctx, R, C, GROUPS, LANES);
}

void gelu_backward(struct k_stream *s, void *grad, void *dsum, const void *pre, int64_t R,
	int64_t C, enum k_gelu gelu)
{
	const int N = 16 / (int)k_elem_bytes(s->ctx);
	bool wide = element_aligned(grad, 16) && element_aligned(pre, 16) && C % N == 0;
	struct column_sum_cut cut = column_sum_cut(s->ctx, R, C, GROUPS * (wide ? N : 1), LANES);
	struct stream_part *part = NULL;
	float *partial;

	if (R <= 0 || C <= 0 || !stream_ready(s))
		return;
	if (dsum) {
		part = stream_part(s, (size_t)(cut.parts * C) * sizeof(float));
		if (!part)
			return;
	}
	partial = part ? (float *)part->memory : NULL;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;

		if (wide)
			launch_backward<T, element_wide<T>::n>(
				s, (T *)grad, partial, (const T *)pre, R, C, &cut, gelu);
		else
			launch_backward<T, 1>(
				s, (T *)grad, partial, (const T *)pre, R, C, &cut, gelu);
	});
	stream_check(s, "gelu's gradient");
	if (part)
		column_sum_finish_beside(s, &dsum, 1, part, cut.parts, C, C);
}
