/*
 * comparison_private.h: the figures that comparison.c gathers from segments and that
 * comparison_json.c writes. Only these two files include it.
 */
#ifndef GPT2D_PROTO_EXPERIMENT_COMPARISON_PRIVATE_H
#define GPT2D_PROTO_EXPERIMENT_COMPARISON_PRIVATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/spec/spec.h"
#include "proto/stats/stats.h"
#include "proto/stats/verdict.h"

/* Means over an arm's segments, weighted by measured tokens. null if a segment has none. */
enum { COMPARISON_MEANS = 13 };
struct comparison_mean {
	const char *key;    /* of the summary and of the comparison */
	const char *object; /* member of the summary that has it; NULL: the summary itself */
};
extern const struct comparison_mean comparison_means[COMPARISON_MEANS];

/* The largest change between an arm and the baseline that their different keys may cause. */
enum comparison_class {
	CLASS_NUMERICS,  /* losses bit-equal */
	CLASS_ORDER,     /* sums in another order: losses within COMPARISON_TOLERANCE */
	CLASS_PRECISION, /* the same tokens, other losses */
	CLASS_TRAINING,  /* another batch, model, ...: not the same work */
};
extern const char *const comparison_class_names[];
#define COMPARISON_TOLERANCE 1e-3

/* Segments of one arm in one block. */
struct comparison_cell {
	int64_t planned, done, stalled;
	int64_t tokens, tokens_total, attempted, applied;
	int64_t saving; /* steps beside a checkpoint, not measured */
	double seconds; /* elapsed in the measured steps */
	/* largest difference to the baseline's first segment; NaN: not comparable */
	double loss_diff;
	bool bit_equal;  /* the same for all losses */
	bool data_equal; /* the same token sequences */
};

struct comparison_block {
	int64_t number; /* from 1 */
	char void_reason[160];
	struct comparison_cell cells[SPEC_ARMS_MAX];
	bool begun, kept;
};

struct comparison_arm {
	size_t index; /* in the spec */
	const json_t *plan;
	int64_t segments, tokens, tokens_total, attempted, applied, skipped, stalled;
	int64_t checkpoints, saving; /* checkpoints written; steps beside them, not measured */
	double seconds, energy_j, peak_bytes, throttle;
	struct {
		double sum, tokens;
		bool missing;
	} means[COMPARISON_MEANS];
	int64_t *times; /* of measured steps, ns */
	size_t n_times;
	bool times_missing;
	double init_ns, switch_ns;
	int64_t n_switches;
	json_t *losses; /* at the end of each segment */
	bool failed;    /* the arm failed: blocks count without it */

	/* against the baseline */
	enum comparison_class class;
	json_t *differences;
	bool identical_plan, is_control;
	struct verdict_result result;
	struct verdict_input input;
	int64_t *q;
	char unequal[200]; /* why the work is not equal; empty: it is */
};

struct comparison {
	const struct spec *spec;
	const json_t *show;
	struct comparison_arm arms[SPEC_ARMS_MAX];
	size_t n_arms, baseline, control; /* control: n_arms if there is none */
	struct comparison_block *blocks;
	size_t n_blocks, n_kept;
	int64_t used, left_out;
	const json_t *reference; /* summary of the baseline's first segment that is done */
	struct trend drift;      /* of the kept blocks' total times, in ln(time) 1e-9 */
	bool spans_restart;
	double alpha;
};

/* A number of an object; NaN if it is not a number. */
double comparison_number(const json_t *object, const char *key);
/* How much faster the arm was, in ln 1e-9; per token if the arms measured different tokens. */
int64_t comparison_log_ratio(const struct comparison_cell *base, const struct comparison_cell *own);
json_t *comparison_json(const struct comparison *c);

#endif
