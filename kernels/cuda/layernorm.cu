#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/reduce.cuh"

static const float epsilon = 1e-5f;

/*
 * A warp takes a row and keeps it in registers, CHUNKS times 32 accesses of N elements. Wider rows
 * go the plain way: a block takes a row and keeps it in shared memory.
 */
enum { WARPS = 4, ROW_ELEMS_MAX = 1024, PLAIN_THREADS = 256 };

template <typename T> struct forward {
	T *residual; /* NULL: inp1 is the input */
	T *out;
	float *mean, *rstd;
	const T *inp1, *inp2, *weight, *bias;
	int64_t R, C;
	struct philox_dropout drop;
};

/* Elements c .. c+N-1 of row r, the residual stored on the way. */
template <typename T, int N>
static __device__ __forceinline__ void read_input(
	float (&x)[N], const struct forward<T> &a, int64_t r, int64_t c)
{
	float y[N];

	element_load(x, a.inp1 + r * a.C + c);
	if (!a.residual)
		return;
	element_load(y, a.inp2 + r * a.C + c);
	philox_drop(y, a.drop, r * a.C + c);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = element_rounded<T>(x[j] + y[j]);
	element_store(a.residual + r * a.C + c, x);
}

template <typename T, int N>
static __device__ __forceinline__ void write_output(
	float (&x)[N], const struct forward<T> &a, int64_t r, int64_t c, float mean, float rstd)
{
	float w[N], b[N];

	element_load(w, a.weight + c);
	element_load(b, a.bias + c);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = fmaf((x[j] - mean) * rstd, w[j], b[j]);
	element_store(a.out + r * a.C + c, x);
}

template <typename T, int N, int CHUNKS>
static __global__ void __launch_bounds__(WARPS *REDUCE_WARP)
	layernorm_forward_warp(const __grid_constant__ struct forward<T> a)
{
	int lane = threadIdx.x % REDUCE_WARP;
	int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / REDUCE_WARP;
	float x[CHUNKS][N], sum = 0, squares = 0, rstd;

	if (r >= a.R)
		return;
#pragma unroll
	for (int i = 0; i < CHUNKS; i++) {
		int64_t c = (i * REDUCE_WARP + lane) * N;

		if (c < a.C)
			read_input<T, N>(x[i], a, r, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += c < a.C ? x[i][j] : 0;
	}
	sum = reduce_warp_sum(sum) / (float)a.C;
#pragma unroll
	for (int i = 0; i < CHUNKS; i++) {
#pragma unroll
		for (int j = 0; j < N; j++) {
			float d = x[i][j] - sum;

			squares += (i * REDUCE_WARP + lane) * N < a.C ? d * d : 0;
		}
	}
	rstd = rsqrtf(reduce_warp_sum(squares) / (float)a.C + epsilon);
	if (lane == 0) {
		a.mean[r] = sum;
		a.rstd[r] = rstd;
	}
#pragma unroll
	for (int i = 0; i < CHUNKS; i++) {
		int64_t c = (i * REDUCE_WARP + lane) * N;

		if (c < a.C)
			write_output<T, N>(x[i], a, r, c, sum, rstd);
	}
}

template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
	layernorm_forward_plain(const __grid_constant__ struct forward<T> a)
{
	extern __shared__ float row[];
	__shared__ float shared[REDUCE_WARP];
	float sum = 0, squares = 0, x[1], rstd;
	int64_t r = blockIdx.x;

	for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
		read_input<T, 1>(x, a, r, c);
		row[c] = x[0];
		sum += x[0];
	}
	sum = reduce_block_sum(sum, shared) / (float)a.C;
	for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS)
		squares += (row[c] - sum) * (row[c] - sum);
	rstd = rsqrtf(reduce_block_sum(squares, shared) / (float)a.C + epsilon);
	if (threadIdx.x == 0) {
		a.mean[r] = sum;
		a.rstd[r] = rstd;
	}
	for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
		x[0] = row[c];
		write_output<T, 1>(x, a, r, c, sum, rstd);
	}
}

template <typename T> static bool fits_warp(const struct forward<T> &a)
{
	const void *all[] = {a.residual, a.out, a.inp1, a.inp2, a.weight, a.bias};
	bool fits = a.C <= ROW_ELEMS_MAX && a.C % element_wide<T>::n == 0;

	for (const void *p : all)
		fits = fits && element_aligned(p, 16);
	return fits;
}

template <typename T> static void launch_forward(struct k_stream *s, const struct forward<T> &a)
{
	const int N = element_wide<T>::n, chunks = ROW_ELEMS_MAX / REDUCE_WARP / N;
	size_t bytes = (size_t)a.C * sizeof(float);

	if (fits_warp(a)) {
		layernorm_forward_warp<T, N, chunks><<<element_blocks(a.R, WARPS, INT32_MAX),
			WARPS * REDUCE_WARP, 0, s->cuda>>>(a);
		return;
	}
	context_check(s->ctx, "layernorm",
		cudaFuncSetAttribute(layernorm_forward_plain<T>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	layernorm_forward_plain<T><<<(unsigned int)a.R, PLAIN_THREADS, bytes, s->cuda>>>(a);
}

static void forward_any(struct k_stream *s, const char *name, void *residual, void *out,
	k_real *mean, k_real *rstd, const void *inp1, const void *inp2, const void *weight,
	const void *bias, int64_t R, int64_t C, const struct k_dropout *drop)
{
	if (R <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		struct forward<T> a = {
			(T *)residual, (T *)out, mean, rstd, (const T *)inp1, (const T *)inp2,
				(const T *)weight, (const T *)bias, R, C, philox_dropout_of(drop)
		};

		launch_forward(s, a);
	});
	stream_check(s, name);
}

void k_layernorm_forward(struct k_stream *s, void *out, k_real *mean, k_real *rstd, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C)
{
	forward_any(s, "k_layernorm_forward", NULL, out, mean, rstd, inp, NULL, weight, bias, R, C,
		NULL);
}

void k_residual_layernorm_forward(struct k_stream *s, void *residual, void *out, k_real *mean,
	k_real *rstd, const void *inp1, const void *inp2, const void *weight, const void *bias,
	int64_t R, int64_t C, const struct k_dropout *drop)
{
	forward_any(s, "k_residual_layernorm_forward", residual, out, mean, rstd, inp1, inp2,
		weight, bias, R, C, drop);
}

/*
 * ---- backward ----
 *
 * With x the normed input and d = dout * weight: dinp += rstd * (d - mean(d) - x * mean(d x)),
 * dweight += dout x, dbias += dout (Ba, Kiros, Hinton, arXiv:1607.06450, differentiated). Each
 * block leaves its part of dweight and dbias in partial (blocks, 2, C).
 */
template <typename T> struct backward {
	T *dinp;
	float *partial;
	const T *dout, *inp, *weight;
	const float *mean, *rstd;
	int64_t R, C;
};

template <typename T, int N, int CHUNKS>
static __global__ void __launch_bounds__(WARPS *REDUCE_WARP)
	layernorm_backward_warp(const __grid_constant__ struct backward<T> a)
{
	__shared__ float shared[WARPS][ROW_ELEMS_MAX];
	int lane = threadIdx.x % REDUCE_WARP, warp = threadIdx.x / REDUCE_WARP;
	float dw[CHUNKS][N] = {}, db[CHUNKS][N] = {};

	for (int64_t r = (int64_t)blockIdx.x * WARPS + warp; r < a.R;
		r += (int64_t)gridDim.x * WARPS) {
		float x[CHUNKS][N], d[CHUNKS][N], sum = 0, with_x = 0;
		float mean = a.mean[r], rstd = a.rstd[r];

#pragma unroll
		for (int i = 0; i < CHUNKS; i++) {
			int64_t c = (i * REDUCE_WARP + lane) * N;
			float w[N];

			if (c >= a.C)
				continue;
			element_load(x[i], a.inp + r * a.C + c);
			element_load(d[i], a.dout + r * a.C + c);
			element_load(w, a.weight + c);
#pragma unroll
			for (int j = 0; j < N; j++) {
				x[i][j] = (x[i][j] - mean) * rstd;
				dw[i][j] = fmaf(d[i][j], x[i][j], dw[i][j]);
				db[i][j] += d[i][j];
				d[i][j] *= w[j];
				sum += d[i][j];
				with_x = fmaf(d[i][j], x[i][j], with_x);
			}
		}
		sum = reduce_warp_sum(sum) / (float)a.C;
		with_x = reduce_warp_sum(with_x) / (float)a.C;
#pragma unroll
		for (int i = 0; i < CHUNKS; i++) {
			int64_t c = (i * REDUCE_WARP + lane) * N;
			float dinp[N];

			if (c >= a.C)
				continue;
			element_load(dinp, a.dinp + r * a.C + c);
#pragma unroll
			for (int j = 0; j < N; j++)
				dinp[j] += rstd * (d[i][j] - sum - x[i][j] * with_x);
			element_store(a.dinp + r * a.C + c, dinp);
		}
	}
	for (int which = 0; which < 2; which++) {
		__syncthreads();
#pragma unroll
		for (int i = 0; i < CHUNKS; i++) {
#pragma unroll
			for (int j = 0; j < N; j++)
				shared[warp][(i * REDUCE_WARP + lane) * N + j] =
					which == 0 ? dw[i][j] : db[i][j];
		}
		__syncthreads();
		for (int64_t c = threadIdx.x; c < a.C; c += WARPS * REDUCE_WARP) {
			float total = 0;

#pragma unroll
			for (int i = 0; i < WARPS; i++)
				total += shared[i][c];
			a.partial[(blockIdx.x * 2 + which) * a.C + c] = total;
		}
	}
}

/* Rows blockIdx.x, blockIdx.x + gridDim.x, ...; partial is the block's own and grows in memory. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
	layernorm_backward_plain(const __grid_constant__ struct backward<T> a)
{
	__shared__ float shared[REDUCE_WARP];
	float *dw = a.partial + (int64_t)blockIdx.x * 2 * a.C, *db = dw + a.C;

	for (int64_t c = threadIdx.x; c < 2 * a.C; c += PLAIN_THREADS)
		dw[c] = 0;
	__syncthreads();
	for (int64_t r = blockIdx.x; r < a.R; r += gridDim.x) {
		const T *inp = a.inp + r * a.C, *dout = a.dout + r * a.C;
		float sum = 0, with_x = 0, mean = a.mean[r], rstd = a.rstd[r];

		for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
			float x = (element_float(inp[c]) - mean) * rstd;
			float g = element_float(dout[c]), d = g * element_float(a.weight[c]);

			dw[c] = fmaf(g, x, dw[c]);
			db[c] += g;
			sum += d;
			with_x = fmaf(d, x, with_x);
		}
		sum = reduce_block_sum(sum, shared) / (float)a.C;
		with_x = reduce_block_sum(with_x, shared) / (float)a.C;
		for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
			float x = (element_float(inp[c]) - mean) * rstd;
			float d = element_float(dout[c]) * element_float(a.weight[c]);
			T *dinp = a.dinp + r * a.C + c;

			element_set(dinp, element_float(*dinp) + rstd * (d - sum - x * with_x));
		}
	}
}

template <typename T> static bool fits_warp_backward(const struct backward<T> &a)
{
	const void *all[] = {a.dinp, a.dout, a.inp, a.weight};
	bool fits = a.C <= ROW_ELEMS_MAX && a.C % element_wide<T>::n == 0;

	for (const void *p : all)
		fits = fits && element_aligned(p, 16);
	return fits;
}

template <typename T>
static void launch_backward(struct k_stream *s, const struct backward<T> &a, unsigned int blocks)
{
	const int N = element_wide<T>::n, chunks = ROW_ELEMS_MAX / REDUCE_WARP / N;

	if (fits_warp_backward(a))
		layernorm_backward_warp<T, N, chunks>
			<<<blocks, WARPS * REDUCE_WARP, 0, s->cuda>>>(a);
	else
		layernorm_backward_plain<T><<<blocks, PLAIN_THREADS, 0, s->cuda>>>(a);
}

void k_layernorm_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias,
	const void *dout, const void *inp, const void *weight, const k_real *mean,
	const k_real *rstd, int64_t R, int64_t C)
{
	unsigned int blocks = element_blocks(R, 4 * WARPS, 3 * s->ctx->multiprocessors);
	float *partial;

	if (R <= 0 || !stream_ready(s))
		return;
	partial = (float *)stream_scratch(s, (size_t)(blocks * 2 * C) * sizeof(float));
	if (!partial)
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		struct backward<T> a = {
			(T *)dinp, partial, (const T *)dout, (const T *)inp,
				(const T *)weight, mean, rstd, R, C
		};

		launch_backward(s, a, blocks);
	});
	stream_check(s, "k_layernorm_backward");
	column_sum_finish(s, dweight, dbias, partial, blocks, C);
}
