/*
 * training.h: all that trains one configuration on one rank, put together out of what the engine
 * keeps warm: plan, model, optimizer, batch and step. Several configurations can be prepared on one
 * warm engine only one after another: they share its memory.
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

/*
 * The device of ctx and what a training of config takes there beside its buffers, in a world of so
 * many ranks with so many threads each. Fails as k_scratch_plan, and error says why.
 */
int training_device(struct k_context *ctx, int threads, const struct spec_config *config, int world,
	struct memory_device *out, char *error, size_t error_bytes);

/*
 * For config->gpus ranks, of which this is w->rank. config and data outlive the training. 0, or
 * with error: -ENOTSUP when the device lacks the precision, -EINVAL when there is no such plan,
 * -ENOMEM, -EIO.
 */
int training_init(struct training *t, struct warm *w, const struct spec_config *config,
	const struct dataset *data, char *error, size_t error_bytes);
void training_finish(struct training *t);

/* With the ranks of group (NULL: alone) from here on. 0 or -ENOMEM. */
int training_join(struct training *t, struct collectives_group *group);

/*
 * A step on a micro-batch without sense, but for what ranks do together: for what the kernels
 * choose when they first meet a shape, which they time in the activations' memory while nothing
 * runs, and so that none is loaded in a step of the run (to load all there are with the context,
 * CUDA_MODULE_LOADING=EAGER, takes 2 s of each start). Parameters
 * are zero, or those of an earlier training; gradients and moments afterwards are nobody's. Waits
 * until it is over: 0, -ENOTRECOVERABLE or -ETIMEDOUT with error.
 */
int training_try(struct training *t, char *error, size_t error_bytes);

/* Parameters from the seed, moments zero, nothing trained; waits until it is so. */
void training_reset(struct training *t);

#endif
