#include "tests/unit/engine/tiny.h"

#include <stdio.h>
#include <string.h>

struct spec_config tiny_config(int world, int64_t accumulation, int64_t micro_batch)
{
	return (struct spec_config){
		.model = {.n_layer = 2,
			.n_head = 2,
			.n_embd = 16,
			.vocab_size = 61,
			.n_positions = 12,
			.tied_head = true},
		.data_kind = SPEC_DATA_SYNTHETIC,
		.data_synthetic_tokens = 4096,
		.seq_len = 8,
		.seed = 3,
		.gpus = world,
		.micro_batch = micro_batch,
		.accumulation = accumulation,
		.batch = micro_batch * accumulation * world,
		.zero_stage = 1,
		.reduce_bucket_elems = 1 << 20,
		.allgather_bucket_elems = 1 << 20,
		.overlap_comm = true,
		.reduce_scatter = true,
		.gradient_clipping = 0.5,
		.lr = 3e-3,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.decay = SPEC_DECAY_MATRICES,
	};
}

int tiny_warm(struct warm *w, struct ranks_self *self)
{
	*w = (struct warm){
		.rank = self->rank,
		.world = self->world,
		.threads = 1,
		.ctx = self->ctx,
		.compute = self->compute,
		.comm = self->comm,
		.collectives = self->world > 1 ? self->c : NULL,
	};
	return warm_init(w);
}

int tiny_open(struct training *t, struct dataset *data, struct warm *w,
	struct collectives_group *group, const struct spec_config *config)
{
	char error[512] = "";
	int rc = dataset_open(data, config, false, error, sizeof(error));

	if (rc)
		goto out;
	rc = training_init(t, w, config, data, error, sizeof(error));
	if (rc)
		goto out_data;
	rc = training_join(t, group);
	if (!rc)
		return 0;
	snprintf(error, sizeof(error), "%s", strerror(-rc));
	training_finish(t);
out_data:
	dataset_close(data);
out:
	fprintf(stderr, "rank %d: %s\n", w->rank, error);
	return rc;
}

void tiny_close(struct training *t, struct dataset *data)
{
	training_finish(t);
	dataset_close(data);
}

uint64_t tiny_hash(const void *memory, int64_t bytes)
{
	const unsigned char *at = memory;
	uint64_t h = 1469598103934665603U;

	for (int64_t i = 0; i < bytes; i++)
		h = (h ^ at[i]) * 1099511628211U;
	return h;
}
