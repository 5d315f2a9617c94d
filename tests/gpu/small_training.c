#include "tests/gpu/small_training.h"

#include "tests/unit/engine/tiny.h"

struct spec_config small_training_config(enum spec_precision precision)
{
	return (struct spec_config){
		.model = {.n_layer = 2,
			.n_head = 2,
			.n_embd = 128,
			.vocab_size = 1000,
			.n_positions = 64,
			.tied_head = true},
		.data_kind = SPEC_DATA_SYNTHETIC,
		.data_synthetic_tokens = 65536,
		.seq_len = 64,
		.seed = 3,
		.gpus = 1,
		.micro_batch = 2,
		.accumulation = 1,
		.batch = 2,
		.reduce_bucket_elems = 1 << 24,
		.allgather_bucket_elems = 1 << 24,
		.gradient_clipping = 1,
		.lr = 1e-3,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.decay = SPEC_DECAY_MATRICES,
		.precision = precision,
		.fp16_initial_scale_power = 8,
		.fp16_loss_scale_window = 4,
		.fp16_hysteresis = 1,
		.fp16_min_loss_scale = 1,
	};
}

uint64_t small_training_hash(const struct warm *w, const struct training *t)
{
	int64_t bytes = t->plan.param_elems * t->elem_bytes;
	void *host = k_alloc_host(w->ctx, (size_t)bytes);
	uint64_t h;

	if (!host)
		return 0;
	k_copy_out(w->compute, host, t->model.params, (size_t)bytes);
	k_stream_sync(w->compute, INT64_C(20000000000));
	h = tiny_hash(host, bytes);
	k_free_host(w->ctx, host);
	return h;
}

bool small_training_never(void *arg)
{
	return false;
}
