#include "kernels/cuda/column_sum.cuh"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/scratch.cuh"

/* Rows per pass of the last step. */
enum { GROUPS = COLUMN_SUM_GROUPS, LANES = COLUMN_SUM_LANES, LAST_LANES = 32 };

template <typename T, int N>
static __global__ void __launch_bounds__(GROUPS *LANES)
	column_sum_rows(float *partial, const T *in, int64_t R, int64_t n, int64_t rows)
{
	__shared__ float shared[LANES][GROUPS * N + 1];
	int group = threadIdx.x % GROUPS, lane = threadIdx.x / GROUPS;
	int64_t c = ((int64_t)blockIdx.x * GROUPS + group) * N, first = blockIdx.y * rows;
	int64_t end = first + rows < R ? first + rows : R;
	float total[N] = {}, x[N];

	if (c >= n)
		end = first;
#pragma unroll 8
	for (int64_t r = first + lane; r < end; r += LANES) {
		element_load(x, in + r * n + c);
#pragma unroll
		for (int j = 0; j < N; j++)
			total[j] += x[j];
	}
	column_sum_block(partial, shared, total, n);
}

template <typename T> struct last {
	T *outs[COLUMN_SUM_OUTS];
	const float *partial;
	int64_t parts, width, n;
};

template <typename T>
static __global__ void __launch_bounds__(GROUPS *LAST_LANES)
	column_sum_last(const __grid_constant__ struct last<T> a)
{
	__shared__ float shared[LAST_LANES][GROUPS];
	int group = threadIdx.x % GROUPS, lane = threadIdx.x / GROUPS;
	int64_t c = (int64_t)blockIdx.x * GROUPS + group;
	float total = 0;
	T *out = a.outs[blockIdx.y];

	if (c < a.n) {
#pragma unroll 8
		for (int64_t i = lane; i < a.parts; i += LAST_LANES)
			total += a.partial[i * a.width + blockIdx.y * a.n + c];
	}
	shared[lane][group] = total;
	__syncthreads();
	if (lane != 0 || c >= a.n)
		return;
	total = 0;
#pragma unroll
	for (int i = 0; i < LAST_LANES; i++)
		total += shared[i][group];
	element_set(out + c, element_float(out[c]) + total);
}

void column_sum_finish(struct k_stream *s, void *const *outs, int n_outs, const float *partial,
	int64_t parts, int64_t width, int64_t n)
{
	dim3 blocks((unsigned int)((n + GROUPS - 1) / GROUPS), (unsigned int)n_outs);

	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		struct last<T> a = {
			{}, partial, parts, width, n
		};

		for (int i = 0; i < n_outs; i++)
			a.outs[i] = (T *)outs[i];
		column_sum_last<T><<<blocks, GROUPS * LAST_LANES, 0, s->cuda>>>(a);
	});
	stream_check(s, "column sums");
}

void column_sum_finish_beside(struct k_stream *s, void *const *outs, int n_outs,
	struct stream_part *partial, int64_t parts, int64_t width, int64_t n)
{
	struct k_stream *branch = k_stream_fork(s);

	column_sum_finish(branch, outs, n_outs, (const float *)partial->memory, parts, width, n);
	stream_part_given(s, partial, branch);
}

struct column_sum_cut column_sum_cut(
	const struct k_context *ctx, int64_t R, int64_t n, int64_t columns, int64_t lanes)
{
	struct column_sum_cut cut = {.across = (n + columns - 1) / columns};
	int64_t most = (R + lanes - 1) / lanes;

	cut.parts = cut.across > 0 ? 4 * ctx->multiprocessors / cut.across : 0;
	if (cut.parts > most)
		cut.parts = most;
	if (cut.parts < 1)
		cut.parts = 1;
	cut.rows = (R + cut.parts - 1) / cut.parts;
	if (cut.rows > 0)
		cut.parts = (R + cut.rows - 1) / cut.rows;
	return cut;
}

size_t column_sum_part_bytes(
	const struct k_context *ctx, int64_t R, int64_t n, int64_t groups, int64_t lanes)
{
	static const int64_t widths[] = {1, element_wide<float>::n, element_wide<__half>::n};
	int64_t most = 0;

	for (int64_t N : widths) {
		struct column_sum_cut cut = column_sum_cut(ctx, R, n, groups * N, lanes);

		if (cut.parts > most)
			most = cut.parts;
	}
	return (size_t)(most * n) * sizeof(float);
}

template <typename T, int N>
static void launch_rows(struct k_stream *s, float *partial, const void *in, int64_t R, int64_t n,
	const struct column_sum_cut *cut)
{
	dim3 blocks((unsigned int)cut->across, (unsigned int)cut->parts);

	column_sum_rows<T, N>
		<<<blocks, GROUPS * LANES, 0, s->cuda>>>(partial, (const T *)in, R, n, cut->rows);
	stream_check(s, "column sums");
}

template <typename T> static __global__ void add_row(T *out, const T *in, int64_t n)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		element_set(out + i, element_float(out[i]) + element_float(in[i]));
}

size_t scratch_column_sum_bytes(const struct k_context *ctx, int64_t R, int64_t n)
{
	return column_sum_part_bytes(ctx, R, n, GROUPS, LANES);
}

static void add_rows(struct k_stream *s, void *out, const void *in, int64_t R, int64_t n)
{
	const int N = 16 / (int)k_elem_bytes(s->ctx);
	bool wide = n % N == 0 && element_aligned(in, 16);
	struct column_sum_cut cut = column_sum_cut(s->ctx, R, n, GROUPS * (wide ? N : 1), LANES);
	float *partial = (float *)stream_scratch(s, (size_t)(cut.parts * n) * sizeof(float));

	if (!partial)
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;

		if (wide)
			launch_rows<T, element_wide<T>::n>(s, partial, in, R, n, &cut);
		else
			launch_rows<T, 1>(s, partial, in, R, n, &cut);
	});
	column_sum_finish(s, &out, 1, partial, cut.parts, n, n);
}

void column_sum_add(struct k_stream *s, void *out, const void *in, int64_t R, int64_t n)
{
	if (R <= 0 || n <= 0 || !stream_ready(s))
		return;
	if (R > 1) {
		add_rows(s, out, in, R, n);
		return;
	}
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;

		add_row<<<element_blocks(n, 256, INT32_MAX), 256, 0, s->cuda>>>(
			(T *)out, (const T *)in, n);
	});
	stream_check(s, "column sums");
}
