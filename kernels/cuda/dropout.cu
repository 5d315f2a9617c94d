#include "kernels/cuda/element.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/stream.cuh"

template <typename T, int N>
static __global__ void dropout_backward(
	T *dinp, const T *dout, int64_t n, struct philox_dropout drop)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x * N;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n; i += stride) {
		float x[N];

		element_load(x, dout + i);
		philox_drop(x, drop, i);
		element_store(dinp + i, x);
	}
}

void k_dropout_backward(
	struct k_stream *s, void *dinp, const void *dout, int64_t n, const struct k_dropout *drop)
{
	struct philox_dropout d = philox_dropout_of(drop);

	if (n <= 0 || (!d.on && dinp == dout) || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;

		if (n % N == 0 && element_aligned(dinp, 16) && element_aligned(dout, 16))
			dropout_backward<T, N>
				<<<element_blocks(n / N, 256, 8192), 256, 0, s->cuda>>>(
					(T *)dinp, (const T *)dout, n, d);
		else
			dropout_backward<T, 1><<<element_blocks(n, 256, 8192), 256, 0, s->cuda>>>(
				(T *)dinp, (const T *)dout, n, d);
	});
	stream_check(s, "k_dropout_backward");
}
