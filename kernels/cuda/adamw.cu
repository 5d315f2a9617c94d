#include "kernels/cuda/element.cuh"
#include "kernels/cuda/stream.cuh"

/*
 * One launch for any number of ranges. Only the device knows the ranges, so every block reads
 * THREADS of them at a time, numbers their chunks, and takes every gridDim.x-th chunk.
 */
enum { THREADS = 256, WIDE = 4, CHUNK_ELEMS = 2 * WIDE * THREADS, DECAYED_KEPT = 256 };

struct scalars {
	float grad_mul, beta1, beta2, lr, eps, weight_decay;
	float correct1, correct2; /* 1/(1 - beta^t) */
};

static __device__ struct scalars make_scalars(
	const struct k_adamw &a, const struct k_step_state *state)
{
	struct scalars x;

	x.grad_mul = (float)state->grad_mul;
	x.beta1 = (float)a.beta1;
	x.beta2 = (float)a.beta2;
	x.lr = (float)state->lr;
	x.eps = (float)a.eps;
	x.weight_decay = (float)a.weight_decay;
	x.correct1 = (float)(1 / (1 - pow(a.beta1, (double)state->t)));
	x.correct2 = (float)(1 / (1 - pow(a.beta2, (double)state->t)));
	return x;
}

/* The parts with weight decay, where a lookup is fast if they are few. */
struct decayed {
	const struct k_range *part;
	int64_t n;
};

/* The first part that ends beyond element at. */
static __device__ int64_t find_decayed(const struct decayed &d, int64_t at)
{
	int64_t low = 0, high = d.n;

	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (d.part[middle].first + d.part[middle].n <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Every rounding is explicit: no fused multiply-add, as in the CPU library. */
static __device__ __forceinline__ void update(
	float &p, float &m, float &v, float grad, float decay, const struct scalars &x)
{
	float g = __fmul_rn(grad, x.grad_mul), by;

	m = __fadd_rn(__fmul_rn(x.beta1, m), __fmul_rn(__fsub_rn(1, x.beta1), g));
	v = __fadd_rn(__fmul_rn(x.beta2, v), __fmul_rn(__fsub_rn(1, x.beta2), __fmul_rn(g, g)));
	by = __fdiv_rn(
		__fmul_rn(m, x.correct1), __fadd_rn(__fsqrt_rn(__fmul_rn(v, x.correct2)), x.eps));
	p = __fsub_rn(p, __fmul_rn(x.lr, __fadd_rn(by, __fmul_rn(decay, p))));
}

struct chunk {
	int64_t arena, compact; /* of the first element */
	int64_t n;
};

/* MIXED: only some elements decay; else decay, which may be 0, applies to all. */
template <typename T, int N, bool MIXED>
static __device__ void update_chunk(const struct k_adamw &a, const struct decayed &parts,
	const struct scalars &x, const struct chunk &c, float decay)
{
	float *master = a.master + (a.master_compact ? c.compact : c.arena);
	T *params = (T *)a.params + c.arena;
	bool separate = (void *)params != (void *)master;

#pragma unroll 1
	for (int i = (int)threadIdx.x * N; i < (int)c.n; i += THREADS * N) {
		float p[N], m[N], v[N], g[N];

		element_load(p, master + i);
		element_load(m, a.m + c.compact + i);
		element_load(v, a.v + c.compact + i);
		element_load(g, (const T *)a.grads + c.arena + i);
#pragma unroll
		for (int j = 0; j < N; j++) {
			if (MIXED) {
				int64_t at = c.arena + i + j, k = find_decayed(parts, at);
				bool decayed = k < parts.n && parts.part[k].first <= at;

				decay = decayed ? x.weight_decay : 0;
			}
			update(p[j], m[j], v[j], g[j], decay, x);
		}
		element_store(master + i, p);
		element_store(a.m + c.compact + i, m);
		element_store(a.v + c.compact + i, v);
		if (separate)
			element_store(params + i, p);
	}
}

template <typename T, int N>
static __device__ void update_any(const struct k_adamw &a, const struct decayed &parts,
	const struct scalars &x, const struct chunk &c)
{
	int64_t d = find_decayed(parts, c.arena);
	int64_t from = d < parts.n ? parts.part[d].first : INT64_MAX;
	int64_t to = d < parts.n ? from + parts.part[d].n : INT64_MAX;
	bool all = from <= c.arena && c.arena + c.n <= to, none = c.arena + c.n <= from;

	if (all || none)
		update_chunk<T, N, false>(a, parts, x, c, all ? x.weight_decay : 0);
	else
		update_chunk<T, N, true>(a, parts, x, c, 0);
}

struct numbering {
	int64_t chunks[THREADS], elems[THREADS]; /* up to and including this range */
	int64_t first[THREADS];
};

/* All threads: numbers ranges first .. first+THREADS-1. */
static __device__ void number(struct numbering *s, const struct k_adamw &a, int64_t first)
{
	int i = threadIdx.x;
	bool there = first + i < a.n_ranges;
	int64_t n = there ? a.ranges[first + i].n : 0;

	__syncthreads();
	s->first[i] = there ? a.ranges[first + i].first : 0;
	s->chunks[i] = (n + CHUNK_ELEMS - 1) / CHUNK_ELEMS;
	s->elems[i] = n;
	__syncthreads();
	for (int step = 1; step < THREADS; step *= 2) {
		int64_t chunks = i >= step ? s->chunks[i - step] : 0;
		int64_t elems = i >= step ? s->elems[i - step] : 0;

		__syncthreads();
		s->chunks[i] += chunks;
		s->elems[i] += elems;
		__syncthreads();
	}
}

/* Chunk number at of those in s; before: elements in earlier ranges. */
static __device__ struct chunk find_chunk(const struct numbering *s, int64_t at, int64_t before)
{
	int low = 0, high = THREADS - 1;
	struct chunk c;
	int64_t skip, n;

	while (low < high) {
		int middle = (low + high) / 2;

		if (s->chunks[middle] <= at)
			low = middle + 1;
		else
			high = middle;
	}
	skip = (at - (low > 0 ? s->chunks[low - 1] : 0)) * CHUNK_ELEMS;
	n = s->elems[low] - (low > 0 ? s->elems[low - 1] : 0) - skip;
	c.arena = s->first[low] + skip;
	c.compact = before + (low > 0 ? s->elems[low - 1] : 0) + skip;
	c.n = n < CHUNK_ELEMS ? n : CHUNK_ELEMS;
	return c;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
	adamw(const __grid_constant__ struct k_adamw a, const struct k_step_state *state)
{
	__shared__ struct numbering s;
	__shared__ struct k_range kept[DECAYED_KEPT];
	struct decayed parts = {a.decayed, a.n_decayed};
	__shared__ struct scalars shared;
	struct scalars x;
	int64_t before = 0, next = blockIdx.x;

	if (state->skip)
		return;
	if (threadIdx.x == 0) /* powers in double are slow */
		shared = make_scalars(a, state);
	if (parts.n <= DECAYED_KEPT) {
		for (int64_t i = threadIdx.x; i < parts.n; i += THREADS)
			kept[i] = a.decayed[i];
		parts.part = kept;
	}
	__syncthreads();
	x = shared;
	for (int64_t first = 0; first < a.n_ranges; first += THREADS) {
		int64_t chunks;

		number(&s, a, first);
		chunks = s.chunks[THREADS - 1];
		for (; next < chunks; next += gridDim.x) {
			struct chunk c = find_chunk(&s, next, before);
			/* the arenas begin at multiples of 256 bytes */
			bool wide = c.arena % WIDE == 0 && c.compact % WIDE == 0 && c.n % WIDE == 0;

			if (wide)
				update_any<T, WIDE>(a, parts, x, c);
			else
				update_any<T, 1>(a, parts, x, c);
		}
		next -= chunks;
		before += s.elems[THREADS - 1];
	}
}

void k_adamw_step(struct k_stream *s, const struct k_adamw *args, const struct k_step_state *state)
{
	struct k_adamw a = *args;

	if (a.n_ranges <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		adamw<decltype(zero)>
			<<<(unsigned int)(8 * s->ctx->multiprocessors), THREADS, 0, s->cuda>>>(
				a, state);
	});
	stream_check(s, "k_adamw_step");
}
