#include "kernels/kernels.h"

/* The CPU launches eagerly: no graphs; work between begin and end has already run. */

int k_graph_begin(struct k_stream *s)
{
	return 0;
}

int k_graph_end(struct k_stream *s, struct k_graph **out)
{
	*out = NULL;
	return 0;
}

int k_graph_launch(struct k_graph *g, struct k_stream *s)
{
	return 0;
}

bool k_graph_capturing(struct k_stream *s)
{
	return false;
}

const char *k_graph_error(const struct k_context *ctx)
{
	return NULL;
}

void k_graph_destroy(struct k_graph *g)
{
}
