/* graph.cuh: graphs before they are made ready to run. */
#ifndef GPT2D_KERNELS_CUDA_GRAPH_CUH
#define GPT2D_KERNELS_CUDA_GRAPH_CUH

#include "kernels/cuda/context.cuh"

/*
 * cuBLASLt's kernels take their next tile from a counter in the workspace, which is set to 0 by a
 * node before each: two more starts between a product and what it waits for. Each product of a
 * graph is therefore given a place of its own among GRAPH_COUNTERS, all of which one node at the
 * graph's start sets to 0; this then takes away the nodes that set bytes of
 * [counters, counters + bytes) to 0 later on. False on a failure of CUDA.
 */
enum { GRAPH_COUNTERS = 1024, GRAPH_COUNTER_BYTES = 256 };
bool graph_drop_zeroing(cudaGraph_t graph, const void *counters, size_t bytes);

/* Ends the capture that k_graph_begin began, without a graph; false: it has failed. */
bool graph_discard(struct k_stream *s, const char *name);

#endif
