#include <errno.h>
#include <stdlib.h>

#include "kernels/cuda/stream.cuh"

struct k_graph {
	struct k_context *ctx;
	cudaGraphExec_t exec;
};

static void set_capturing(struct k_context *ctx, bool capturing)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->capturing = capturing;
	if (capturing)
		ctx->capture_failed = false;
	pthread_mutex_unlock(&ctx->lock);
}

/* Relaxed: operations may allocate and try out matrix products while they are captured. */
int k_graph_begin(struct k_stream *s)
{
	if (!stream_ready(s))
		return -EIO;
	set_capturing(s->ctx, true);
	if (context_check(s->ctx, "k_graph_begin",
		    cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeRelaxed)))
		return 0;
	set_capturing(s->ctx, false);
	s->ctx->capture_failed = true;
	cudaGetLastError();
	return -EIO;
}

/* What ended a capture before its end leaves the runtime's last error behind. */
static bool make_exec(struct k_stream *s, cudaGraphExec_t *exec)
{
	cudaGraph_t graph = NULL;
	bool made;

	cudaSetDevice(s->ctx->device);
	made = context_check(s->ctx, "k_graph_end", cudaStreamEndCapture(s->cuda, &graph)) &&
		!s->ctx->capture_failed &&
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
	/* now, so that the first launch is as the others */
	context_check(s->ctx, "k_graph_end", cudaGraphUpload(exec, s->cuda));
	*out = g;
	return 0;
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
