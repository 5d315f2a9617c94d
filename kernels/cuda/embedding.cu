#include "kernels/cuda/element.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/token_order.cuh"

enum { THREADS = 128 };

template <typename T> struct embedding {
	T *out; /* forward */
	const T *wte, *wpe;
	T *dwte, *dwpe; /* backward */
	const T *dout;
	const int32_t *tokens;
	int64_t B, T_, C;
	struct philox_dropout drop;
};

template <typename T, int N>
static __global__ void embedding_forward(const __grid_constant__ struct embedding<T> a)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x * N, all = a.B * a.T_ * a.C;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < all;
		i += stride) {
		int64_t r = i / a.C, c = i % a.C;
		float x[N], y[N];

		element_load(x, a.wte + a.tokens[r] * a.C + c);
		element_load(y, a.wpe + r % a.T_ * a.C + c);
#pragma unroll
		for (int j = 0; j < N; j++)
			x[j] += y[j];
		philox_drop(x, a.drop, i);
		element_store(a.out + i, x);
	}
}

/* A thread has N columns of one position and loops over the batch. */
template <typename T, int N>
static __global__ void embedding_backward_wpe(const __grid_constant__ struct embedding<T> a)
{
	int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
	float total[N], x[N];

	if (i >= a.T_ * a.C)
		return;
	element_load(total, a.dwpe + i);
	for (int64_t b = 0; b < a.B; b++) {
		element_load(x, a.dout + b * a.T_ * a.C + i);
		philox_drop(x, a.drop, b * a.T_ * a.C + i);
#pragma unroll
		for (int j = 0; j < N; j++)
			total[j] += x[j];
	}
	element_store(a.dwpe + i, total);
}

/*
 * Rows are sorted by token, rows of one token by position. The block of a token's first row adds
 * all of them up; the other blocks do nothing.
 */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) embedding_backward_wte(
	const __grid_constant__ struct embedding<T> a, const int32_t *tokens, const int32_t *rows)
{
	int64_t first = blockIdx.x, end = first + 1, R = a.B * a.T_;
	int32_t token = tokens[first];
	int64_t c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N;
	float total[N], x[N];

	if ((first > 0 && tokens[first - 1] == token) || c >= a.C)
		return;
	while (end < R && tokens[end] == token)
		end++;
	element_load(total, a.dwte + token * a.C + c);
#pragma unroll 4
	for (int64_t i = first; i < end; i++) {
		int64_t at = rows[i] * a.C + c;

		element_load(x, a.dout + at);
		philox_drop(x, a.drop, at);
#pragma unroll
		for (int j = 0; j < N; j++)
			total[j] += x[j];
	}
	element_store(a.dwte + token * a.C + c, total);
}

template <typename T, int N>
static void launch(
	struct k_stream *s, const struct embedding<T> &a, const struct token_order *order)
{
	int64_t R = a.B * a.T_, across = (a.C + THREADS * N - 1) / (THREADS * N);

	if (a.out) {
		embedding_forward<T, N>
			<<<element_blocks(R * a.C / N, 256, 16384), 256, 0, s->cuda>>>(a);
		return;
	}
	embedding_backward_wpe<T, N>
		<<<element_blocks(a.T_ * a.C / N, 64, INT32_MAX), 64, 0, s->cuda>>>(a);
	embedding_backward_wte<T, N>
		<<<dim3((unsigned int)R, (unsigned int)across), THREADS, 0, s->cuda>>>(
			a, order->tokens, order->rows);
}

template <typename T>
static void launch_any(
	struct k_stream *s, const struct embedding<T> &a, const struct token_order *order)
{
	const void *all[] = {a.out, a.wte, a.wpe, a.dwte, a.dwpe, a.dout};
	const int N = element_wide<T>::n;
	bool wide = a.C % N == 0;

	for (const void *p : all)
		wide = wide && element_aligned(p, 16);
	if (wide)
		launch<T, N>(s, a, order);
	else
		launch<T, 1>(s, a, order);
}

void k_embedding_forward(struct k_stream *s, void *out, const int32_t *tokens, const void *wte,
	const void *wpe, int64_t B, int64_t T, int64_t C, const struct k_dropout *drop)
{
	if (B * T <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;
		struct embedding<E> a = {
			(E *)out, (const E *)wte, (const E *)wpe, NULL, NULL, NULL, tokens, B, T, C,
				philox_dropout_of(drop)
		};

		launch_any(s, a, NULL);
	});
	stream_check(s, "k_embedding_forward");
}

void k_token_order(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R)
{
	if (R <= 0 || !stream_ready(s))
		return;
	token_order_make(s, order, tokens, R);
	stream_check(s, "k_token_order");
}

void k_embedding_backward(struct k_stream *s, void *dwte, void *dwpe, const void *dout,
	const int32_t *tokens, const int32_t *order, int64_t B, int64_t T, int64_t C,
	const struct k_dropout *drop)
{
	struct token_order rows = {order, order + B * T};

	if (B * T <= 0 || !stream_ready(s))
		return;
	if (!order) {
		int32_t *own = token_order_make(s, NULL, tokens, B * T);

		if (!own)
			return;
		rows = {own, own + B * T};
	}
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;
		struct embedding<E> a = {
			NULL, NULL, NULL, (E *)dwte, (E *)dwpe, (const E *)dout, tokens, B, T, C,
				philox_dropout_of(drop)
		};

		launch_any(s, a, &rows);
	});
	stream_check(s, "k_embedding_backward");
}
