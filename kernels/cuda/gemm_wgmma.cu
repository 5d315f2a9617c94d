#include "kernels/cuda/gemm_wgmma.cuh"

#include "kernels/cuda/bulk_map.cuh"
#include "kernels/cuda/gemm_wgmma_finish.cuh"
#include "kernels/cuda/wgmma_wide.cuh"

#if WGMMA_THERE

/* All steps of a result; the last is still under way and keeps its place. */
template <typename E, bool TURNED>
static __device__ __forceinline__ void multiply(
	sums &d, const struct ring &r, struct place at, struct position &step, int k)
{
	bool one_before = false;

	do {
		uint32_t from = r.stage(step.stage);
		uint64_t columns = wgmma_tiles(from + UP * WGMMA_TILE_BYTES);

		bulk_wait(r.full(step.stage), step.round & 1);
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < 4; i++) {
#pragma unroll
			for (int u = 0; u < UP; u++)
				wgmma_wide<TURNED>(d[u],
					wgmma_columns(wgmma_tiles(from + u * WGMMA_TILE_BYTES), i),
					TURNED ? wgmma_rows(columns, i) : wgmma_columns(columns, i),
					E());
		}
		wgmma_end();
		wgmma_wide_wait<1>();
		if (one_before)
			let_go(at, r.empty(step.stage ? step.stage - 1 : STAGES - 1));
		step.next();
		one_before = true;
		k -= WGMMA_TILE;
	} while (k > 0);
}

template <typename E, bool TURNED, bool SLOPE>
static __device__ __forceinline__ void work(const struct product_maps &p, const struct ring &r)
{
	int warp = warp_of_block(), group = warp / GROUP_WARPS, round = 0;
	int steps = (p.k + WGMMA_TILE - 1) / WGMMA_TILE;
	int clusters = (int)gridDim.x / CLUSTER, results = GROUPS * clusters;
	int t = (int)blockIdx.x / CLUSTER + group * clusters;
	bool first = (threadIdx.x & 31) == 0;
	struct place at = place_of_block();
	struct position step = {0, 0};
	sums d;

	for (int i = 0; SLOPE && first && i < OWN_TILES; i++)
		ask_for_aux(p, r, warp, corner_or_none(p, at, t), i, i);
	__syncwarp();
	step.go(group * steps);
	for (; t < p.all; t += results, round++) {
		struct corner c = corner_of(p, at, t);

		begin(d, (const E *)p.bias, c.column, p.m);
		bulk_wait(r.turn(group), (round + group + 1) & 1);
		multiply<E, TURNED>(d, r, at, step, p.k);
		__syncwarp();
		if (first)
			bulk_arrive(r.turn(1 - group));
		wgmma_wide_wait<0>();
#pragma unroll
		for (int u = 0; u < UP; u++)
			wgmma_wide_ended(d[u]);
		let_go(at, r.empty(step.stage ? step.stage - 1 : STAGES - 1));
		step.go(steps);
		if (SLOPE)
			finish_slope<E>(p, r, warp, c, corner_or_none(p, at, t + results), round,
				d);
		else
			finish_gelu<E>(p, r, warp, c, d);
	}
	if (first)
		bulk_store_left<0>();
	__syncwarp();
}

#endif

template <typename E, bool TURNED, bool SLOPE>
static __global__ void __launch_bounds__(THREADS, 1)
	product_by_groups(const __grid_constant__ struct product_maps p)
{
#if WGMMA_THERE
	struct ring r = ring_init();

	/* a thread begins with 168 registers */
	if (threadIdx.x < GROUPS * WGMMA_THREADS) {
		asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
		work<E, TURNED, SLOPE>(p, r);
	} else {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
		if (threadIdx.x == GROUPS * WGMMA_THREADS)
			bring<TURNED>(p, r);
		__syncwarp();
	}
	/* other blocks of the cluster write to this memory and barriers */
	bulk_cluster_sync();
#endif
}

/* ---- host ---- */

static bool is_slope(int epilogue)
{
	return epilogue == GEMM_DGELU || epilogue == GEMM_DGELU_SUMS;
}

bool gemm_wgmma_there(const struct k_context *ctx)
{
	const int capability = 90; /* compiled for this one */

	return ATTENTION_WGMMA_BUILT && ctx->capability == capability &&
		SHARED_BYTES <= ctx->block_shared_bytes;
}

bool gemm_wgmma_kind(const struct k_product *product)
{
	return product->epilogue == GEMM_GELU || product->epilogue == GEMM_GELU_BIAS ||
		is_slope(product->epilogue);
}

bool gemm_wgmma_alone(const struct k_context *ctx, const struct k_product *product)
{
	const int64_t least = 1 << 21; /* below, cuBLASLt may be faster */

	return ctx->own_products ||
		(gemm_wgmma_there(ctx) && (product->dtype == K_BF16 || product->dtype == K_FP16) &&
			product->m % 8 == 0 && product->k % 8 == 0 && product->align[4] >= 16 &&
			product->m * product->n >= least);
}

/* The copy engine takes rows that begin at multiples of 16 bytes. */
bool gemm_wgmma_fits(const struct k_context *ctx, const struct k_product *product)
{
	const int64_t most = INT32_MAX / 2;
	const uint32_t *align = product->align;

	if (!gemm_wgmma_there(ctx) || !gemm_wgmma_kind(product) ||
		(product->dtype != K_BF16 && product->dtype != K_FP16))
		return false;
	/* k is a's columns in one, a's rows in the other */
	if (product->transpose_a == is_slope(product->epilogue) || product->transpose_b ||
		product->add)
		return false;
	return product->m % 8 == 0 && product->k % 8 == 0 && align[0] >= 16 && align[1] >= 16 &&
		align[2] >= 16 && align[3] >= 4 && align[4] >= 16 && product->m < most &&
		product->n < most && product->k < most &&
		product->m * product->n < most * WGMMA_TILE;
}

static bool make_maps(struct k_context *ctx, struct product_maps *p, const struct gemm_call *c)
{
	bool turned = !c->transpose_a;
	int part = turned ? (int)PART_K : (int)PART_COLUMNS;

	return bulk_map_make(ctx, &p->rows, c->b, 1, c->n, c->k, PART_ROWS) &&
		bulk_map_make(ctx, &p->columns, c->a, 1, turned ? c->k : c->m, turned ? c->m : c->k,
			part) &&
		bulk_map_make(ctx, &p->d, c->d, 1, c->n, c->m, WARP_ROWS) &&
		bulk_map_make(ctx, &p->aux, c->aux, 1, c->n, c->m, WARP_ROWS);
}

static int64_t parts(int64_t n, int64_t of)
{
	return (n + of - 1) / of;
}

int64_t gemm_wgmma_sum_parts(int64_t n)
{
	return GROUP_WARPS * parts(n, UP * WGMMA_TILE);
}

int64_t gemm_wgmma_sum_parts_max(const struct k_context *ctx, int64_t n)
{
	return gemm_wgmma_there(ctx) ? gemm_wgmma_sum_parts(n) : 0;
}

template <typename E, bool TURNED, bool SLOPE>
static cudaError_t launch(const struct product_maps *p, cudaStream_t stream)
{
	auto *kernel = product_by_groups<E, TURNED, SLOPE>;
	cudaLaunchAttribute cluster = {};
	cudaLaunchConfig_t config = {};
	int at_once = 0;
	cudaError_t rc;

	cluster.id = cudaLaunchAttributeClusterDimension;
	cluster.val.clusterDim.x = CLUSTER;
	cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
	config.gridDim = dim3((unsigned int)(p->all * CLUSTER));
	config.blockDim = dim3(THREADS);
	config.dynamicSmemBytes = SHARED_BYTES;
	config.stream = stream;
	config.attrs = &cluster;
	config.numAttrs = 1;
	rc = cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
	if (rc == cudaSuccess)
		rc = cudaOccupancyMaxActiveClusters(&at_once, kernel, &config);
	if (rc != cudaSuccess)
		return rc;
	if (at_once < p->all)
		config.gridDim.x = (unsigned int)((at_once > 0 ? at_once : 1) * CLUSTER);
	return cudaLaunchKernelEx(&config, kernel, *p);
}

template <typename E>
static cudaError_t launch_for(const struct product_maps *p, bool slope, cudaStream_t stream)
{
	return slope ? launch<E, true, true>(p, stream) : launch<E, false, false>(p, stream);
}

const char *gemm_wgmma_launch(struct k_context *ctx, const struct gemm_call *c, cudaStream_t stream)
{
	int64_t up = parts(c->n, CLUSTER_UP * UP * WGMMA_TILE);
	bool slope = is_slope(c->epilogue);
	struct product_maps p;
	cudaError_t rc;

	if (!make_maps(ctx, &p, c))
		return "no map of its tensors";
	p.bias = c->bias;
	p.sums = c->sums;
	p.m = (int)c->m;
	p.k = (int)c->k;
	p.parts = (int)gemm_wgmma_sum_parts(c->n);
	p.across = (int)parts(c->m, CLUSTER_ACROSS * ACROSS * WGMMA_TILE);
	p.all = (int)(up * p.across);
	rc = ctx->dtype == K_BF16 ? launch_for<__nv_bfloat16>(&p, slope, stream)
				  : launch_for<__half>(&p, slope, stream);
	return rc == cudaSuccess ? NULL : cudaGetErrorString(rc);
}
