#include "kernels/cuda/gemm_trial.cuh"

#include <math.h>
#include <string.h>

#include "kernels/cuda/gemm_trial_memory.cuh"
#include "kernels/cuda/stream.cuh"

enum { ROUNDS = 4 };

struct trial {
	struct trial_memory memory;
	int times; /* products per round */
	cudaEvent_t from, to;
};

/* Numbers in [1/2, 1) of either sign. On zeros the matrix units are faster than on real data. */
static __global__ void gemm_trial_fill(uint32_t *words, int64_t n, uint32_t fixed, uint32_t random)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		uint32_t x = (uint32_t)i * 0x9e3779b9u;

		x = (x ^ x >> 15) * 0x85ebca6bu;
		words[i] = fixed | ((x ^ x >> 13) & random);
	}
}

static void fill(struct k_context *ctx, int dtype, void *memory, size_t bytes)
{
	uint32_t fixed = 0x3f000000, random = 0x807fffff;

	if (dtype == K_BF16) {
		fixed = 0x3f003f00;
		random = 0x807f807f;
	} else if (dtype == K_FP16) {
		fixed = 0x38003800;
		random = 0x83ff83ff;
	}
	gemm_trial_fill<<<1024, 256, 0, ctx->internal>>>(
		(uint32_t *)memory, (int64_t)bytes / 4, fixed, random);
}

static void trial_finish(struct trial *t)
{
	gemm_trial_memory_give_back(&t->memory);
	if (t->from)
		cudaEventDestroy(t->from);
	if (t->to)
		cudaEventDestroy(t->to);
	cudaGetLastError(); /* a trial may lack memory */
}

/* With as many copies as needed, or one; false: not enough memory. */
static bool trial_init(struct k_context *ctx, const struct gemm_call *c, struct trial *t)
{
	struct trial_memory *m = &t->memory;

	memset(t, 0, sizeof *t);
	if (!gemm_trial_memory_take(ctx, c, true, m) && !gemm_trial_memory_take(ctx, c, false, m))
		return false;
	for (int i = 0; i < TRIAL_PARTS; i++) {
		if (m->part[i] && i != TRIAL_WORKSPACE)
			fill(ctx, ctx->dtype, m->part[i], m->bytes[i]);
	}
	return cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

/* Its address in the i-th product of a round. */
static char *trial_at(const struct trial *t, enum trial_part what, int i)
{
	const struct trial_memory *m = &t->memory;

	return (char *)m->part[what] + (size_t)(i % m->copies) * m->step[what];
}

/* A round's products in sequence as a graph, which is how a step runs them. */
static cudaGraphExec_t capture_trial(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_call *c, const struct trial *t, const struct gemm_candidate *by)
{
	char *workspace = (char *)t->memory.part[TRIAL_WORKSPACE];
	struct gemm_call call = *c;
	size_t step = by->workspace_bytes <= GRAPH_COUNTER_BYTES ? GRAPH_COUNTER_BYTES : 0;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph = NULL;
	bool good = true;

	if (cudaStreamBeginCapture(ctx->internal, cudaStreamCaptureModeRelaxed) != cudaSuccess)
		return NULL;
	cudaMemsetAsync(workspace, 0, TRIAL_COUNTERS_BYTES, ctx->internal);
	call.b = t->memory.part[TRIAL_B];
	call.bias = c->bias ? t->memory.part[TRIAL_BIAS] : NULL;
	call.sums = (float *)t->memory.part[TRIAL_SUMS];
	for (int i = 0; i < t->times && good; i++) {
		call.a = trial_at(t, TRIAL_A, i);
		call.d = trial_at(t, TRIAL_D, i);
		call.aux = c->aux ? trial_at(t, TRIAL_AUX, i) : NULL;
		good = !gemm_plan_multiply(
			ctx, p, by, &call, workspace + (size_t)i * step, ctx->internal);
	}
	if (cudaStreamEndCapture(ctx->internal, &graph) != cudaSuccess)
		graph = NULL;
	if (!good || !graph ||
		(step && !graph_drop_zeroing(graph, workspace, TRIAL_COUNTERS_BYTES)) ||
		cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
		exec = NULL;
	if (graph)
		cudaGraphDestroy(graph);
	return exec;
}

static cudaError_t ended(void *event)
{
	return cudaEventQuery((cudaEvent_t)event);
}

/* Seconds per product; infinite when it failed. */
static double run_trial(struct k_context *ctx, const struct trial *t, cudaGraphExec_t exec)
{
	float ms = 0;

	cudaEventRecord(t->from, ctx->internal);
	if (cudaGraphLaunch(exec, ctx->internal) != cudaSuccess)
		return INFINITY;
	cudaEventRecord(t->to, ctx->internal);
	if (!stream_rest(ctx, "trial of a product", ended, t->to) ||
		cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
		return INFINITY;
	return (double)ms * 1e-3 / t->times;
}

/* So many that small and large products take about as long and use all copies. */
static int trial_times(const struct trial *t, double guess)
{
	const double round_seconds = 2e-4;
	int times = guess < round_seconds ? 1 + (int)(round_seconds / guess) : 1;

	times = times > t->memory.copies ? times : t->memory.copies;
	return times > TRIAL_TIMES_MAX ? TRIAL_TIMES_MAX : times;
}

/*
 * The best of some rounds. Candidates alternate, so changes of clocks and power affect all of them
 * alike.
 */
static void time_candidates(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_call *call, const struct trial *t, const struct gemm_candidate *found,
	int n, double seconds[GEMM_CANDIDATES])
{
	cudaGraphExec_t exec[GEMM_CANDIDATES];

	for (int i = 0; i < n; i++) {
		exec[i] = capture_trial(ctx, p, call, t, &found[i]);
		seconds[i] = INFINITY;
	}
	for (int round = -1; round < ROUNDS; round++) { /* round -1 is a warm-up */
		for (int i = 0; i < n; i++) {
			double once = exec[i] ? run_trial(ctx, t, exec[i]) : INFINITY;

			if (round >= 0 && once < seconds[i])
				seconds[i] = once;
		}
	}
	for (int i = 0; i < n; i++) {
		if (exec[i])
			cudaGraphExecDestroy(exec[i]);
	}
}

/* If sums are needed, an algorithm without them costs another pass over d. */
static void count_passes(const struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_candidate *found, int n, const double alone[GEMM_CANDIDATES],
	double with_pass[GEMM_CANDIDATES])
{
	const struct k_product *product = &p->choice.product;

	for (int i = 0; i < n; i++) {
		with_pass[i] = alone[i];
		if (product->epilogue == GEMM_DGELU_SUMS &&
			!gemm_plan_makes_sums(p, found[i].algorithm))
			with_pass[i] += context_pass_seconds(ctx, product->m * product->n);
	}
}

/*
 * Among candidates as fast as the fastest, the first in the heuristic's order, so that the next
 * trial chooses the same one.
 */
static int fastest(const double seconds[GEMM_CANDIDATES], int n)
{
	const double alike = 1.01;
	double least = INFINITY;
	int first = 0;

	for (int i = 0; i < n; i++)
		least = seconds[i] < least ? seconds[i] : least;
	while (first + 1 < n && !(seconds[first] <= alike * least))
		first++;
	return isfinite(least) ? first : 0;
}

/* The time at 5e14 operations per second, the rate of large 16-bit products on Hopper. */
static double guess_seconds(const struct gemm_call *c)
{
	const double operation_seconds = 2e-15;

	return 2.0 * (double)c->m * (double)c->n * (double)c->k * operation_seconds +
		context_launch_seconds;
}

void gemm_trial_choose(struct k_context *ctx, struct gemm_plan *p, const struct gemm_call *c)
{
	double guess = guess_seconds(c);
	double seconds[GEMM_CANDIDATES] = {INFINITY}, with_pass[GEMM_CANDIDATES];
	struct gemm_candidate found[GEMM_CANDIDATES];
	int n = gemm_plan_candidates(ctx, p, found), best = 0;
	struct trial t;

	p->choice.timed = 1;
	if (n == 0)
		return;
	if (trial_init(ctx, c, &t)) {
		t.times = trial_times(&t, guess);
		time_candidates(ctx, p, c, &t, found, n, seconds);
		count_passes(ctx, p, found, n, seconds, with_pass);
		best = fastest(with_pass, n);
	}
	trial_finish(&t);
	p->choice.timed = isfinite(seconds[best]);
	p->choice.picoseconds = llround((p->choice.timed ? seconds[best] : guess) * 1e12);
	memcpy(p->choice.algorithm, found[best].algorithm, sizeof found[best].algorithm);
	p->workspace_bytes = found[best].workspace_bytes;
}
