/*
 * trial.h: short trainings of several ranks, one process and GPU each, for programs that compare
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
	struct collectives_group *group; /* NULL: a single rank, as in the engine */
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
 * Adds the counts to the ranks' shared memory. A failed rank exits without cleanup, since a peer
 * may be gone.
 */
void trial_finish(struct trial *m, struct ranks_self *self);
/* In main: adds all ranks' counts and exit statuses to passed and failed. */
void trial_count(const struct ranks_end *end, int world, int *passed, int *failed);

/* Counts a check; rank 0 or a failure prints a line. */
void trial_check(struct trial *m, const char *what, const char *part, bool good);

/* small_training_config for so many ranks: ZeRO-1, 2 micro-batches, all options on. */
struct spec_config trial_config(enum spec_precision precision, int world);

/*
 * A whole training of config->optimizer_steps, with a validation in its middle. False: it failed
 * with a message.
 */
bool trial_run(
	struct trial *m, const struct spec_config *config, bool graphs, struct trial_outcome *out);

/* To the bit; prints the first difference. */
bool trial_same(const struct trial_outcome *a, const struct trial_outcome *b);

/* Whether all of `steps` ran as graphs, if there are graphs. */
bool trial_replayed(const struct trial *m, const struct trial_outcome *o, int64_t steps);

#endif
