#include "kernels/cuda/column_sum.cuh"

#include "kernels/cuda/element.cuh"

/* A block has 32 groups of N columns and LANES rows at a time. */
enum { GROUPS = 32, LANES = 8 };

template <typename T, int N>
static __global__ void __launch_bounds__(GROUPS *LANES)
	column_sum_rows(float *partial, const T *in, int64_t R, int64_t n, int64_t rows)
{
	__shared__ float shared[LANES][GROUPS * N + 1];
	int group = threadIdx.x % GROUPS, lane = threadIdx.x / GROUPS;
	int64_t c = ((int64_t)blockIdx.x * GROUPS + group) * N, first = blockIdx.y * rows;
	int64_t end = first + rows < R ? first + rows : R;
	float total[N] = {}, x[N];

	for (int64_t r = first + lane; r < end && c < n; r += LANES) {
		element_load(x, in + r * n + c);
#pragma unroll
		for (int j = 0; j < N; j++)
			total[j] += x[j];
	}
#pragma unroll
	for (int j = 0; j < N; j++)
		shared[lane][group * N + j] = total[j];
	__syncthreads();
	for (int at = threadIdx.x; at < GROUPS * N; at += GROUPS * LANES) {
		int64_t column = (int64_t)blockIdx.x * GROUPS * N + at;
		float sum = 0;

		for (int i = 0; i < LANES; i++)
			sum += shared[i][at];
		if (column < n)
			partial[blockIdx.y * n + column] = sum;
	}
}

template <typename T>
static __global__ void __launch_bounds__(GROUPS *LANES) column_sum_last(
	T *out0, T *out1, const float *partial, int64_t parts, int64_t n, int64_t width)
{
	__shared__ float shared[LANES][GROUPS];
	int group = threadIdx.x % GROUPS, lane = threadIdx.x / GROUPS;
	int64_t c = (int64_t)blockIdx.x * GROUPS + group;
	float total = 0;
	T *out;

	for (int64_t i = lane; i < parts && c < width; i += LANES)
		total += partial[i * width + c];
	shared[lane][group] = total;
	__syncthreads();
	if (lane != 0 || c >= width)
		return;
	total = 0;
	for (int i = 0; i < LANES; i++)
		total += shared[i][group];
	out = c < n ? out0 + c : out1 + (c - n);
	element_set(out, element_float(*out) + total);
}

void column_sum_finish(
	struct k_stream *s, void *out0, void *out1, const float *partial, int64_t parts, int64_t n)
{
	int64_t width = out1 ? 2 * n : n;

	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;

		column_sum_last<<<(unsigned int)((width + GROUPS - 1) / GROUPS), GROUPS * LANES, 0,
			s->cuda>>>((T *)out0, (T *)out1, partial, parts, n, width);
	});
	stream_check(s, "column sums");
}

template <typename T, int N>
static int64_t start(struct k_stream *s, const void *in, int64_t R, int64_t n)
{
	int64_t across = (n + GROUPS * N - 1) / (GROUPS * N);
	int64_t parts = 4 * s->ctx->multiprocessors / across, rows;
	float *partial;

	if (parts > (R + LANES - 1) / LANES)
		parts = (R + LANES - 1) / LANES;
	if (parts < 1)
		parts = 1;
	rows = (R + parts - 1) / parts;
	parts = (R + rows - 1) / rows;
	partial = (float *)stream_scratch(s, (size_t)(parts * n) * sizeof(float));
	if (!partial)
		return 0;
	column_sum_rows<T, N>
		<<<dim3((unsigned int)across, (unsigned int)parts), GROUPS * LANES, 0, s->cuda>>>(
			partial, (const T *)in, R, n, rows);
	stream_check(s, "column sums");
	return parts;
}

template <typename T> static __global__ void add_row(T *out, const T *in, int64_t n)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		element_set(out + i, element_float(out[i]) + element_float(in[i]));
}

void column_sum_add(struct k_stream *s, void *out, const void *in, int64_t R, int64_t n)
{
	int64_t parts = 0;

	if (R <= 0 || n <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		const int N = element_wide<T>::n;

		if (R == 1)
			add_row<<<element_blocks(n, 256, INT32_MAX), 256, 0, s->cuda>>>(
				(T *)out, (const T *)in, n);
		else if (n % N == 0 && element_aligned(in, 16))
			parts = start<T, N>(s, in, R, n);
		else
			parts = start<T, 1>(s, in, R, n);
	});
	if (R == 1)
		stream_check(s, "column sums");
	else if (parts > 0)
		column_sum_finish(s, out, NULL, (const float *)stream_scratch(s, 1), parts, n);
}
