#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/pair.cuh"

/*
 * Each multiprocessor has one persistent block with two rows in shared memory. While its THREADS
 * threads process one row in place, the copy engine stores the other's result and loads the next
 * row: a thread of an extra warp controls it.
 */
enum { THREADS = 640, ROWS = 2, BARRIER_BYTES = 64, ALIGN_BYTES = 128 };

static __host__ __device__ int64_t row_bytes(int64_t Vp)
{
	return (Vp * 2 + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

#if WGMMA_THERE

/* Per place: the row has arrived; the block has processed it. */
static __device__ __forceinline__ uint32_t there(uint32_t barriers, int place)
{
	return barriers + 8 * (uint32_t)place;
}

static __device__ __forceinline__ uint32_t done(uint32_t barriers, int place)
{
	return barriers + 8 * (uint32_t)(ROWS + place);
}

template <typename T>
static __device__ __forceinline__ void bring(
	const struct cross_entropy<T> &a, int64_t r, uint32_t to, uint32_t barrier)
{
	int bytes = (int)(a.Vp * (int64_t)sizeof(T));

	bulk_expect(barrier, bytes);
	bulk_load_bytes(to, a.logits + r * a.Vp, bytes, barrier);
}

template <typename T>
static __device__ void move_rows(
	const struct cross_entropy<T> &a, uint32_t memory, uint32_t barriers)
{
	int64_t r = blockIdx.x;

	for (int place = 0; place < ROWS && r + place * gridDim.x < a.R; place++)
		bring(a, r + place * gridDim.x, memory + (uint32_t)(place * row_bytes(a.Vp)),
			there(barriers, place));
	for (int i = 0; r < a.R; i++, r += gridDim.x) {
		int place = i % ROWS;
		uint32_t row = memory + (uint32_t)(place * row_bytes(a.Vp));

		bulk_wait(done(barriers, place), i / ROWS & 1);
		bulk_store_bytes(a.logits + r * a.Vp, row, (int)(a.Vp * (int64_t)sizeof(T)));
		bulk_store_wait();
		if (r + ROWS * gridDim.x < a.R)
			bring(a, r + ROWS * gridDim.x, row, there(barriers, place));
	}
	bulk_store_end();
}

/*
 * The loops over a row are most of the step's elementwise work: eight elements at a time as four
 * words, in few instructions. All sums are in the order of cross_entropy_row.
 */
enum { PIECE = 8 };
struct alignas(16) piece_words {
	uint32_t v[PIECE / 2];
};

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b, __nv_bfloat16)
{
	__nv_bfloat162 two = __hmax2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);

	return *(uint32_t *)&two;
}

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b, __half)
{
	__half2 two = __hmax2(*(__half2 *)&a, *(__half2 *)&b);

	return *(uint32_t *)&two;
}

static __device__ __forceinline__ void add_piece(
	struct cross_entropy_sum &p, const float (&x)[PIECE], float largest)
{
	float max = fmaxf(p.max, largest * cross_entropy_log2_e), sum = 0;

#pragma unroll
	for (int j = 0; j < PIECE; j++)
		sum += element_exp2(fmaf(x[j], cross_entropy_log2_e, -max));
	p.sum = p.sum * element_exp2(p.max - max) + sum;
	p.max = max;
}

template <typename T>
static __device__ __forceinline__ struct cross_entropy_sum sum_row(const T *row, int V)
{
	struct cross_entropy_sum p = {cross_entropy_lowest, 0};
	float x[PIECE], low, high;
	int i = (int)threadIdx.x * PIECE;

#pragma unroll 2
	for (; i <= V - PIECE; i += THREADS * PIECE) {
		struct piece_words w = *(const struct piece_words *)(row + i);

#pragma unroll
		for (int j = 0; j < PIECE / 2; j++)
			pair_unpack(x[2 * j], x[2 * j + 1], w.v[j], T());
		pair_unpack(low, high,
			larger(larger(w.v[0], w.v[1], T()), larger(w.v[2], w.v[3], T()), T()), T());
		add_piece(p, x, fmaxf(low, high));
	}
	if (i < V) {
		cross_entropy_piece(x, row + i, i, V);
		high = cross_entropy_lowest;
#pragma unroll
		for (int j = 0; j < PIECE; j++)
			high = fmaxf(high, x[j]);
		add_piece(p, x, high);
	}
	return p;
}

/* logit: the target's. The common factor, above 0, goes into the exponent. */
template <typename T>
static __device__ __forceinline__ void gradient_row(T *row, int target, float logit,
	struct cross_entropy_sum p, int V, int Vp, float scale)
{
	float shift = p.max + log2f(p.sum / scale);
	int i = (int)threadIdx.x * PIECE;

#pragma unroll 2
	for (; i <= V - PIECE; i += THREADS * PIECE) {
		struct piece_words w = *(const struct piece_words *)(row + i);

#pragma unroll
		for (int j = 0; j < PIECE / 2; j++) {
			float low, high;

			pair_unpack(low, high, w.v[j], T());
			low = element_exp2(fmaf(low, cross_entropy_log2_e, -shift));
			high = element_exp2(fmaf(high, cross_entropy_log2_e, -shift));
			w.v[j] = pair_pack(low, high, T());
		}
		*(struct piece_words *)(row + i) = w;
	}
#pragma unroll 1
	for (; i < Vp; i += THREADS * PIECE) {
#pragma unroll 1
		for (int j = i; j < i + PIECE; j++) {
			float x = j < V ? element_float(row[j]) : 0;

			x = element_exp2(fmaf(x, cross_entropy_log2_e, -shift));
			element_set(&row[j], j < V ? x : 0);
		}
	}
	if (target / PIECE % THREADS == (int)threadIdx.x) {
		float x = element_exp2(fmaf(logit, cross_entropy_log2_e, -shift));

		element_set(&row[target], x - scale);
	}
}

template <typename T>
static __device__ void work_on_rows(
	const struct cross_entropy<T> &a, char *memory, uint32_t barriers)
{
	__shared__ struct cross_entropy_sum shared[ROWS][REDUCE_WARP];
	float scale = (float)(a.times ? a.factor * *a.times : a.factor);
	int64_t r = blockIdx.x;

	for (int i = 0; r < a.R; i++, r += gridDim.x) {
		int place = i % ROWS;
		T *row = (T *)(memory + place * row_bytes(a.Vp));
		int64_t target = a.targets[r];
		bool fine = target >= 0 && target < a.V;
		struct cross_entropy_sum p;
		float logit;

		bulk_wait(there(barriers, place), i / ROWS & 1);
		logit = fine ? element_float(row[target]) : 0;
		p = sum_row(row, (int)a.V);
		p = cross_entropy_join_block<THREADS, 1>(p, shared[place]);
		if (threadIdx.x == 0 && fine)
			a.losses[r] = logf(p.sum) + (p.max / cross_entropy_log2_e - logit);
		else if (threadIdx.x == 0)
			cross_entropy_report(a.finding, target, r, a.V);
		if (fine)
			gradient_row(row, (int)target, logit, p, (int)a.V, (int)a.Vp, scale);
		bulk_fence();
		bulk_arrive(done(barriers, place));
	}
}

#endif

template <typename T>
static __global__ void __launch_bounds__(THREADS + REDUCE_WARP, 1)
	cross_entropy_by_bulk(const __grid_constant__ struct cross_entropy<T> a)
{
#if WGMMA_THERE
	extern __shared__ __align__(128) char memory[];
	uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
	uint32_t barriers = base + (uint32_t)(ROWS * row_bytes(a.Vp));

	if (threadIdx.x == 0) {
		for (int place = 0; place < ROWS; place++) {
			bulk_barrier_init(there(barriers, place), 1);
			bulk_barrier_init(done(barriers, place), THREADS);
		}
		bulk_fence();
	}
	__syncthreads();
	if (threadIdx.x < THREADS)
		work_on_rows<T>(a, memory, barriers);
	else if (threadIdx.x == THREADS)
		move_rows(a, base, barriers);
#endif
}

template <typename T> bool cross_entropy_bulk(struct k_stream *s, const struct cross_entropy<T> &a)
{
	const int capability = 90; /* compiled for this one */
	int64_t bytes = ROWS * row_bytes(a.Vp) + BARRIER_BYTES;
	unsigned int blocks = element_blocks(a.R, 1, s->ctx->multiprocessors);

	if (!ATTENTION_WGMMA_BUILT || s->ctx->capability != capability ||
		bytes > s->ctx->block_shared_bytes - 1024)
		return false;
	context_check(s->ctx, "k_cross_entropy",
		cudaFuncSetAttribute(cross_entropy_by_bulk<T>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	cross_entropy_by_bulk<T><<<blocks, THREADS + REDUCE_WARP, bytes, s->cuda>>>(a);
	return true;
}

template bool cross_entropy_bulk(struct k_stream *, const struct cross_entropy<__nv_bfloat16> &);
template bool cross_entropy_bulk(struct k_stream *, const struct cross_entropy<__half> &);
