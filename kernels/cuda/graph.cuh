/* graph.cuh: changes to graphs before their instantiation. */
#ifndef GPT2D_KERNELS_CUDA_GRAPH_CUH
#define GPT2D_KERNELS_CUDA_GRAPH_CUH

#include "kernels/cuda/context.cuh"

/*
 * cuBLASLt's kernels take their next tile from a counter in the workspace. A node zeroes it before
 * each kernel: two more starts between a product and its inputs. Each product of a graph therefore
 * has its own place among GRAPH_COUNTERS, and one node at the graph's start zeroes all of them;
 * this function then removes later nodes that zero bytes of [counters, counters + bytes). False on
 * a failure of CUDA.
 */
enum { GRAPH_COUNTERS = 1024, GRAPH_COUNTER_BYTES = 256 };
bool graph_drop_zeroing(cudaGraph_t graph, const void *counters, size_t bytes);

/* Ends the capture of k_graph_begin without a graph; false: it has failed. */
bool graph_discard(struct k_stream *s, const char *name);

#endif
