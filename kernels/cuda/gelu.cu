#include "kernels/cuda/gelu.cuh"

#include "kernels/cuda/element.cuh"

static const float root_2_over_pi = 0.7978845608028654f, cubic = 0.044715f;
static const float root_half = 0.7071067811865476f, inv_root_2pi = 0.3989422804014327f;

/*
 * x P(x). tanh form: P = (1 + tanh u)/2 = 1/(1 + exp(-2u)), u = sqrt(2/pi)(x + 0.044715 x^3); exact
 * form: P = erfc(-x/sqrt 2)/2. exp(-2u) may be inf: P is then 0, and no inf meets another.
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

template <typename T, int N, enum k_gelu GELU>
static __global__ void gelu_backward_pass(T *grad, const T *pre, int64_t n)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x * N;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n; i += stride) {
		float x[N], g[N];

		element_load(x, pre + i);
		element_load(g, grad + i);
#pragma unroll
		for (int j = 0; j < N; j++)
			g[j] *= derivative<GELU>(x[j]);
		element_store(grad + i, g);
	}
}

template <typename T, int N>
static void launch(struct k_stream *s, bool back, T *out, const T *pre, int64_t n, enum k_gelu gelu)
{
	unsigned int blocks = element_blocks(n / N, 256, 16384);

	if (back && gelu == K_GELU_TANH)
		gelu_backward_pass<T, N, K_GELU_TANH><<<blocks, 256, 0, s->cuda>>>(out, pre, n);
	else if (back)
		gelu_backward_pass<T, N, K_GELU_EXACT><<<blocks, 256, 0, s->cuda>>>(out, pre, n);
	else if (gelu == K_GELU_TANH)
		gelu_forward_pass<T, N, K_GELU_TANH><<<blocks, 256, 0, s->cuda>>>(out, pre, n);
	else
		gelu_forward_pass<T, N, K_GELU_EXACT><<<blocks, 256, 0, s->cuda>>>(out, pre, n);
}

static void run(
	struct k_stream *s, bool back, void *out, const void *pre, int64_t n, enum k_gelu gelu)
{
	bool wide = element_aligned(out, 16) && element_aligned(pre, 16);

	if (n <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;

		if (wide && n % N == 0)
			launch<T, N>(s, back, (T *)out, (const T *)pre, n, gelu);
		else
			launch<T, 1>(s, back, (T *)out, (const T *)pre, n, gelu);
	});
}

void gelu_forward(struct k_stream *s, void *out, const void *pre, int64_t n, enum k_gelu gelu)
{
	run(s, false, out, pre, n, gelu);
	stream_check(s, "gelu");
}

void gelu_backward(struct k_stream *s, void *grad, const void *pre, int64_t n, enum k_gelu gelu)
{
	run(s, true, grad, pre, n, gelu);
	stream_check(s, "gelu's gradient");
}
