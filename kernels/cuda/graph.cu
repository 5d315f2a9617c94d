#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/graph.cuh"
#include "kernels/cuda/stream.cuh"

struct k_graph {
	struct k_context *ctx;
	cudaGraphExec_t exec;
};

/* ---- drop the zeroing of counters ---- */

enum { NEIGHBOURS_MAX = 16 };

struct neighbours {
	cudaGraphNode_t node[NEIGHBOURS_MAX];
	size_t n;
};

/* The two queries; out has room for a limited number of nodes. */
#if CUDART_VERSION >= 13000
typedef cudaError_t ask_fn(
	cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *edges, size_t *n);
#else
typedef cudaError_t ask_fn(cudaGraphNode_t node, cudaGraphNode_t *out, size_t *n);
#endif
static ask_fn *const before_it = cudaGraphNodeGetDependencies;
static ask_fn *const after_it = cudaGraphNodeGetDependentNodes;

/* plain: all neighbours fit into out, and their edges are of the default kind */
static cudaError_t ask(ask_fn *question, cudaGraphNode_t node, struct neighbours *out, bool *plain)
{
	cudaError_t rc;
#if CUDART_VERSION >= 13000
	static const cudaGraphEdgeData usual = {};
	cudaGraphEdgeData edges[NEIGHBOURS_MAX] = {};

	rc = question(node, NULL, NULL, &out->n);
	*plain = rc == cudaSuccess && out->n <= NEIGHBOURS_MAX;
	if (!*plain)
		return rc;
	rc = question(node, out->node, edges, &out->n);
	for (size_t i = 0; rc == cudaSuccess && i < out->n; i++)
		*plain = *plain && memcmp(&edges[i], &usual, sizeof usual) == 0;
#else
	rc = question(node, NULL, &out->n);
	*plain = rc == cudaSuccess && out->n <= NEIGHBOURS_MAX;
	if (*plain)
		rc = question(node, out->node, &out->n);
#endif
	return rc;
}

static cudaError_t add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to)
{
#if CUDART_VERSION >= 13000
	return cudaGraphAddDependencies(graph, &from, &to, NULL, 1);
#else
	return cudaGraphAddDependencies(graph, &from, &to, 1);
#endif
}

/* Whether the node only zeroes some of these bytes. */
static bool sets_counter(cudaGraphNode_t node, uintptr_t first, size_t bytes)
{
	cudaGraphNodeType type;
	cudaMemsetParams p;
	uintptr_t at;

	if (cudaGraphNodeGetType(node, &type) != cudaSuccess || type != cudaGraphNodeTypeMemset ||
		cudaGraphMemsetNodeGetParams(node, &p) != cudaSuccess)
		return false;
	at = (uintptr_t)p.dst;
	return at >= first && at + p.elementSize * p.width <= first + bytes && p.value == 0 &&
		p.height <= 1 && p.elementSize * p.width <= GRAPH_COUNTER_BYTES;
}

/*
 * Makes the node's successors depend on its predecessors. A node with too many neighbours or with
 * unusual edges stays: it does no harm.
 */
static cudaError_t take_out(cudaGraph_t graph, cudaGraphNode_t node)
{
	struct neighbours before, after, known;
	bool plain_before, plain_after, plain;
	cudaError_t rc = ask(before_it, node, &before, &plain_before);

	if (rc == cudaSuccess)
		rc = ask(after_it, node, &after, &plain_after);
	if (rc != cudaSuccess || !plain_before || !plain_after)
		return rc;
	for (size_t i = 0; i < after.n; i++) {
		rc = ask(before_it, after.node[i], &known, &plain);
		if (rc != cudaSuccess || !plain)
			return rc;
	}
	for (size_t i = 0; i < after.n && rc == cudaSuccess; i++) {
		rc = ask(before_it, after.node[i], &known, &plain);
		for (size_t j = 0; j < before.n && rc == cudaSuccess; j++) {
			bool there = false;

			for (size_t k = 0; k < known.n; k++)
				there = there || known.node[k] == before.node[j];
			if (!there)
				rc = add_edge(graph, before.node[j], after.node[i]);
		}
	}
	return rc == cudaSuccess ? cudaGraphDestroyNode(node) : rc;
}

bool graph_drop_zeroing(cudaGraph_t graph, const void *counters, size_t bytes)
{
	cudaGraphNode_t *nodes = NULL;
	size_t n = 0;
	cudaError_t rc = cudaGraphGetNodes(graph, NULL, &n);

	if (rc == cudaSuccess && n > 0) {
		nodes = (cudaGraphNode_t *)calloc(n, sizeof *nodes);
		rc = nodes ? cudaGraphGetNodes(graph, nodes, &n) : cudaErrorMemoryAllocation;
	}
	for (size_t i = 0; i < n && rc == cudaSuccess; i++) {
		if (sets_counter(nodes[i], (uintptr_t)counters, bytes))
			rc = take_out(graph, nodes[i]);
	}
	free(nodes);
	return rc == cudaSuccess;
}

/* ---- capture and launch ---- */

static void set_capturing(struct k_context *ctx, bool capturing)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->capturing = capturing;
	if (capturing)
		ctx->capture_failed = false;
	pthread_mutex_unlock(&ctx->lock);
}

static bool begin(struct k_stream *s)
{
	struct k_context *ctx = s->ctx;
	const size_t bytes = GRAPH_COUNTERS * GRAPH_COUNTER_BYTES;
	cudaGraph_t graph = NULL;

	if (!ctx->counters &&
		!context_check(ctx, "k_graph_begin", cudaMalloc(&ctx->counters, bytes)))
		return false;
	ctx->counters_given = 0;
	if (!context_check(ctx, "k_graph_begin",
		    cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeRelaxed)))
		return false;
	if (context_check(ctx, "k_graph_begin", cudaMemsetAsync(ctx->counters, 0, bytes, s->cuda)))
		return true;
	cudaStreamEndCapture(s->cuda, &graph);
	return false;
}

/* Relaxed: operations may allocate and try matrix products during a capture. */
int k_graph_begin(struct k_stream *s)
{
	if (!stream_ready(s))
		return -EIO;
	set_capturing(s->ctx, true);
	if (begin(s))
		return 0;
	set_capturing(s->ctx, false);
	s->ctx->capture_failed = true;
	cudaGetLastError();
	return -EIO;
}

/* The first node zeroes all counters and is larger than the nodes to drop. */
static bool drop_zeroing(struct k_context *ctx, cudaGraph_t graph)
{
	if (graph_drop_zeroing(graph, ctx->counters, GRAPH_COUNTERS * GRAPH_COUNTER_BYTES))
		return true;
	context_fail(ctx, "k_graph_end: its nodes cannot be changed");
	return false;
}

/* A capture that failed early leaves an error as the runtime's last one. */
static bool make_exec(struct k_stream *s, cudaGraphExec_t *exec)
{
	cudaGraph_t graph = NULL;
	bool made;

	cudaSetDevice(s->ctx->device);
	made = context_check(s->ctx, "k_graph_end", cudaStreamEndCapture(s->cuda, &graph)) &&
		!s->ctx->capture_failed && drop_zeroing(s->ctx, graph) &&
		context_check(s->ctx, "k_graph_end", cudaGraphInstantiate(exec, graph, 0));
	if (graph)
		cudaGraphDestroy(graph);
	if (!made)
		cudaGetLastError();
	return made;
}

int k_graph_end(struct k_stream *s, struct k_graph **out)
{
	struct k_graph *g = (struct k_graph *)calloc(1, sizeof *g);
	cudaGraphExec_t exec = NULL;
	bool made = make_exec(s, &exec);

	set_capturing(s->ctx, false);
	if (!g || !made || k_context_error(s->ctx)) {
		if (exec)
			cudaGraphExecDestroy(exec);
		free(g);
		return !g ? -ENOMEM : -EIO;
	}
	g->ctx = s->ctx;
	g->exec = exec;
	/* now, so that the first launch is no slower */
	context_check(s->ctx, "k_graph_end", cudaGraphUpload(exec, s->cuda));
	*out = g;
	return 0;
}

bool graph_discard(struct k_stream *s, const char *name)
{
	cudaGraph_t graph = NULL;
	bool good;

	cudaSetDevice(s->ctx->device);
	good = context_check(s->ctx, name, cudaStreamEndCapture(s->cuda, &graph)) &&
		!s->ctx->capture_failed;
	if (graph)
		cudaGraphDestroy(graph);
	if (!good)
		cudaGetLastError();
	set_capturing(s->ctx, false);
	return good;
}

bool k_graph_capturing(struct k_stream *s)
{
	return stream_capture(s) != 0;
}

const char *k_graph_error(const struct k_context *ctx)
{
	return ctx->capture_failed ? ctx->capture_error : NULL;
}

int k_graph_launch(struct k_graph *g, struct k_stream *s)
{
	if (!g)
		return 0;
	if (!stream_ready(s))
		return -EIO;
	return context_check(s->ctx, "k_graph_launch", cudaGraphLaunch(g->exec, s->cuda)) ? 0
											  : -EIO;
}

void k_graph_destroy(struct k_graph *g)
{
	if (!g)
		return;
	cudaSetDevice(g->ctx->device);
	if (g->exec)
		cudaGraphExecDestroy(g->exec);
	free(g);
}
