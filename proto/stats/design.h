/*
 * design.h: the order in which an experiment's arms run. A segment is fixed work after a switch; a
 * block is a seeded random order of all arms and then, if mirrored, that order backwards (two arms:
 * ABBA or BAAB). A run without arms is an experiment of one segment.
 */
#ifndef GPT2D_PROTO_STATS_DESIGN_H
#define GPT2D_PROTO_STATS_DESIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DESIGN_ARMS_MAX = 16 };

struct design_segment {
	int64_t block;    /* from 0 */
	int64_t position; /* in the block, from 0 */
	size_t arm;       /* from 0 */
};

size_t design_count(size_t n_arms, int64_t repetitions, bool mirrored);
/* out has room for design_count() segments. The same arguments give the same order. */
void design_order(size_t n_arms, int64_t repetitions, bool mirrored, int64_t seed,
	struct design_segment *out);

#endif
