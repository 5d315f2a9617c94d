/*
 * training.h: everything that trains one configuration on one rank, built from what the engine
 * keeps warm: plan, model, optimizer, batch and step. Several configurations can be prepared on one
 * warm engine only one after another, because they share its memory.
 */
#ifndef GPT2D_ENGINE_TRAIN_TRAINING_H
#define GPT2D_ENGINE_TRAIN_TRAINING_H

#include <stddef.h>

#include "engine/train/memory_plan.h"
#include "engine/train/step.h"
#include "engine/train/warm.h"

struct training {
	struct warm *warm;
	const struct spec_config *config;
	struct arena arena;
	struct plan plan;
	struct activations_shape shape;
	struct model model;
	struct optimizer optimizer;
	struct batch batch;
	struct step step;
	int64_t elem_bytes;   /* of the compute type */
	int64_t device_bytes; /* of all buffers */
};

/* The device, and the limits of its memory. Zero before the first reading. */
struct training_facts {
	struct k_device_info device;   /* as memory_plan_limit leaves it */
	char limit[CGROUP_FILE_BYTES]; /* the file that memory_plan_limit names */
	int64_t read_ns;               /* monotonic */
};

/* Reads them, unless they were read less than max_age_ns ago. */
void training_read_facts(
	struct training_facts *facts, const struct k_context *ctx, int64_t max_age_ns);

/*
 * Fills the device of ctx, by its facts, and a training's memory there besides its buffers, with
 * this many ranks and threads. Fails as k_scratch_plan, with error.
 */
int training_device(struct k_context *ctx, int threads, const struct spec_config *config, int world,
	const struct training_facts *facts, struct memory_device *out, char *error,
	size_t error_bytes);

/*
 * For config->gpus ranks; this is rank w->rank. config and data outlive the training. 0, or with
 * error: -ENOTSUP if the device lacks the precision, -EINVAL if there is no such plan, -ENOMEM,
 * -EIO.
 */
int training_init(struct training *t, struct warm *w, const struct spec_config *config,
	const struct dataset *data, char *error, size_t error_bytes);
void training_finish(struct training *t);

/* Uses the ranks of group (NULL: alone) from here on. 0 or -ENOMEM. */
int training_join(struct training *t, struct collectives_group *group);

/*
 * Runs a step on a meaningless micro-batch, without collectives, so that the kernels make their
 * choices for new shapes, timed in the activations' memory while nothing else runs, and so that no
 * kernel is loaded in a step of the run (loading all kernels with the context,
 * CUDA_MODULE_LOADING=EAGER, takes 2 s per start). Parameters are zero, or those of an earlier
 * training; gradients and moments are undefined afterwards. Waits until it is done: 0,
 * -ENOTRECOVERABLE or -ETIMEDOUT with error.
 */
int training_try(struct training *t, char *error, size_t error_bytes);

/* Parameters from the seed, moments zero, no step trained; waits until it is done. */
void training_reset(struct training *t);

#endif
