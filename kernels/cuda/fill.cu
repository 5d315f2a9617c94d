#include "kernels/cuda/element.cuh"
#include "kernels/cuda/stream.cuh"

static __global__ void fill(float *out, int64_t n, float value)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
		out[i] = value;
}

void k_fill(struct k_stream *s, k_real *out, int64_t n, double value)
{
	if (n <= 0 || !stream_ready(s))
		return;
	fill<<<element_blocks(n, 256, 4096), 256, 0, s->cuda>>>(out, n, (float)value);
	stream_check(s, "k_fill");
}

template <typename T> static __global__ void cast(T *out, const float *in, int64_t n)
{
	const int N = 4;
	int64_t stride = (int64_t)gridDim.x * blockDim.x, whole = n / N;
	int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (int64_t i = thread; i < whole; i += stride) {
		float x[N];

		element_load(x, in + N * i);
		element_store(out + N * i, x);
	}
	if (thread < n - N * whole)
		element_set(out + N * whole + thread, in[N * whole + thread]);
}

template <typename T> static __global__ void cast_one(T *out, const float *in, int64_t n)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
		element_set(out + i, in[i]);
}

void k_cast(struct k_stream *s, void *out, const k_real *in, int64_t n)
{
	bool wide = element_aligned(in, 16) && element_aligned(out, 16);

	if (n <= 0 || out == in || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		auto *to = (decltype(zero) *)out;

		if (wide)
			cast<<<element_blocks(n, 1024, 8192), 256, 0, s->cuda>>>(to, in, n);
		else
			cast_one<<<element_blocks(n, 256, 8192), 256, 0, s->cuda>>>(to, in, n);
	});
	stream_check(s, "k_cast");
}
