#include "kernels/cuda/cross_entropy.cuh"

/*
 * A block takes a row. If shared memory of a multiprocessor holds two rows, the block keeps its row
 * there between the two passes; else the second pass reads it from L2.
 */
enum { THREADS = 512, ROWS_KEPT = 2, SHARED_BESIDE = 2048 };

template <typename T, int N, bool KEEP>
static __global__ void __launch_bounds__(THREADS)
	cross_entropy_rows(const __grid_constant__ struct cross_entropy<T> a)
{
	extern __shared__ __align__(16) char memory[];
	__shared__ struct cross_entropy_sum shared[REDUCE_WARP];
	int64_t r = blockIdx.x, target = a.targets[r];
	T *row = a.logits + r * a.Vp, *kept = (T *)memory;
	struct cross_entropy_sum p;
	float logit, scale = (float)(a.times ? a.factor * *a.times : a.factor);

	if (target < 0 || target >= a.V) {
		if (threadIdx.x == 0)
			cross_entropy_report(a.finding, target, r, a.V);
		return;
	}
	logit = element_float(row[target]);
	p = cross_entropy_row<T, N, THREADS, KEEP>(kept, row, a.V);
	p = cross_entropy_join_block<THREADS, 0>(p, shared);
	if (threadIdx.x == 0)
		a.losses[r] = logf(p.sum) + (p.max / cross_entropy_log2_e - logit);
	if (a.factor != 0)
		cross_entropy_gradient<T, N, THREADS>(
			row, KEEP ? kept : row, target, p, a.V, a.Vp, scale);
}

template <typename T, int N, bool KEEP>
static void launch(struct k_stream *s, const struct cross_entropy<T> &a)
{
	size_t bytes = KEEP ? (size_t)a.Vp * sizeof(T) : 0;

	if (KEEP)
		context_check(s->ctx, "k_cross_entropy",
			cudaFuncSetAttribute(cross_entropy_rows<T, N, KEEP>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	cross_entropy_rows<T, N, KEEP><<<(unsigned int)a.R, THREADS, bytes, s->cuda>>>(a);
}

template <typename T> static void launch_any(struct k_stream *s, const struct cross_entropy<T> &a)
{
	const int N = element_wide<T>::n;
	int64_t row_bytes = a.Vp * (int64_t)sizeof(T) + SHARED_BESIDE;
	bool wide = a.Vp % N == 0 && element_aligned(a.logits, 16);

	if constexpr (sizeof(T) == 2) {
		if (wide && a.factor > 0 && cross_entropy_bulk(s, a))
			return;
	}
	if (wide && a.factor != 0 && ROWS_KEPT * row_bytes <= s->ctx->shared_bytes)
		launch<T, N, true>(s, a);
	else if (wide)
		launch<T, N, false>(s, a);
	else
		launch<T, 1, false>(s, a);
}

void k_cross_entropy(struct k_stream *s, k_real *losses, void *logits, const int32_t *targets,
	int64_t R, int64_t V, int64_t Vp, double scale, const double *times)
{
	if (R <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) T;
		struct cross_entropy<T> a = {
			losses, (T *)logits, targets, R, V, Vp, scale, times, s->ctx->finding
		};

		launch_any(s, a);
	});
	stream_check(s, "k_cross_entropy");
}
