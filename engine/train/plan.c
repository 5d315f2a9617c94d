#include "engine/train/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* A bucket boundary is a multiple of this, so that all slices are equal and aligned. */
static int64_t unit_elems(int world)
{
	return (int64_t)world * PLAN_ALIGN_ELEMS;
}

static int64_t units(int64_t elems, int world)
{
	int64_t unit = unit_elems(world);

	return elems / unit + (elems % unit != 0);
}

static int64_t min_elems(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

int64_t plan_smallest_bucket_elems(int64_t param_elems, int world)
{
	int64_t smallest_units = ceil_div(units(param_elems, world), PLAN_BUCKETS_MAX);

	/* the smallest size that is rounded up to this many units */
	return (smallest_units - 1) * unit_elems(world) + 1;
}

/* Requested size to effective size; beyond the arena it is the arena (and nothing can overflow). */
static int64_t effective_elems(int64_t asked, int64_t arena_elems, int world)
{
	if (asked >= arena_elems)
		return arena_elems;
	return units(asked, world) * unit_elems(world);
}

int plan_make(struct plan *out, int64_t param_elems, int world, int64_t reduce_bucket_elems,
	int64_t gather_bucket_elems, char *error, size_t error_bytes)
{
	struct plan p = {.world = world, .param_elems = param_elems};
	int64_t gather;

	if (world < 1 || param_elems < 1 || reduce_bucket_elems < 1 || gather_bucket_elems < 1) {
		snprintf(error, error_bytes,
			"bucket plan: at least 1 of each expected, found %" PRId64
			" parameters, %d ranks, reduce_bucket_size %" PRId64
			", allgather_bucket_size %" PRId64,
			param_elems, world, reduce_bucket_elems, gather_bucket_elems);
		return -EINVAL;
	}
	p.arena_elems = units(param_elems, world) * unit_elems(world);
	p.reduce_elems = effective_elems(reduce_bucket_elems, p.arena_elems, world);
	p.n_reduce = ceil_div(p.arena_elems, p.reduce_elems);
	if (p.n_reduce > PLAN_BUCKETS_MAX) {
		snprintf(error, error_bytes,
			"reduce_bucket_size: %" PRId64 " elements make %" PRId64
			" buckets of %" PRId64 " for %" PRId64
			" parameters on %d rank%s, at most %d allowed:"
			" at least %" PRId64 " elements",
			reduce_bucket_elems, p.n_reduce, p.reduce_elems, param_elems, world,
			world == 1 ? "" : "s", PLAN_BUCKETS_MAX,
			plan_smallest_bucket_elems(param_elems, world));
		return -EINVAL;
	}
	gather = effective_elems(gather_bucket_elems, p.arena_elems, world);
	if (gather < p.reduce_elems) {
		snprintf(error, error_bytes,
			"allgather_bucket_size: %" PRId64 " elements are fewer than the"
			" effective reduce bucket of %" PRId64 ": at least %" PRId64 " elements",
			gather_bucket_elems, p.reduce_elems,
			p.reduce_elems - unit_elems(world) + 1);
		return -EINVAL;
	}
	gather = ceil_div(gather, p.reduce_elems) * p.reduce_elems;
	p.gather_elems = min_elems(gather, p.arena_elems);
	p.n_gather = ceil_div(p.arena_elems, p.gather_elems);
	*out = p;
	return 0;
}

static struct k_range bucket(const struct plan *p, int64_t elems, int64_t i)
{
	int64_t first = i * elems;

	return (struct k_range){.first = first, .n = min_elems(elems, p->arena_elems - first)};
}

struct k_range plan_reduce_bucket(const struct plan *p, int64_t i)
{
	return bucket(p, p->reduce_elems, i);
}

struct k_range plan_gather_bucket(const struct plan *p, int64_t i)
{
	return bucket(p, p->gather_elems, i);
}

struct k_range plan_owned_slice(const struct plan *p, int64_t i, int rank)
{
	struct k_range r = plan_reduce_bucket(p, i);
	int64_t slice = r.n / p->world;

	return (struct k_range){.first = r.first + rank * slice, .n = slice};
}

int64_t plan_owned_elems(const struct plan *p, int rank)
{
	(void)rank; /* slices of a bucket are equal */
	return p->arena_elems / p->world;
}

int64_t plan_complete_buckets(const struct plan *p, int64_t complete)
{
	/* after the last parameter is padding, which no gradient reaches */
	if (complete >= p->param_elems)
		return p->n_reduce;
	return complete / p->reduce_elems;
}

bool plan_gathers(const struct plan *p, int zero_stage)
{
	return zero_stage >= 1 && p->world > 1;
}

struct plan_traffic plan_step_traffic(const struct plan *p, int zero_stage, int reduce_scatter)
{
	/* a rank sends the other ranks' slices once, or its own slice to each of them */
	int64_t to_others = p->arena_elems / p->world * (p->world - 1);
	struct plan_traffic t = {0};

	if (zero_stage == 0) {
		t.all_reduce_elems = 2 * to_others;
		return t;
	}
	if (reduce_scatter)
		t.reduce_scatter_elems = to_others;
	else
		t.all_reduce_elems = 2 * to_others;
	t.all_gather_elems = to_others;
	return t;
}
