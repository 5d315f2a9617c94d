#include <errno.h>
#include <stdlib.h>

#include "kernels/cuda/stream.cuh"

struct k_graph {
	struct k_context *ctx;
	cudaGraphExec_t exec;
};

/* Relaxed: operations may allocate and try out matrix products while they are captured. */
int k_graph_begin(struct k_stream *s)
{
	if (!stream_ready(s))
		return -EIO;
	return context_check(s->ctx, "k_graph_begin",
		       cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeRelaxed))
		? 0
		: -EIO;
}

int k_graph_end(struct k_stream *s, struct k_graph **out)
{
	struct k_graph *g = (struct k_graph *)calloc(1, sizeof *g);
	cudaGraph_t graph = NULL;
	cudaError_t rc;

	cudaSetDevice(s->ctx->device);
	rc = cudaStreamEndCapture(s->cuda, &graph);
	if (!g) {
		if (graph)
			cudaGraphDestroy(graph);
		return -ENOMEM;
	}
	g->ctx = s->ctx;
	if (rc == cudaSuccess)
		rc = cudaGraphInstantiate(&g->exec, graph, 0);
	if (graph)
		cudaGraphDestroy(graph);
	if (!context_check(s->ctx, "k_graph_end", rc) || k_context_error(s->ctx)) {
		k_graph_destroy(g);
		return -EIO;
	}
	*out = g;
	return 0;
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
