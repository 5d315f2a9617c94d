#include "kernels/cuda/gemm_trial_memory.cuh"

#include <string.h>

#include "kernels/cuda/gemm_wgmma.cuh"
#include "kernels/cuda/stream.cuh"

/*
 * In a step b was just written or read and is in the device's cache; a and the results are not. A
 * trial uses so many copies of these in turn that they do not fit into the cache.
 */
static const size_t beyond_cache_bytes = 128 << 20;

static size_t whole(size_t bytes)
{
	return (bytes + GEMM_ALIGNMENT_MAX - 1) / GEMM_ALIGNMENT_MAX * GEMM_ALIGNMENT_MAX;
}

static struct trial_memory describe(const struct k_context *ctx, enum k_dtype dtype,
	const struct gemm_call *c, bool beyond_cache)
{
	size_t elem = context_elem_bytes(dtype), copied;
	int64_t widest = c->m > c->n ? c->m : c->n;
	struct trial_memory m = {};

	m.bytes[TRIAL_A] = whole((size_t)(c->m * c->k) * elem);
	m.bytes[TRIAL_B] = whole((size_t)(c->k * c->n) * elem);
	m.bytes[TRIAL_D] = whole((size_t)(c->m * c->n) * elem);
	m.bytes[TRIAL_AUX] = c->aux ? m.bytes[TRIAL_D] : 0;
	m.bytes[TRIAL_BIAS] = whole((size_t)widest * elem);
	if (c->epilogue == GEMM_DGELU_SUMS)
		m.bytes[TRIAL_SUMS] = whole(
			(size_t)(gemm_wgmma_sum_parts_max(ctx, c->n) * c->m) * sizeof(float));
	m.bytes[TRIAL_WORKSPACE] = STREAM_WORKSPACE_BYTES + TRIAL_COUNTERS_BYTES;
	copied = m.bytes[TRIAL_A] + m.bytes[TRIAL_D] + m.bytes[TRIAL_AUX];
	m.copies = 1;
	if (beyond_cache && beyond_cache_bytes / copied >= TRIAL_TIMES_MAX)
		m.copies = TRIAL_TIMES_MAX;
	else if (beyond_cache)
		m.copies += (int)(beyond_cache_bytes / copied);
	for (int i = 0; i < TRIAL_PARTS; i++) {
		if (m.copies == 1 || (i != TRIAL_A && i != TRIAL_D && i != TRIAL_AUX))
			continue;
		m.step[i] = m.bytes[i];
		m.bytes[i] *= (size_t)m.copies;
	}
	return m;
}

/* Takes the next part from the lent memory at *used; false: no room. */
static bool place(size_t bytes, size_t lent_bytes, size_t *used)
{
	if (bytes > lent_bytes - *used)
		return false;
	*used += bytes;
	return true;
}

static bool take_own(struct k_context *ctx, struct trial_memory *m, int part)
{
	if (cudaMalloc(&m->part[part], m->bytes[part]) != cudaSuccess) {
		cudaGetLastError(); /* a trial may lack memory */
		m->part[part] = NULL;
		return false;
	}
	m->own[part] = true;
	return true;
}

bool gemm_trial_memory_take(struct k_context *ctx, const struct gemm_call *c, bool beyond_cache,
	struct trial_memory *out)
{
	struct trial_memory m = describe(ctx, ctx->dtype, c, beyond_cache);
	size_t used = 0, own = 0;
	bool good = true;

	for (int i = 0; i < TRIAL_PARTS && good; i++) {
		size_t from = used;

		if (m.bytes[i] == 0)
			continue;
		if (place(m.bytes[i], ctx->lent_bytes, &used)) {
			m.part[i] = (char *)ctx->lent + from;
			continue;
		}
		good = take_own(ctx, &m, i);
		own += m.bytes[i];
	}
	if (!good) {
		gemm_trial_memory_give_back(&m);
		return false;
	}
	if ((int64_t)own > ctx->trials_took_bytes)
		ctx->trials_took_bytes = (int64_t)own;
	*out = m;
	return true;
}

void gemm_trial_memory_give_back(struct trial_memory *m)
{
	for (int i = 0; i < TRIAL_PARTS; i++) {
		if (m->own[i])
			cudaFree(m->part[i]);
		m->part[i] = NULL;
		m->own[i] = false;
	}
}

size_t gemm_trial_memory_own_bytes(const struct k_context *ctx, enum k_dtype dtype,
	const struct gemm_call *c, size_t lent_bytes)
{
	const size_t block = 2 << 20; /* cudaMalloc's */
	struct trial_memory m = describe(ctx, dtype, c, true);
	size_t used = 0, own = 0;

	for (int i = 0; i < TRIAL_PARTS; i++) {
		if (!place(m.bytes[i], lent_bytes, &used))
			own += (m.bytes[i] + block - 1) / block * block;
	}
	return own;
}
