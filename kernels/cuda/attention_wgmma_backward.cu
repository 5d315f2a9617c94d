#include <math.h>

#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/element.cuh"

/*
 * As in attention_mma_backward.cu, but one launch has both kinds of blocks. A kernel first writes
 * the values per query that both need (attention_wgmma_rows.cu). Blocks of both kinds run side by
 * side; they start, and fetch their operands, while that kernel still runs. A block is one group;
 * three per multiprocessor were faster than two or three groups per block, or two with the next
 * scores begun before the gradients are done.
 */
enum { STAGES = 3, BLOCKS = 3 };

#if WGMMA_THERE

typedef attention_ring<1, STAGES, 2, true> ring;

/* Position of a block and of its thread. */
struct place {
	int head, b, x, C; /* x: first column of q */
	int mine, tiles;   /* the block's 64 rows; all of T */
	int row, column;   /* of the thread: row in its tile, column in each 8 */
};

template <typename E>
static __device__ __forceinline__ struct place place_of(
	const struct attention<E> &a, int head, int mine)
{
	int NH = (int)a.NH, lane = threadIdx.x & 31;

	return {head, head / NH, head % NH * WGMMA_TILE, (int)(a.NH * a.HS), mine,
		(int)((a.T + WGMMA_TILE - 1) / WGMMA_TILE),
		(int)(threadIdx.x / REDUCE_WARP) * 16 + (lane >> 2), 2 * (lane & 3)};
}

/* Begins step i; f(i, stage) fetches the operands of step i. */
template <typename F>
static __device__ __forceinline__ void turn(const ring &r, int i, int count, F f)
{
	if (i > 0)
		attention_let_go(r.empty((i - 1) % STAGES));
	if (threadIdx.x == 0 && i > 0 && i - 1 + STAGES < count) {
		int stage = (i - 1) % STAGES;

		bulk_wait(r.empty(stage), (i - 1) / STAGES & 1);
		f(i - 1 + STAGES, stage);
	}
	__syncwarp();
}

/* Masks keys of the diagonal tile that follow the query. */
template <bool TURNED>
static __device__ __forceinline__ void mask_diagonal(float (&s)[8][4], const struct place &p)
{
#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int column = 8 * n + p.column + (i & 1), row = p.row + 8 * (i >> 1);

			if (TURNED ? row > column : column > row)
				s[n][i] = -INFINITY;
		}
	}
}

/* The step's factors of dp, as in philox.cuh. */
template <typename E>
static __device__ __forceinline__ void draw_turned(
	float (&mask)[4], const struct attention<E> &a, const struct place &p, int tile, int n)
{
	int64_t query = tile * WGMMA_TILE + 8 * n + p.column;
	int64_t at = (p.head * a.T + query) * a.T + p.mine * WGMMA_TILE + p.row;
	const int64_t all[4] = {at, at + a.T, at + 8, at + a.T + 8};

	philox_mask_turned(mask, a.drop, all, a.T % 4 == 0);
}

template <typename E>
static __device__ __forceinline__ void draw(
	float (&mask)[4], const struct attention<E> &a, const struct place &p, int tile, int n)
{
	int64_t query = p.mine * WGMMA_TILE + p.row;
	int64_t at = (p.head * a.T + query) * a.T + tile * WGMMA_TILE + 8 * n + p.column;

	philox_mask_tile(mask, a.drop, at, at + 8 * a.T, a.T % 4 == 0);
}

/* Loads two tiles for one barrier, at columns x0 of qkv and x1 of other. */
static __device__ __forceinline__ void fetch_pair(uint32_t to, uint32_t barrier,
	const struct attention_maps &m, int x0, const CUtensorMap *other, int x1, int tile, int b)
{
	bulk_load(to, &m.qkv, x0, tile * WGMMA_TILE, b, barrier);
	bulk_load(to + WGMMA_TILE_BYTES, other, x1, tile * WGMMA_TILE, b, barrier);
}

/* Scores (rows are keys) become probabilities. */
static __device__ __forceinline__ void probabilities_turned(
	float (&s)[8][4], const struct place &p, const float *lse, float scale)
{
#pragma unroll
	for (int n = 0; n < 8; n++) {
		float2 l = *(const float2 *)(lse + 8 * n + p.column);

#pragma unroll
		for (int j = 0; j < 4; j++)
			s[n][j] = element_exp2(fmaf(s[n][j], scale, j & 1 ? -l.y : -l.x));
	}
}

/* dp becomes ds; with dropout, s (the probabilities) becomes the factor of dout. */
template <typename E, bool DROP>
static __device__ __forceinline__ void score_gradients_turned(float (&dp)[8][4], float (&s)[8][4],
	const struct attention<E> &a, const struct place &p, const float *delta, int tile)
{
#pragma unroll
	for (int n = 0; n < 8; n++) {
		float2 d = *(const float2 *)(delta + 8 * n + p.column);
		float mask[4] = {1, 1, 1, 1};

		if constexpr (DROP)
			draw_turned(mask, a, p, tile, n);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			dp[n][j] = s[n][j] * (dp[n][j] * mask[j] - (j & 1 ? d.y : d.x));
			s[n][j] *= mask[j];
		}
	}
}

/* The same for scores whose rows are queries. */
template <typename E, bool DROP>
static __device__ __forceinline__ void score_gradients(float (&dp)[8][4], const float (&s)[8][4],
	const struct attention<E> &a, const struct place &p, const float (&delta)[2], int tile)
{
#pragma unroll
	for (int n = 0; n < 8; n++) {
		float mask[4] = {1, 1, 1, 1};

		if constexpr (DROP)
			draw(mask, a, p, tile, n);
#pragma unroll
		for (int j = 0; j < 4; j++)
			dp[n][j] = s[n][j] * (dp[n][j] * mask[j] - delta[j >> 1]);
	}
}

/* A step's operands for keys: a tile of queries, its dout, its rows (rows: of tile 0). */
static __device__ __forceinline__ void fetch_rows(
	const ring &r, const struct place &p, const float *rows, int i, int stage)
{
	bulk_load_bytes(r.rows(stage), rows + (int64_t)(p.mine + i) * ATTENTION_ROWS_FLOATS,
		ATTENTION_ROWS_BYTES, r.full(stage));
}

static __device__ __forceinline__ void fetch_queries(
	const ring &r, const struct attention_maps &m, const struct place &p, int i, int stage)
{
	bulk_expect(r.full(stage), ring::pair_bytes);
	fetch_pair(r.pair(stage), r.full(stage), m, p.x, &m.dout, p.x, p.mine + i, p.b);
}

/* A step's operands for queries: a tile of keys, its values. */
static __device__ __forceinline__ void fetch_keys(
	const ring &r, const struct attention_maps &m, const struct place &p, int i, int stage)
{
	bulk_expect(r.full(stage), 2 * WGMMA_TILE_BYTES);
	fetch_pair(r.pair(stage), r.full(stage), m, p.C + p.x, &m.qkv, 2 * p.C + p.x, i, p.b);
}

static __device__ __forceinline__ void begin_keys(ring &r, const struct attention_maps &m,
	const struct place &p, const float *rows, int count)
{
	attention_ring_init(r, 1, STAGES);
	if (threadIdx.x == 0) {
		bulk_expect(r.owned(), 2 * WGMMA_TILE_BYTES);
		fetch_pair(r.own(0), r.owned(), m, p.C + p.x, &m.qkv, 2 * p.C + p.x, p.mine, p.b);
		for (int j = 0; j < STAGES && j < count; j++)
			fetch_queries(r, m, p, j, j);
		attention_await();
		for (int j = 0; j < STAGES && j < count; j++)
			fetch_rows(r, p, rows, j, j);
	}
	__syncthreads();
	bulk_wait(r.owned(), 0);
}

static __device__ __forceinline__ void begin_queries(
	ring &r, const struct attention_maps &m, const struct place &p, int count)
{
	attention_ring_init(r, 1, STAGES);
	if (threadIdx.x == 0) {
		bulk_expect(r.owned(), 2 * WGMMA_TILE_BYTES);
		fetch_pair(r.own(0), r.owned(), m, p.x, &m.dout, p.x, p.mine, p.b);
		for (int j = 0; j < STAGES && j < count; j++)
			fetch_keys(r, m, p, j, j);
	}
	__syncthreads();
	attention_await();
	bulk_wait(r.owned(), 0);
}

/*
 * Column sums of a complete tile's rounded elements; to: for its first column. A warp takes 16
 * columns; every row of the product of ones and the tile holds the sums.
 */
template <typename E>
static __device__ __forceinline__ void put_sums(float *to, uint32_t tile, E type)
{
	int lane = threadIdx.x & 31, n = (int)(threadIdx.x / REDUCE_WARP) * 16;
	const uint32_t one = pair_pack(1, 1, type), ones[4] = {one, one, one, one};
	float left[4] = {}, right[4] = {};

#pragma unroll
	for (int k = 0; k < 4; k++) {
		uint32_t b[4];

		mma_load_b_turned(b, tile, n, k);
		mma_multiply(left, ones, b[0], b[1], type);
		mma_multiply(right, ones, b[2], b[3], type);
	}
	if (lane < 4) {
		*(float2 *)(to + n + 2 * lane) = {left[0], left[1]};
		*(float2 *)(to + n + 8 + 2 * lane) = {right[0], right[1]};
	}
}

/* Where the sums of the block's q tile go; k's and v's: C and 2 C behind. */
template <typename E>
static __device__ __forceinline__ float *sums_of(
	const struct attention<E> &a, const struct place &p)
{
	return a.sums + ((int64_t)p.b * p.tiles + p.mine) * 3 * p.C + p.x;
}

/* A step of the products of 64 keys; f: as in turn. */
template <typename E, bool DROP, typename F>
static __device__ __forceinline__ void keys_step(float (&dk)[8][4], float (&dv)[8][4],
	const struct attention<E> &a, const ring &r, const struct place &p, int i, int count, F f)
{
	extern __shared__ char attention_memory[];
	int stage = i % STAGES;
	uint64_t q_tile = wgmma_tile(r.pair(stage));
	uint64_t dout_tile = wgmma_tile(r.pair(stage) + WGMMA_TILE_BYTES);
	const float *lse = (const float *)(attention_memory + r.rows_offset(stage));
	uint32_t fragments[4][4], ds_fragments[4][4];
	float s[8][4], dp[8][4];

	bulk_wait(r.full(stage), i / STAGES & 1);
	wgmma_fence();
	wgmma_times_rows(s, wgmma_tile(r.own(0)), q_tile, E());
	wgmma_end();
	wgmma_times_rows(dp, wgmma_tile(r.own(1)), dout_tile, E());
	wgmma_end();
	wgmma_wait<1>(s);
	turn(r, i, count, f);
	if (i == 0)
		mask_diagonal<true>(s, p);
	probabilities_turned(s, p, lse, a.scale * attention_log2_e);
	if constexpr (!DROP) {
		attention_pack(fragments, s, E());
		wgmma_fence();
		wgmma_times_tile(dv, fragments, dout_tile, E());
		wgmma_end();
		wgmma_wait<1>(dp);
	} else {
		wgmma_wait<0>(dp);
	}
	score_gradients_turned<E, DROP>(dp, s, a, p, lse + WGMMA_TILE, p.mine + i);
	if constexpr (DROP) {
		attention_pack(fragments, s, E());
		wgmma_fence();
		wgmma_times_tile(dv, fragments, dout_tile, E());
	}
	attention_pack(ds_fragments, dp, E());
	wgmma_fence();
	wgmma_times_tile(dk, ds_fragments, q_tile, E());
	wgmma_end();
	wgmma_wait<0>(dk);
	wgmma_ended(dv);
}

/* dk and dv of 64 keys. Scores are transposed: rows are keys, columns queries. */
template <typename E, bool DROP>
static __device__ __forceinline__ void own_keys(const struct attention<E> &a,
	const struct attention_maps &m, const float *all_rows, const struct place &p)
{
	const float *rows = all_rows + (int64_t)p.head * p.tiles * ATTENTION_ROWS_FLOATS;
	float dk[8][4], dv[8][4];
	int count = p.tiles - p.mine, i = 0, y = p.mine * WGMMA_TILE;
	ring r;

	begin_keys(r, m, p, rows, count);
	attention_zero(dk);
	attention_zero(dv);
	do {
		keys_step<E, DROP>(dk, dv, a, r, p, i, count, [&](int i, int stage) {
			fetch_queries(r, m, p, i, stage);
			fetch_rows(r, p, rows, i, stage);
		});
	} while (++i < count);
	__syncthreads();
	attention_put(r.own(0), dk, a.scale, a.scale, E());
	attention_put(r.own(1), dv, 1, 1, E());
	bulk_fence();
	__syncthreads();
	if (threadIdx.x == 0) {
		bulk_store(&m.to, p.C + p.x, y, p.b, r.own(0));
		bulk_store(&m.to, 2 * p.C + p.x, y, p.b, r.own(1));
	}
	if (a.sums) {
		put_sums(sums_of(a, p) + p.C, r.own(0), E());
		put_sums(sums_of(a, p) + 2 * p.C, r.own(1), E());
	}
	if (threadIdx.x == 0)
		bulk_store_wait();
}

/* A step of the product of 64 queries; lse, delta: of the thread's rows. */
template <typename E, bool DROP, typename F>
static __device__ __forceinline__ void queries_step(float (&dq)[8][4], const struct attention<E> &a,
	const ring &r, const struct place &p, const float (&lse)[2], const float (&delta)[2], int i,
	int count, F f)
{
	const float scale = a.scale * attention_log2_e;
	int stage = i % STAGES;
	uint64_t k_tile = wgmma_tile(r.pair(stage));
	uint64_t v_tile = wgmma_tile(r.pair(stage) + WGMMA_TILE_BYTES);
	uint32_t fragments[4][4];
	float s[8][4], dp[8][4];

	bulk_wait(r.full(stage), i / STAGES & 1);
	wgmma_fence();
	wgmma_times_rows(s, wgmma_tile(r.own(0)), k_tile, E());
	wgmma_end();
	wgmma_times_rows(dp, wgmma_tile(r.own(1)), v_tile, E());
	wgmma_end();
	wgmma_wait<1>(s);
	turn(r, i, count, f);
	if (i == p.mine)
		mask_diagonal<false>(s, p);
#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int j = 0; j < 4; j++)
			s[n][j] = element_exp2(fmaf(s[n][j], scale, -lse[j >> 1]));
	}
	wgmma_wait<0>(dp);
	score_gradients<E, DROP>(dp, s, a, p, delta, i);
	attention_pack(fragments, dp, E());
	wgmma_fence();
	wgmma_times_tile(dq, fragments, k_tile, E());
	wgmma_end();
}

/* dq of 64 queries. */
template <typename E, bool DROP>
static __device__ __forceinline__ void own_queries(const struct attention<E> &a,
	const struct attention_maps &m, const float *all_rows, const struct place &p)
{
	const float *rows =
		all_rows + ((int64_t)p.head * p.tiles + p.mine) * ATTENTION_ROWS_FLOATS + p.row;
	float dq[8][4];
	int count = p.mine + 1, i = 0;
	ring r;

	begin_queries(r, m, p, count);
	const float lse[2] = {rows[0], rows[8]};
	const float delta[2] = {rows[WGMMA_TILE], rows[WGMMA_TILE + 8]};
	attention_zero(dq);
	do {
		queries_step<E, DROP>(dq, a, r, p, lse, delta, i, count,
			[&](int i, int stage) { fetch_keys(r, m, p, i, stage); });
	} while (++i < count);
	wgmma_wait<0>(dq);
	__syncthreads();
	attention_put(r.own(0), dq, a.scale, a.scale, E());
	bulk_fence();
	__syncthreads();
	if (threadIdx.x == 0)
		bulk_store(&m.to, p.x, p.mine * WGMMA_TILE, p.b, r.own(0));
	if (a.sums)
		put_sums(sums_of(a, p), r.own(0), E());
	if (threadIdx.x == 0)
		bulk_store_wait();
}

#endif

/* A head's blocks with most work first; the two kinds alternate. */
template <typename E, bool DROP>
static __global__ void __launch_bounds__(WGMMA_THREADS, BLOCKS)
	attention_backward_by_groups(const __grid_constant__ struct attention<E> a,
		const __grid_constant__ struct attention_maps maps, const float *rows,
		struct attention_order order)
{
#if WGMMA_THERE
	const struct attention_work work = attention_work_of(order);
	int at = work.rank / 2;

	if (work.rank % 2 == 0)
		own_keys<E, DROP>(a, maps, rows, place_of(a, work.head, at));
	else
		own_queries<E, DROP>(
			a, maps, rows, place_of(a, work.head, order.blocks / 2 - 1 - at));
#endif
}

template <typename E, bool DROP>
static void launch(struct k_stream *s, const struct attention<E> &a,
	const struct attention_maps &maps, const float *rows)
{
	const int bytes = attention_ring<1, STAGES, 2, true>::bytes;
	int64_t heads = a.B * a.NH, blocks = 2 * ((a.T + WGMMA_TILE - 1) / WGMMA_TILE);
	struct attention_order order = attention_order_of(s->ctx, heads, blocks, BLOCKS);
	auto *kernel = attention_backward_by_groups<E, DROP>;

	if (context_check(s->ctx, "k_attention_backward",
		    cudaFuncSetAttribute(
			    kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)))
		context_check(s->ctx, "k_attention_backward",
			attention_launch_early(s, kernel, heads * blocks, WGMMA_THREADS, bytes, a,
				maps, rows, order));
}

template <typename E>
void attention_wgmma_backward(struct k_stream *s, const struct attention<E> &a, const E *out)
{
	int64_t C = a.NH * a.HS;
	struct attention_maps maps;
	float *rows = (float *)stream_scratch(s, attention_wgmma_rows_bytes(a.B, a.T, a.NH));

	if (!rows || !bulk_map_make(s->ctx, &maps.qkv, a.qkv, a.B, a.T, 3 * C, WGMMA_TILE) ||
		!bulk_map_make(s->ctx, &maps.dout, a.dout, a.B, a.T, C, WGMMA_TILE) ||
		!bulk_map_make(s->ctx, &maps.to, a.dqkv, a.B, a.T, 3 * C, WGMMA_TILE))
		return;
	attention_wgmma_rows(s, rows, a, out);
	if (a.drop.on)
		launch<E, true>(s, a, maps, rows);
	else
		launch<E, false>(s, a, maps, rows);
}

template void attention_wgmma_backward(
	struct k_stream *s, const struct attention<__nv_bfloat16> &a, const __nv_bfloat16 *out);
template void attention_wgmma_backward(
	struct k_stream *s, const struct attention<__half> &a, const __half *out);
