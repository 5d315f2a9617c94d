#include "engine/checkpoint/shard.h"

#include <stdlib.h>

#include "engine/train/zero.h"
#include "proto/host/memory.h"

static void add(struct shard *s, int64_t first, int64_t end, int64_t compact, int64_t params)
{
	if (end > params)
		end = params;
	if (first >= end)
		return;
	s->pieces[s->n_pieces++] =
		(struct shard_piece){.first = first, .n = end - first, .compact = compact};
	s->elems += end - first;
}

void shard_owned(const struct plan *plan, int64_t stage, int rank, struct shard *out)
{
	const int64_t n = zero_owned_ranges(plan, stage);
	int64_t compact = 0;

	*out = (struct shard){.pieces = memory_zeroed((size_t)n, sizeof(*out->pieces))};
	for (int64_t i = 0; i < n; i++) {
		const struct k_range r = zero_owned_range(plan, stage, rank, i);

		add(out, r.first, r.first + r.n, compact, plan->param_elems);
		compact += r.n;
	}
}

void shard_written(const struct plan *plan, int64_t stage, int rank, struct shard *out)
{
	const int64_t blocks = (plan->param_elems + PLAN_ALIGN_ELEMS - 1) / PLAN_ALIGN_ELEMS;
	const int64_t part = (blocks + plan->world - 1) / plan->world * PLAN_ALIGN_ELEMS;

	if (zero_owned_elems(plan, stage, rank) < plan->arena_elems) {
		shard_owned(plan, stage, rank, out);
		return;
	}
	*out = (struct shard){.pieces = memory_zeroed(1, sizeof(*out->pieces))};
	add(out, rank * part, (rank + 1) * part, rank * part, plan->param_elems);
}

void shard_finish(struct shard *s)
{
	free(s->pieces);
	*s = (struct shard){0};
}
