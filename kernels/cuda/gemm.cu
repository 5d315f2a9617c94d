#include "kernels/cuda/gemm.cuh"

#include <math.h>
#include <string.h>

#include "kernels/cuda/gemm_choices.cuh"
#include "kernels/cuda/gemm_plan.cuh"
#include "kernels/cuda/gemm_trial.cuh"
#include "kernels/cuda/gemm_wgmma.cuh"
#include "kernels/cuda/graph.cuh"

static uint32_t alignment(const void *p)
{
	uintptr_t lowest = (uintptr_t)p & (~(uintptr_t)p + 1);

	return !p || lowest > GEMM_ALIGNMENT_MAX ? GEMM_ALIGNMENT_MAX : (uint32_t)lowest;
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

/* The plan's choice: the earlier one, or one by timing now. */
static void decide(struct k_context *ctx, struct gemm_plan *p, const struct gemm_call *call)
{
	const struct k_choice *known = gemm_choices_find(ctx, &p->choice.product);

	if (known) {
		p->choice = *known;
		if (gemm_plan_holds(ctx, p))
			return;
		memset(p->choice.algorithm, 0, sizeof p->choice.algorithm);
		p->choice.picoseconds = -1;
	}
	gemm_trial_choose(ctx, p, call);
	if (!gemm_choices_keep(ctx, &p->choice))
		context_fail(ctx, "matrix product: no memory to remember its algorithm");
}

static struct gemm_plan *find(struct k_stream *s, const struct gemm_call *call)
{
	struct k_context *ctx = s->ctx;
	struct k_product product = make_product(ctx, call);
	struct gemm_plan *p = gemm_plan_find(ctx, &product);

	if (p)
		return p;
	p = gemm_plan_create(ctx, &product);
	if (!p) {
		context_fail(ctx, "matrix product: no memory for its plan");
		return NULL;
	}
	if (gemm_plan_describe(p, call))
		decide(ctx, p, call);
	return p;
}

static double seconds_of(const struct k_context *ctx, const struct gemm_plan *p)
{
	if (gemm_plan_own(p->choice.algorithm))
		return 0; /* always chosen: backward needs the derivative that it writes */
	return p->choice.picoseconds < 0 ? INFINITY : (double)p->choice.picoseconds * 1e-12;
}

double gemm_seconds(struct k_stream *s, const struct gemm_call *call)
{
	struct gemm_plan *p = find(s, call);

	return p ? seconds_of(s->ctx, p) : INFINITY;
}

int64_t gemm_sum_parts(struct k_stream *s, const struct gemm_call *call)
{
	struct gemm_plan *p = find(s, call);

	return p && gemm_plan_makes_sums(p, p->choice.algorithm) ? gemm_wgmma_sum_parts(call->n)
								 : 0;
}

/* In a capture, a counter that no other product of the graph uses. */
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
	struct gemm_candidate by;
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
	why = gemm_plan_multiply(s->ctx, p, &by, call, workspace, s->cuda);
	if (why)
		context_fail(s->ctx, "%s: %s", name, why);
	stream_check(s, name);
}

void gemm_forget(struct k_context *ctx)
{
	gemm_plan_drop_all(ctx);
	gemm_choices_forget(ctx);
}
