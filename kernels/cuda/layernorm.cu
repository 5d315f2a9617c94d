#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.cuh"

static const float epsilon = 1e-5f;

/*
 * A warp takes a row and keeps it in registers: CHUNKS times 32 accesses of N elements. The plain
 * way serves wider rows: a block takes a row and keeps it in shared memory.
 */
enum { WARPS = 4, ROW_ELEMS_MAX = 1024, PLAIN_THREADS = 256, PLAIN_ROWS = 16 };
/* Warps of a block of backward, and warps that a multiprocessor has room for. */
enum { BACKWARD_WARPS = 12, BACKWARD_BLOCKS = 2, BACKWARD_ROWS = 2 };

template <typename T> struct forward {
	T *residual; /* NULL: inp1 is the input */
	T *out;
	float *mean, *rstd;
	const T *inp1, *inp2, *weight, *bias;
	int64_t R, C;
	struct philox_dropout drop;
};

/* Elements c .. c+N-1 of row r; stores the residual. DROP: dropout may apply to inp2. */
template <typename T, int N, bool DROP>
static __device__ __forceinline__ void read_input(
	float (&x)[N], const struct forward<T> &a, int64_t r, int64_t c)
{
	struct element_packed<T, N> packed;
	float y[N];

	element_load(x, a.inp1 + r * a.C + c);
	if (!a.residual)
		return;
	element_load(y, a.inp2 + r * a.C + c);
	if (DROP)
		philox_drop(y, a.drop, r * a.C + c);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] += y[j];
	element_pack(packed, x);
	*(struct element_packed<T, N> *)(a.residual + r * a.C + c) = packed;
	element_unpack(x, packed); /* as rounded */
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

/* WHOLE: a row is exactly CHUNKS times 32 accesses, without dropout. */
template <typename T, int N, int CHUNKS, bool WHOLE>
static __global__ void __launch_bounds__(WARPS *REDUCE_WARP)
	layernorm_forward_warp(const __grid_constant__ struct forward<T> a)
{
	const int64_t C = WHOLE ? CHUNKS * REDUCE_WARP * N : a.C;
	int lane = threadIdx.x % REDUCE_WARP;
	int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / REDUCE_WARP;
	float x[CHUNKS][N], sum = 0, squares = 0, rstd;

	if (r >= a.R)
		return;
#pragma unroll
	for (int i = 0; i < CHUNKS; i++) {
		int64_t c = (i * REDUCE_WARP + lane) * N;

		if (WHOLE || c < C)
			read_input<T, N, !WHOLE>(x[i], a, r, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += WHOLE || c < C ? x[i][j] : 0;
	}
	sum = reduce_warp_sum(sum) / (float)C;
#pragma unroll
	for (int i = 0; i < CHUNKS; i++) {
#pragma unroll
		for (int j = 0; j < N; j++) {
			float d = x[i][j] - sum;

			/* an fma in both: dropout does not change a row's statistics */
			if (WHOLE || (i * REDUCE_WARP + lane) * N < C)
				squares = fmaf(d, d, squares);
		}
	}
	rstd = rsqrtf(reduce_warp_sum(squares) / (float)C + epsilon);
	if (lane == 0) {
		a.mean[r] = sum;
		a.rstd[r] = rstd;
	}
#pragma unroll
	for (int i = 0; i < CHUNKS; i++) {
		int64_t c = (i * REDUCE_WARP + lane) * N;

		if (WHOLE || c < C)
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
		read_input<T, 1, true>(x, a, r, c);
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
		auto *kernel = layernorm_forward_warp<T, N, chunks, false>;
		int64_t width = REDUCE_WARP * N;

		if (!a.drop.on && a.C == 3 * width)
			kernel = layernorm_forward_warp<T, N, 3, true>;
		if (!a.drop.on && a.C == 4 * width)
			kernel = layernorm_forward_warp<T, N, 4, true>;
		kernel<<<element_blocks(a.R, WARPS, INT32_MAX), WARPS * REDUCE_WARP, 0, s->cuda>>>(
			a);
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
 * With x the normed input and d = dout * weight: dinp = add + rstd * (d - mean(d) - x * mean(d x)),
 * dweight += dout x, dbias += dout (Ba, Kiros, Hinton, arXiv:1607.06450, differentiated). Each
 * block leaves its part of dweight, dbias and the column sums of dinp in partial (blocks, 3, C).
 */
template <typename T> struct backward {
	T *dinp;
	const T *add; /* NULL: 0 */
	float *partial;
	const T *dout, *inp, *weight;
	const float *mean, *rstd;
	int64_t R, C;
};

/* A thread's unit of work: N columns of some rows. */
template <typename T, int N> struct piece {
	struct element_packed<T, N> inp[BACKWARD_ROWS], dout[BACKWARD_ROWS], add[BACKWARD_ROWS];
	float mean[BACKWARD_ROWS], rstd[BACKWARD_ROWS];
};

/*
 * An element's address. In WHOLE shapes each thread has all of its columns and rows, and an int can
 * number all elements.
 */
template <bool WHOLE>
static __device__ __forceinline__ int64_t place(int64_t r, int64_t c, int64_t C)
{
	return WHOLE ? (int)r * (int)C + (int)c : r * C + c;
}

template <typename T, int N, bool WHOLE>
static __device__ __forceinline__ void fetch(
	struct piece<T, N> &to, const struct backward<T> &a, int64_t first, int64_t c, int64_t C)
{
#pragma unroll
	for (int i = 0; i < BACKWARD_ROWS; i++) {
		int64_t r = first + i, at = place<WHOLE>(first, c, C) + i * C;

		to.inp[i] = to.dout[i] = to.add[i] = {};
		to.mean[i] = to.rstd[i] = 0;
		if (!WHOLE && (r >= a.R || c >= C))
			continue;
		to.inp[i] = *(const struct element_packed<T, N> *)(a.inp + at);
		to.dout[i] = *(const struct element_packed<T, N> *)(a.dout + at);
		if (a.add)
			to.add[i] = *(const struct element_packed<T, N> *)(a.add + at);
		to.mean[i] = a.mean[r];
		to.rstd[i] = a.rstd[r];
	}
}

/*
 * element_unpack by different instructions: with the same ones the compiler would keep the earlier
 * results and spill other registers.
 */
template <int N>
static __device__ __forceinline__ void unpack_again(
	float (&x)[N], const struct element_packed<__nv_bfloat16, N> &p)
{
#pragma unroll
	for (int i = 0; i < N / 2; i++) {
		asm("prmt.b32 %0, %1, 0, 0x1044;" : "=f"(x[2 * i]) : "r"(p.words.v[i]));
		asm("prmt.b32 %0, %1, 0, 0x3244;" : "=f"(x[2 * i + 1]) : "r"(p.words.v[i]));
	}
}

template <int N>
static __device__ __forceinline__ void unpack_again(
	float (&x)[N], const struct element_packed<__half, N> &p)
{
	const uint32_t minus_zeros = 0x80008000;
	struct element_packed<__half, N> again;

#pragma unroll
	for (int i = 0; i < N / 2; i++)
		asm("add.rn.f16x2 %0, %1, %2;"
			: "=r"(again.words.v[i])
			: "r"(p.words.v[i]), "r"(minus_zeros));
	element_unpack(x, again);
}

template <int N>
static __device__ __forceinline__ void unpack_again(
	float (&x)[N], const struct element_packed<float, N> &p)
{
	element_unpack(x, p);
}

/* A thread's sums over its columns: dweight, dbias, dsum. */
enum { SUM_DWEIGHT, SUM_DBIAS, SUM_DINP, SUMS };

/*
 * sum, with_x: this thread's part of each row's sums of d and of d x. The error of x is the
 * rounding of mean rstd, no more than that of inp itself.
 */
template <typename T, int N>
static __device__ __forceinline__ void sum_rows(float (&total)[SUMS][N],
	float (&sum)[BACKWARD_ROWS], float (&with_x)[BACKWARD_ROWS], const struct piece<T, N> &p,
	const T *weight)
{
	float w[N];

	element_load(w, weight);
#pragma unroll
	for (int i = 0; i < BACKWARD_ROWS; i++) {
		float inp[N], g[N], shift = -p.mean[i] * p.rstd[i];

		element_unpack(inp, p.inp[i]);
		element_unpack(g, p.dout[i]);
		sum[i] = with_x[i] = 0;
#pragma unroll
		for (int j = 0; j < N; j++) {
			float x = fmaf(inp[j], p.rstd[i], shift), d = g[j] * w[j];

			total[SUM_DWEIGHT][j] = fmaf(g[j], x, total[SUM_DWEIGHT][j]);
			total[SUM_DBIAS][j] += g[j];
			sum[i] += d;
			with_x[i] = fmaf(d, x, with_x[i]);
		}
	}
}

/*
 * sum, with_x: of the whole row, over C. Terms linear in inp are combined: dinp = add + dout (rstd
 * weight) - inp (rstd^2 with_x) + mean rstd^2 with_x - rstd sum.
 */
template <typename T, int N, bool WHOLE>
static __device__ __forceinline__ void write_rows(float (&total)[SUMS][N],
	const float (&sum)[BACKWARD_ROWS], const float (&with_x)[BACKWARD_ROWS],
	struct piece<T, N> &p, const T *weight, const struct backward<T> &a, int64_t first,
	int64_t c, int64_t C)
{
	float w[N];

	element_load(w, weight);
#pragma unroll
	for (int i = 0; i < BACKWARD_ROWS; i++) {
		struct element_packed<T, N> packed;
		float inp[N], g[N], dinp[N], rstd = p.rstd[i], by = -rstd * rstd * with_x[i];
		float more = fmaf(-by, p.mean[i], -rstd * sum[i]);

		if (!WHOLE && (first + i >= a.R || c >= C))
			continue;
		element_unpack(inp, p.inp[i]);
		unpack_again(g, p.dout[i]);
		element_unpack(dinp, p.add[i]);
#pragma unroll
		for (int j = 0; j < N; j++)
			dinp[j] += fmaf(g[j], rstd * w[j], fmaf(inp[j], by, more));
		element_pack(packed, dinp);
		*(struct element_packed<T, N> *)(a.dinp + place<WHOLE>(first, c, C) + i * C) =
			packed;
		element_unpack(dinp, packed); /* as rounded */
#pragma unroll
		for (int j = 0; j < N; j++)
			total[SUM_DINP][j] += dinp[j];
	}
}

/*
 * Sums all four over a warp, each in the order of reduce_warp_sum, in 18 instructions instead of
 * 40: each step halves what a lane holds. Lanes 0, 8, 16 and 24 end with sum[0], with_x[0], sum[1]
 * and with_x[1].
 */
static __device__ __forceinline__ float reduce_four(
	const float (&sum)[BACKWARD_ROWS], const float (&with_x)[BACKWARD_ROWS])
{
	static_assert(BACKWARD_ROWS == 2, "four sums");
	bool second = threadIdx.x & 16, other = threadIdx.x & 8;
	float s = second ? sum[1] : sum[0], x = second ? with_x[1] : with_x[0];

	s += __shfl_xor_sync(reduce_all_lanes, second ? sum[0] : sum[1], 16);
	x += __shfl_xor_sync(reduce_all_lanes, second ? with_x[0] : with_x[1], 16);
	s = (other ? x : s) + __shfl_xor_sync(reduce_all_lanes, other ? s : x, 8);
#pragma unroll
	for (int lane = 4; lane > 0; lane /= 2)
		s += __shfl_xor_sync(reduce_all_lanes, s, lane);
	return s;
}

/*
 * x / C by C's inverse, in three instructions: the same bits for normal numbers and the widths of
 * GPT-2 (tried for all fractions), nan for inf.
 */
static __device__ __forceinline__ float over(float x, float C, float inverse)
{
	float near = x * inverse;

	return fmaf(fmaf(-near, C, x), inverse, near);
}

static __device__ __forceinline__ void meet_group(int group, int warps)
{
	asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(warps * REDUCE_WARP) : "memory");
}

/*
 * Sums over a group's warps, in their order, divided by C. Two buffers alternate: a barrier
 * separates all reads of one from its next write.
 */
static __device__ __forceinline__ void join_group(float (&sum)[BACKWARD_ROWS],
	float (&with_x)[BACKWARD_ROWS], float4 *buffer, int warps, float C, float inverse)
{
	int warp = threadIdx.x / REDUCE_WARP, lane = threadIdx.x % REDUCE_WARP;
	int group = warp / warps;
	float mine = reduce_four(sum, with_x);
	float4 all;

	if (lane % 8 == 0)
		((float *)(buffer + warp))[lane / 8] = mine;
	meet_group(group, warps);
	all = buffer[group * warps];
	for (int k = 1; k < warps; k++) {
		float4 part = buffer[group * warps + k];

		all.x += part.x;
		all.y += part.y;
		all.z += part.z;
		all.w += part.w;
	}
	sum[0] = over(all.x, C, inverse);
	with_x[0] = over(all.y, C, inverse);
	sum[1] = over(all.z, C, inverse);
	with_x[1] = over(all.w, C, inverse);
}

/*
 * A group of `warps` warps has a row's columns, N per thread, and takes BACKWARD_ROWS at a time.
 * ROW_WARPS: their number for WHOLE shapes, or 0.
 */
template <typename T, int N, int ROW_WARPS>
static __global__ void __launch_bounds__(BACKWARD_WARPS *REDUCE_WARP, BACKWARD_BLOCKS)
	layernorm_backward_groups(const __grid_constant__ struct backward<T> a, int row_warps)
{
	const bool whole = ROW_WARPS > 0;
	const int warps = whole ? ROW_WARPS : row_warps;
	const int64_t C = whole ? ROW_WARPS * REDUCE_WARP * N : a.C;
	__shared__ float4 buffer[2][BACKWARD_WARPS];
	__shared__ float shared[BACKWARD_WARPS * REDUCE_WARP * N];
	int across = warps * REDUCE_WARP, group = threadIdx.x / across;
	int groups = blockDim.x / across, turn = 0;
	int64_t c = (int64_t)(threadIdx.x % across) * N;
	int64_t stride = (int64_t)gridDim.x * groups * BACKWARD_ROWS;
	/* missing columns count as zeros: their weight does not matter */
	const T *weight = a.weight + (c < C ? c : 0);
	int64_t r = ((int64_t)blockIdx.x * groups + group) * BACKWARD_ROWS;
	float total[SUMS][N] = {}, inverse = 1 / (float)C;

	for (; r < a.R; r += stride, turn ^= 1) {
		float sum[BACKWARD_ROWS], with_x[BACKWARD_ROWS];
		struct piece<T, N> p;

		fetch<T, N, whole>(p, a, r, c, C);
		sum_rows(total, sum, with_x, p, weight);
		join_group(sum, with_x, buffer[turn], warps, (float)C, inverse);
		write_rows<T, N, whole>(total, sum, with_x, p, weight, a, r, c, C);
	}
	/* Groups without rows in the last round: racecheck expects all at the barrier. */
	if (r - group * BACKWARD_ROWS < a.R)
		meet_group(group, warps);
#pragma unroll
	for (int which = 0; which < SUMS; which++) {
		__syncthreads();
#pragma unroll
		for (int j = 0; j < N; j++)
			shared[threadIdx.x * N + j] = total[which][j];
		__syncthreads();
		for (int64_t i = threadIdx.x; i < C; i += blockDim.x) {
			float all = 0;

			for (int k = 0; k < groups; k++)
				all += shared[k * across * N + i];
			a.partial[((int64_t)blockIdx.x * SUMS + which) * C + i] = all;
		}
	}
}

/* Rows blockIdx.x, blockIdx.x + gridDim.x, ...; each block accumulates partial in memory. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
	layernorm_backward_plain(const __grid_constant__ struct backward<T> a)
{
	__shared__ float shared[REDUCE_WARP];
	float *dw = a.partial + (int64_t)blockIdx.x * 3 * a.C, *db = dw + a.C, *ds = db + a.C;

	for (int64_t c = threadIdx.x; c < 3 * a.C; c += PLAIN_THREADS)
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
			float dinp = a.add ? element_float(a.add[r * a.C + c]) : 0;

			dinp += rstd * (d - sum - x * with_x);
			ds[c] += element_rounded<T>(dinp);
			element_set(a.dinp + r * a.C + c, dinp);
		}
	}
}

template <typename T> static bool fits_groups(const struct backward<T> &a)
{
	const void *all[] = {a.dinp, a.add, a.dout, a.inp, a.weight};
	const int64_t most = BACKWARD_WARPS * REDUCE_WARP * element_wide<T>::n;
	bool fits = a.C <= most && a.C % element_wide<T>::n == 0;

	for (const void *p : all)
		fits = fits && element_aligned(p, 16);
	return fits;
}

template <typename T> static bool whole_rows(const struct backward<T> &a, int warps)
{
	return a.C == (int64_t)warps * REDUCE_WARP * element_wide<T>::n &&
		a.R % BACKWARD_ROWS == 0 && a.R * a.C <= INT32_MAX;
}

/* The number of blocks, at most `most`; each has left its part. */
template <typename T>
static unsigned int launch_backward(
	struct k_stream *s, const struct backward<T> &a, unsigned int most)
{
	const int N = element_wide<T>::n;
	int warps = (int)((a.C + REDUCE_WARP * N - 1) / (REDUCE_WARP * N));
	int groups = warps > 0 ? BACKWARD_WARPS / warps : 0;
	auto *kernel = layernorm_backward_groups<T, N, 0>;
	unsigned int blocks;

	if (!fits_groups(a)) {
		blocks = element_blocks(a.R, PLAIN_ROWS, most);
		layernorm_backward_plain<T><<<blocks, PLAIN_THREADS, 0, s->cuda>>>(a);
		return blocks;
	}
	blocks = element_blocks(a.R, groups * BACKWARD_ROWS, most);
	if (whole_rows(a, warps) && warps == 3)
		kernel = layernorm_backward_groups<T, N, 3>;
	if (whole_rows(a, warps) && warps == 4)
		kernel = layernorm_backward_groups<T, N, 4>;
	kernel<<<blocks, groups * warps * REDUCE_WARP, 0, s->cuda>>>(a, warps);
	return blocks;
}

static int64_t most_blocks(const struct k_context *ctx)
{
	return BACKWARD_BLOCKS * (int64_t)ctx->multiprocessors;
}

size_t scratch_layernorm_part_bytes(const struct k_context *ctx, int64_t C)
{
	return (size_t)(most_blocks(ctx) * SUMS * C) * sizeof(float);
}

void k_layernorm_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *add, const void *dout, const void *inp, const void *weight, const k_real *mean,
	const k_real *rstd, int64_t R, int64_t C)
{
	unsigned int most = (unsigned int)most_blocks(s->ctx), blocks = 0;
	void *const outs[] = {dweight, dbias, dsum};
	struct stream_part *partial;

	if (R <= 0 || !stream_ready(s))
		return;
	partial = stream_part(s, scratch_layernorm_part_bytes(s->ctx, C));
	if (!partial)
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		struct backward<T> a = {
			(T *)dinp, (const T *)add, (float *)partial->memory, (const T *)dout,
				(const T *)inp, (const T *)weight, mean, rstd, R, C
		};

		blocks = launch_backward(s, a, most);
	});
	stream_check(s, "k_layernorm_backward");
	column_sum_finish_beside(s, outs, dsum ? SUMS : SUMS - 1, partial, blocks, SUMS * C, C);
}
