/*
 * plan.h: which range of the gradient arena is sent when, and which rank owns what. Pure functions
 * of (arena size, world, bucket sizes).
 *
 * The arena is laid out in the order in which backward completes gradients (arena.h), so bucket 0
 * is complete first. A bucket is a range of the arena; boundaries ignore tensor boundaries. Its
 * size is the requested one rounded up to world * PLAN_ALIGN_ELEMS, and the last bucket has the
 * rest; a request of more than the arena gives one bucket, the arena. Rank r owns slice r (of world
 * equal slices) of every reduce bucket.
 */
#ifndef GPT2D_ENGINE_TRAIN_PLAN_H
#define GPT2D_ENGINE_TRAIN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { PLAN_ALIGN_ELEMS = K_SUM_BLOCK_ELEMS, PLAN_BUCKETS_MAX = 4096 };

struct plan {
	int world;
	int64_t param_elems;  /* of the arena, those that are parameters; padding follows */
	int64_t arena_elems;  /* a multiple of world * PLAN_ALIGN_ELEMS */
	int64_t reduce_elems; /* effective reduce bucket */
	int64_t gather_elems; /* effective all-gather bucket: whole reduce buckets */
	int64_t n_reduce;     /* number of reduce buckets, 1..PLAN_BUCKETS_MAX */
	int64_t n_gather;
};

/*
 * The smallest reduce_bucket_size that keeps a plan within PLAN_BUCKETS_MAX; one less is refused.
 */
int64_t plan_smallest_bucket_elems(int64_t param_elems, int world);

/*
 * 0, or -EINVAL with error naming the requested and the smallest allowed size: more than
 * PLAN_BUCKETS_MAX buckets, or an all-gather bucket that, rounded up like the reduce bucket, is
 * smaller than the reduce bucket. An all-gather bucket is then rounded up to whole reduce buckets
 * and sent as one group of in-place all-gathers, one for each.
 */
int plan_make(struct plan *out, int64_t param_elems, int world, int64_t reduce_bucket_elems,
	int64_t gather_bucket_elems, char *error, size_t error_bytes);

/* Range i of the arena: reduce bucket, all-gather bucket. */
struct k_range plan_reduce_bucket(const struct plan *p, int64_t i);
struct k_range plan_gather_bucket(const struct plan *p, int64_t i);

/* Slice of reduce bucket i that rank owns. */
struct k_range plan_owned_slice(const struct plan *p, int64_t i, int rank);
int64_t plan_owned_elems(const struct plan *p, int rank);

/*
 * Number of reduce buckets that are complete once elements [0, complete) of the arena are; the
 * padding after the last parameter completes with it.
 */
int64_t plan_complete_buckets(const struct plan *p, int64_t complete);

/*
 * Elements one rank sends to other ranks in a step: at ZeRO-1 a reduce-scatter (or, with
 * reduce_scatter false, an all-reduce) and an all-gather, at ZeRO-0 an all-reduce. An all-reduce is
 * counted as a reduce-scatter and an all-gather of the same elements.
 */
struct plan_traffic {
	int64_t reduce_scatter_elems, all_gather_elems, all_reduce_elems;
};
/* Whether parameters are gathered: not at ZeRO-0, nor on one rank. */
bool plan_gathers(const struct plan *p, int zero_stage);
struct plan_traffic plan_step_traffic(const struct plan *p, int zero_stage, int reduce_scatter);

#endif
