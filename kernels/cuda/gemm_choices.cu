#include "kernels/cuda/gemm_choices.cuh"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm_plan.cuh"
#include "kernels/cuda/graph.cuh"
#include "kernels/cuda/stream.cuh"

struct k_choice *gemm_choices_find(const struct k_context *ctx, const struct k_product *product)
{
	for (int64_t i = 0; i < ctx->n_choices; i++) {
		if (memcmp(&ctx->choices[i].product, product, sizeof *product) == 0)
			return &ctx->choices[i];
	}
	return NULL;
}

bool gemm_choices_keep(struct k_context *ctx, const struct k_choice *choice)
{
	struct k_choice *known = gemm_choices_find(ctx, &choice->product);
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

void gemm_choices_forget(struct k_context *ctx)
{
	free(ctx->choices);
	ctx->choices = NULL;
	ctx->n_choices = ctx->choices_room = 0;
}

int64_t k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max)
{
	if (max > 0 && ctx->n_choices > 0)
		memcpy(out, ctx->choices,
			(size_t)(max < ctx->n_choices ? max : ctx->n_choices) * sizeof *out);
	return ctx->n_choices;
}

int64_t k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n)
{
	int64_t changed = 0;

	for (int64_t i = 0; i < n; i++) {
		const struct k_choice *known = gemm_choices_find(ctx, &choices[i].product);

		if (known && memcmp(known, &choices[i], sizeof *known) == 0)
			continue;
		if (known)
			changed++;
		if (!gemm_choices_keep(ctx, &choices[i]))
			return -ENOMEM;
		gemm_plan_drop(ctx, &choices[i].product);
	}
	return changed;
}

/* While s is captured only the trials run. */
int k_choices_begin(struct k_stream *s, void *memory, int64_t bytes)
{
	int rc = k_graph_begin(s);

	if (rc)
		return rc;
	s->ctx->trials_took_bytes = 0;
	s->ctx->lent = memory;
	s->ctx->lent_bytes = (size_t)bytes;
	return 0;
}

int k_choices_end(struct k_stream *s)
{
	struct k_context *ctx = s->ctx;
	bool good = graph_discard(s, "k_choices_end");

	ctx->lent = NULL;
	ctx->lent_bytes = 0;
	/* a failed trial may still be filling the memory */
	good = context_check(ctx, "k_choices_end", cudaStreamSynchronize(ctx->internal)) && good;
	return good && !k_context_error(ctx) ? 0 : -EIO;
}

int64_t k_choices_took_bytes(const struct k_context *ctx)
{
	return ctx->trials_took_bytes;
}
