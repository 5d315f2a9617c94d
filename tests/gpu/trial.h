/*
 * trial.h: short trainings of several ranks, each a process with its GPU, for programs that compare
 * them.
 */
#ifndef GPT2D_TESTS_GPU_TRIAL_H
#define GPT2D_TESTS_GPU_TRIAL_H

#include "tests/gpu/small_training.h"
#include "tests/unit/engine/ranks.h"

enum { TRIAL_STEPS_MAX = 512 };

/* One rank. */
struct trial {
	struct warm w;
	struct collectives_group *group; /* NULL: alone, as the engine has it */
	bool graphs;
	int passed, failed;
};

struct trial_outcome {
	double loss[TRIAL_STEPS_MAX], norm[TRIAL_STEPS_MAX], val_loss;
	int64_t replayed, median_ns, capture_ns, exposed_ns;
	uint64_t params;
	struct collectives_bytes sent;
	char no_graph[256];
};

/* 0 or a negative errno. */
int trial_init(struct trial *m, struct ranks_self *self);
/*
 * Counts go to the shared memory of the ranks; those of a failed rank are not taken down in order,
 * since a peer may be gone: the process ends.
 */
void trial_finish(struct trial *m, struct ranks_self *self);
/* In main: what all ranks counted and how they ended; adds to passed and failed. */
void trial_count(const struct ranks_end *end, int world, int *passed, int *failed);

/* A line, of rank 0 or of a failure, and counts it. */
void trial_check(struct trial *m, const char *what, const char *part, bool good);

/* small_training_config for so many ranks: ZeRO-1, 2 micro-batches, everything on. */
struct spec_config trial_config(enum spec_precision precision, int world);

/*
 * A whole training of config->optimizer_steps, with a validation in its middle. False: it did not
 * work out, and was said why.
 */
bool trial_run(
	struct trial *m, const struct spec_config *config, bool graphs, struct trial_outcome *out);

/* To the bit; the first difference is printed. */
bool trial_same(const struct trial_outcome *a, const struct trial_outcome *b);

/* All of `steps` were launched as graphs, where there are any. */
bool trial_replayed(const struct trial *m, const struct trial_outcome *o, int64_t steps);

#endif
