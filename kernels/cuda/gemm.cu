#include "kernels/cuda/gemm.cuh"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/gemm_wgmma.cuh"
#include "kernels/cuda/graph.cuh"

enum { ASKED = 16, CANDIDATES = 2 * ASKED + 1, ROUNDS = 4, ALIGNMENT_MAX = 256 };

/* A choice, and what cuBLASLt needs to act by it. */
struct gemm_plan {
	struct gemm_plan *next;
	struct k_choice choice;
	size_t workspace_bytes; /* that the algorithm takes */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
};

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((struct k_choice *)NULL)->algorithm),
	"an algorithm of cuBLASLt is kept in its words");

static uint32_t alignment(const void *p)
{
	uintptr_t lowest = (uintptr_t)p & (~(uintptr_t)p + 1);

	return !p || lowest > ALIGNMENT_MAX ? ALIGNMENT_MAX : (uint32_t)lowest;
}

static struct k_product make_product(const struct k_context *ctx, const struct gemm_call *c)
{
	struct k_product key;

	memset(&key, 0, sizeof key); /* compared as bytes */
	key.m = c->m;
	key.n = c->n;
	key.k = c->k;
	key.transpose_a = c->transpose_a;
	key.transpose_b = c->transpose_b;
	key.add = c->add;
	key.epilogue = c->epilogue;
	key.dtype = ctx->dtype;
	key.align[0] = alignment(c->a);
	key.align[1] = alignment(c->b);
	key.align[2] = alignment(c->d);
	key.align[3] = alignment(c->bias);
	key.align[4] = alignment(c->aux);
	return key;
}

static cudaDataType_t data_type(enum k_dtype dtype)
{
	if (dtype == K_BF16)
		return CUDA_R_16BF;
	return dtype == K_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

template <typename T>
static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, T value)
{
	cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value);
}

static const cublasLtEpilogue_t epilogues[] = {
	CUBLASLT_EPILOGUE_DEFAULT,
	CUBLASLT_EPILOGUE_BIAS,
	CUBLASLT_EPILOGUE_GELU_AUX,
	CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
	CUBLASLT_EPILOGUE_DGELU,
	CUBLASLT_EPILOGUE_BGRADB,
};

static void set_pointers(const struct gemm_plan *p, const void *bias, const void *aux)
{
	if (bias)
		set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
	if (aux)
		set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

static bool describe(struct gemm_plan *p, const struct gemm_call *c)
{
	enum k_dtype dtype = (enum k_dtype)p->choice.product.dtype;
	cudaDataType_t type = data_type(dtype);
	cublasComputeType_t compute =
		dtype == K_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	int64_t a_rows = c->transpose_a ? c->k : c->m, a_cols = c->transpose_a ? c->m : c->k;
	int64_t b_rows = c->transpose_b ? c->n : c->k, b_cols = c->transpose_b ? c->k : c->n;

	if (cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
		cublasLtMatrixLayoutCreate(&p->a, type, (uint64_t)a_rows, (uint64_t)a_cols,
			a_rows) != CUBLAS_STATUS_SUCCESS ||
		cublasLtMatrixLayoutCreate(&p->b, type, (uint64_t)b_rows, (uint64_t)b_cols,
			b_rows) != CUBLAS_STATUS_SUCCESS ||
		cublasLtMatrixLayoutCreate(&p->d, type, (uint64_t)c->m, (uint64_t)c->n, c->m) !=
			CUBLAS_STATUS_SUCCESS)
		return false;
	set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, c->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
	set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, c->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
	set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[c->epilogue]);
	if (c->aux)
		set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, c->m);
	set_pointers(p, c->bias, c->aux);
	return true;
}

struct candidate {
	uint64_t algorithm[K_ALGORITHM_WORDS];
	size_t workspace_bytes;
};

/* What stands for gemm_wgmma among the algorithms: none of cuBLASLt's begins so. */
static const uint64_t own_algorithm[K_ALGORITHM_WORDS] = {UINT64_MAX, GEMM_WGMMA_VERSION};

static bool is_own(const uint64_t algorithm[K_ALGORITHM_WORDS])
{
	return memcmp(algorithm, own_algorithm, sizeof own_algorithm) == 0;
}

/* What the heuristic names for this much workspace, added to found[0..n) unless it is there. */
static int add_candidates(struct k_context *ctx, const struct gemm_plan *p, size_t workspace,
	struct candidate found[CANDIDATES], int n)
{
	uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const uint32_t *align = p->choice.product.align;
	cublasLtMatmulHeuristicResult_t named[ASKED];
	cublasLtMatmulPreference_t prefer;
	int n_named = 0;

	if (cublasLtMatmulPreferenceCreate(&prefer) != CUBLAS_STATUS_SUCCESS)
		return n;
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[0], sizeof align[0]);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[1], sizeof align[1]);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof align[2]);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof align[2]);
	if (cublasLtMatmulAlgoGetHeuristic(ctx->blas, p->desc, p->a, p->b, p->d, p->d, prefer,
		    ASKED, named, &n_named) != CUBLAS_STATUS_SUCCESS)
		n_named = 0;
	cublasLtMatmulPreferenceDestroy(prefer);
	for (int i = 0; i < n_named && n < CANDIDATES; i++) {
		bool known = false;

		for (int j = 0; j < n; j++)
			known = known ||
				memcmp(found[j].algorithm, &named[i].algo, sizeof named[i].algo) ==
					0;
		if (known)
			continue;
		memcpy(found[n].algorithm, &named[i].algo, sizeof named[i].algo);
		found[n++].workspace_bytes = named[i].workspaceSize;
	}
	return n;
}

/*
 * The heuristic gives some eight at a time. Those that take no workspace are not always among them,
 * and in a graph they are the cheaper ones: what others keep there is set to 0 by a node of its
 * own.
 */
static int find_candidates(
	struct k_context *ctx, const struct gemm_plan *p, struct candidate found[CANDIDATES])
{
	const struct k_product *product = &p->choice.product;
	bool fits = gemm_wgmma_fits(ctx, product);
	int n = 0;

	if (!ctx->own_products || !gemm_wgmma_kind(product)) {
		n = add_candidates(ctx, p, STREAM_WORKSPACE_BYTES, found, n);
		n = add_candidates(ctx, p, 0, found, n);
	} else if (!fits) {
		context_fail(ctx, "matrix product: not by own kernels for %lld x %lld x %lld",
			(long long)product->m, (long long)product->n, (long long)product->k);
	}
	if (fits) {
		memcpy(found[n].algorithm, own_algorithm, sizeof own_algorithm);
		found[n++].workspace_bytes = 0;
	}
	return n;
}

static cublasLtMatmulAlgo_t library_algorithm(const uint64_t algorithm[K_ALGORITHM_WORDS])
{
	cublasLtMatmulAlgo_t algo;

	memcpy(&algo, algorithm, sizeof algo);
	return algo;
}

/* The call, which is one of the plan's, by this algorithm: NULL, or why not. */
static const char *multiply(struct k_context *ctx, const struct gemm_plan *p,
	const struct candidate *by, const struct gemm_call *c, void *workspace, cudaStream_t stream)
{
	cublasLtMatmulAlgo_t algo = library_algorithm(by->algorithm);
	float alpha = 1, beta = c->add ? 1 : 0;
	cublasStatus_t rc;

	if (is_own(by->algorithm))
		return gemm_wgmma_launch(ctx, c, stream);
	set_pointers(p, c->bias, c->aux);
	rc = cublasLtMatmul(ctx->blas, p->desc, &alpha, c->a, p->a, c->b, p->b, &beta, c->d, p->d,
		c->d, p->d, &algo, workspace, by->workspace_bytes, stream);
	return rc == CUBLAS_STATUS_SUCCESS ? NULL : cublasLtGetStatusString(rc);
}

/* ---- the choice of an algorithm ---- */

enum { TIMES_MAX = 24, TRIAL_COUNTERS_BYTES = TIMES_MAX * GRAPH_COUNTER_BYTES };
enum { TRIAL_A, TRIAL_B, TRIAL_D, TRIAL_AUX, TRIAL_BIAS, TRIAL_WORKSPACE, TRIALS };

/*
 * In a step b was written or read just before, while a and what is written have long left the
 * device's cache: of these there are so many that they do not fit there, taken in turn.
 */
static const size_t beyond_cache_bytes = 128 << 20;

struct trial {
	void *memory[TRIALS];
	size_t step[TRIALS]; /* bytes from one copy to the next; 0: there is one */
	int copies;
	int times; /* products of a round */
	cudaEvent_t from, to;
};

/* Numbers in [1/2, 1) of either sign. On zeros the matrix units run faster than on real data. */
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
	for (int i = 0; i < TRIALS; i++)
		cudaFree(t->memory[i]);
	if (t->from)
		cudaEventDestroy(t->from);
	if (t->to)
		cudaEventDestroy(t->to);
	cudaGetLastError(); /* no memory for a trial is no failure */
}

static size_t whole(size_t bytes)
{
	return (bytes + ALIGNMENT_MAX - 1) / ALIGNMENT_MAX * ALIGNMENT_MAX;
}

/* As many copies as it takes, or one; false: there is no memory for them. */
static bool trial_init(
	struct k_context *ctx, const struct gemm_call *c, bool beyond_cache, struct trial *t)
{
	size_t elem = k_elem_bytes(ctx), sizes[TRIALS], copied;
	int64_t widest = c->m > c->n ? c->m : c->n;

	memset(t, 0, sizeof *t);
	sizes[TRIAL_A] = whole((size_t)(c->m * c->k) * elem);
	sizes[TRIAL_B] = (size_t)(c->k * c->n) * elem;
	sizes[TRIAL_D] = whole((size_t)(c->m * c->n) * elem);
	sizes[TRIAL_AUX] = c->aux ? sizes[TRIAL_D] : 0;
	sizes[TRIAL_BIAS] = (size_t)widest * elem;
	sizes[TRIAL_WORKSPACE] = STREAM_WORKSPACE_BYTES + TRIAL_COUNTERS_BYTES;
	copied = sizes[TRIAL_A] + sizes[TRIAL_D] + sizes[TRIAL_AUX];
	t->copies = 1;
	if (beyond_cache)
		t->copies += (int)(beyond_cache_bytes / copied);
	t->copies = t->copies > TIMES_MAX ? TIMES_MAX : t->copies;
	for (int i = 0; i < TRIALS; i++) {
		if (sizes[i] == 0)
			continue;
		if (t->copies > 1 && (i == TRIAL_A || i == TRIAL_D || i == TRIAL_AUX)) {
			t->step[i] = sizes[i];
			sizes[i] *= (size_t)t->copies;
		}
		if (cudaMalloc(&t->memory[i], sizes[i] + 4) != cudaSuccess)
			return false;
		if (i != TRIAL_WORKSPACE)
			fill(ctx, ctx->dtype, t->memory[i], sizes[i]);
	}
	return cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

/* Where it lies for the i-th product of a round. */
static char *trial_at(const struct trial *t, int what, int i)
{
	return (char *)t->memory[what] + (size_t)(i % t->copies) * t->step[what];
}

/* A round's products, one after another, as a graph: that is how they are run in a step. */
static cudaGraphExec_t capture_trial(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_call *c, const struct trial *t, const struct candidate *by)
{
	char *workspace = (char *)t->memory[TRIAL_WORKSPACE];
	struct gemm_call call = *c;
	size_t step = by->workspace_bytes <= GRAPH_COUNTER_BYTES ? GRAPH_COUNTER_BYTES : 0;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph = NULL;
	bool good = true;

	if (cudaStreamBeginCapture(ctx->internal, cudaStreamCaptureModeRelaxed) != cudaSuccess)
		return NULL;
	cudaMemsetAsync(workspace, 0, TRIAL_COUNTERS_BYTES, ctx->internal);
	call.b = t->memory[TRIAL_B];
	call.bias = c->bias ? t->memory[TRIAL_BIAS] : NULL;
	for (int i = 0; i < t->times && good; i++) {
		call.a = trial_at(t, TRIAL_A, i);
		call.d = trial_at(t, TRIAL_D, i);
		call.aux = c->aux ? trial_at(t, TRIAL_AUX, i) : NULL;
		good = !multiply(ctx, p, by, &call, workspace + (size_t)i * step, ctx->internal);
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

/* Seconds of one product; infinite when it failed. */
static double run_trial(struct k_context *ctx, const struct trial *t, cudaGraphExec_t exec)
{
	float ms = 0;

	cudaEventRecord(t->from, ctx->internal);
	if (cudaGraphLaunch(exec, ctx->internal) != cudaSuccess)
		return INFINITY;
	cudaEventRecord(t->to, ctx->internal);
	if (cudaEventSynchronize(t->to) != cudaSuccess ||
		cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
		return INFINITY;
	return (double)ms * 1e-3 / t->times;
}

/* About as long for small products as for large ones, and through all copies. */
static int trial_times(const struct trial *t, double guess)
{
	const double round_seconds = 2e-4;
	int times = guess < round_seconds ? 1 + (int)(round_seconds / guess) : 1;

	times = times > t->copies ? times : t->copies;
	return times > TIMES_MAX ? TIMES_MAX : times;
}

/*
 * Best of some rounds, in which the candidates take turns: clocks and power that change meanwhile
 * are the same for all.
 */
static void time_candidates(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_call *call, const struct trial *t, const struct candidate *found, int n,
	double seconds[CANDIDATES])
{
	cudaGraphExec_t exec[CANDIDATES];

	for (int i = 0; i < n; i++) {
		exec[i] = capture_trial(ctx, p, call, t, &found[i]);
		seconds[i] = INFINITY;
	}
	for (int round = -1; round < ROUNDS; round++) { /* the first is to warm up */
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

/*
 * Of those that cannot be told from the fastest the one that the heuristic named first, so that it
 * is the same one next time.
 */
static int fastest(const double seconds[CANDIDATES], int n)
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

static void choose(struct k_context *ctx, struct gemm_plan *p, const struct gemm_call *c)
{
	/* by what the operations would take */
	double guess = 2.0 * (double)c->m * (double)c->n * (double)c->k * 2e-15 + 2e-6;
	double seconds[CANDIDATES] = {INFINITY};
	struct candidate found[CANDIDATES];
	int n = find_candidates(ctx, p, found), best = 0;
	struct trial t;
	bool room;

	p->choice.timed = 1;
	if (n == 0)
		return;
	room = trial_init(ctx, c, true, &t);
	if (!room) {
		trial_finish(&t);
		room = trial_init(ctx, c, false, &t);
	}
	if (room) {
		t.times = trial_times(&t, guess);
		time_candidates(ctx, p, c, &t, found, n, seconds);
		best = fastest(seconds, n);
	}
	trial_finish(&t);
	p->choice.timed = isfinite(seconds[best]);
	p->choice.picoseconds = llround((p->choice.timed ? seconds[best] : guess) * 1e12);
	memcpy(p->choice.algorithm, found[best].algorithm, sizeof found[best].algorithm);
	p->workspace_bytes = found[best].workspace_bytes;
}

/* ---- choices made earlier ---- */

static struct k_choice *find_choice(const struct k_context *ctx, const struct k_product *product)
{
	for (int64_t i = 0; i < ctx->n_choices; i++) {
		if (memcmp(&ctx->choices[i].product, product, sizeof *product) == 0)
			return &ctx->choices[i];
	}
	return NULL;
}

static bool keep_choice(struct k_context *ctx, const struct k_choice *choice)
{
	struct k_choice *known = find_choice(ctx, &choice->product);
	int64_t room = ctx->choices_room ? 2 * ctx->choices_room : 64;

	if (known) {
		*known = *choice;
		return true;
	}
	if (ctx->n_choices == ctx->choices_room) {
		known = (struct k_choice *)realloc(ctx->choices, (size_t)room * sizeof *known);
		if (!known)
			return false;
		ctx->choices = known;
		ctx->choices_room = room;
	}
	ctx->choices[ctx->n_choices++] = *choice;
	return true;
}

/* Whether this device and library can act by a choice that was made elsewhere. */
static bool can_act_by(struct k_context *ctx, struct gemm_plan *p)
{
	cublasLtMatmulAlgo_t algo = library_algorithm(p->choice.algorithm);
	cublasLtMatmulHeuristicResult_t needs;

	if (p->choice.picoseconds < 0)
		return true;
	if (is_own(p->choice.algorithm))
		return gemm_wgmma_fits(ctx, &p->choice.product);
	if (cublasLtMatmulAlgoCheck(ctx->blas, p->desc, p->a, p->b, p->d, p->d, &algo, &needs) !=
			CUBLAS_STATUS_SUCCESS ||
		needs.workspaceSize > STREAM_WORKSPACE_BYTES)
		return false;
	p->workspace_bytes = needs.workspaceSize;
	return true;
}

/* The plan's choice: as it was made earlier, or by timing now. */
static void decide(struct k_context *ctx, struct gemm_plan *p, const struct gemm_call *call)
{
	const struct k_choice *known = find_choice(ctx, &p->choice.product);

	if (known) {
		p->choice = *known;
		if (can_act_by(ctx, p))
			return;
		memset(p->choice.algorithm, 0, sizeof p->choice.algorithm);
		p->choice.picoseconds = -1;
	}
	choose(ctx, p, call);
	if (!keep_choice(ctx, &p->choice))
		context_fail(ctx, "matrix product: no memory to remember its algorithm");
}

static struct gemm_plan *find(struct k_stream *s, const struct gemm_call *call)
{
	struct k_context *ctx = s->ctx;
	struct k_product product = make_product(ctx, call);
	struct gemm_plan *p;

	for (p = ctx->plans; p; p = p->next) {
		if (memcmp(&p->choice.product, &product, sizeof product) == 0)
			return p;
	}
	p = (struct gemm_plan *)calloc(1, sizeof *p);
	if (!p) {
		context_fail(ctx, "matrix product: no memory for its plan");
		return NULL;
	}
	p->choice.product = product;
	p->choice.picoseconds = -1;
	p->next = ctx->plans;
	ctx->plans = p;
	if (describe(p, call))
		decide(ctx, p, call);
	return p;
}

static double seconds_of(const struct k_context *ctx, const struct gemm_plan *p)
{
	if (ctx->own_products && is_own(p->choice.algorithm))
		return 0; /* asked for, whatever it takes */
	return p->choice.picoseconds < 0 ? INFINITY : (double)p->choice.picoseconds * 1e-12;
}

double gemm_seconds(struct k_stream *s, const struct gemm_call *call)
{
	struct gemm_plan *p = find(s, call);

	return p ? seconds_of(s->ctx, p) : INFINITY;
}

/* In a capture a counter's place that no other product of the graph has. */
static void *workspace_for(struct k_stream *s, const struct gemm_plan *p)
{
	struct k_context *ctx = s->ctx;

	if (p->workspace_bytes == 0 || p->workspace_bytes > GRAPH_COUNTER_BYTES ||
		ctx->counters_given >= GRAPH_COUNTERS || !ctx->counters || !stream_capture(s))
		return stream_workspace(s);
	return (char *)ctx->counters + (size_t)ctx->counters_given++ * GRAPH_COUNTER_BYTES;
}

void gemm_run(struct k_stream *s, const char *name, const struct gemm_call *call)
{
	struct candidate by;
	struct gemm_plan *p;
	const char *why;
	void *workspace;

	if (call->m <= 0 || call->n <= 0 || call->k <= 0 || !stream_ready(s))
		return;
	p = find(s, call);
	workspace = p ? workspace_for(s, p) : NULL;
	if (!workspace)
		return;
	if (p->choice.picoseconds < 0) {
		context_fail(s->ctx, "%s: cuBLASLt has no algorithm for %lld x %lld x %lld", name,
			(long long)call->m, (long long)call->n, (long long)call->k);
		return;
	}
	memcpy(by.algorithm, p->choice.algorithm, sizeof by.algorithm);
	by.workspace_bytes = p->workspace_bytes;
	why = multiply(s->ctx, p, &by, call, workspace, s->cuda);
	if (why)
		context_fail(s->ctx, "%s: %s", name, why);
	stream_check(s, name);
}

static void free_plan(struct gemm_plan *p)
{
	if (p->desc)
		cublasLtMatmulDescDestroy(p->desc);
	if (p->a)
		cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		cublasLtMatrixLayoutDestroy(p->b);
	if (p->d)
		cublasLtMatrixLayoutDestroy(p->d);
	free(p);
}

int64_t k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max)
{
	if (max > 0 && ctx->n_choices > 0)
		memcpy(out, ctx->choices,
			(size_t)(max < ctx->n_choices ? max : ctx->n_choices) * sizeof *out);
	return ctx->n_choices;
}

/* It is made anew, by the choice that is then in force, when the product is next asked for. */
static void drop_plan(struct k_context *ctx, const struct k_product *product)
{
	for (struct gemm_plan **at = &ctx->plans; *at; at = &(*at)->next) {
		struct gemm_plan *p = *at;

		if (memcmp(&p->choice.product, product, sizeof *product) != 0)
			continue;
		*at = p->next;
		free_plan(p);
		return;
	}
}

int64_t k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n)
{
	int64_t changed = 0;

	for (int64_t i = 0; i < n; i++) {
		const struct k_choice *known = find_choice(ctx, &choices[i].product);

		if (known && memcmp(known, &choices[i], sizeof *known) == 0)
			continue;
		if (known)
			changed++;
		if (!keep_choice(ctx, &choices[i]))
			return -ENOMEM;
		drop_plan(ctx, &choices[i].product);
	}
	return changed;
}

void gemm_forget(struct k_context *ctx)
{
	while (ctx->plans) {
		struct gemm_plan *p = ctx->plans;

		ctx->plans = p->next;
		free_plan(p);
	}
	free(ctx->choices);
	ctx->choices = NULL;
	ctx->n_choices = ctx->choices_room = 0;
}
