/* A world of one calls no collective: linked in place of them, this aborts when one is called. */
#include <stdlib.h>

#include "engine/comm/collectives.h"

void collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	abort();
}

void collectives_all_gather(struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	abort();
}

void collectives_begin(struct collectives_group *g)
{
	abort();
}

void collectives_end(struct collectives_group *g)
{
	abort();
}

void collectives_all_reduce(struct collectives_group *g, void *buf, int64_t n,
	enum collectives_type type, enum collectives_op op, struct k_stream *s)
{
	abort();
}

int collectives_world(const struct collectives_group *g)
{
	abort();
}

const char *collectives_error(const struct collectives *c)
{
	abort();
}

int collectives_create(const struct collectives_options *options, struct collectives **out,
	char *why, size_t why_bytes)
{
	abort();
}

void collectives_destroy(struct collectives *c)
{
	if (c)
		abort();
}

void collectives_graph_begin(struct collectives_group *g, int64_t about_ns, struct k_stream *s)
{
	abort();
}

void collectives_graph_end(
	struct collectives_group *g, const struct collectives_bytes *sent, struct k_stream *s)
{
	abort();
}

void collectives_count(const struct collectives_group *g, struct collectives_bytes *out)
{
	abort();
}

void collectives_gather_all(
	struct collectives_group *g, void *out, const void *in, size_t bytes, struct k_stream *s)
{
	abort();
}

int64_t collectives_growth(const struct collectives *c, int ranks)
{
	abort();
}

int64_t collectives_scratch_bytes(int world, int ranks)
{
	abort();
}
