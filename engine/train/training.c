#include "engine/train/training.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/comm/nodes.h"
#include "proto/host/clock.h"
#include "proto/size.h"
#include "proto/host/starved.h"

/* of struct step_host, up to where a batch may start */
enum { STEP_HOST_BYTES = (sizeof(struct step_host) + 255) / 256 * 256 };

static enum k_dtype compute_dtype(enum spec_precision precision)
{
	static const enum k_dtype types[] = {
		[SPEC_FP32] = K_FP32,
		[SPEC_TF32] = K_TF32,
		[SPEC_BF16] = K_BF16,
		[SPEC_FP16] = K_FP16,
	};

	return types[precision];
}

static int no_memory(char *error, size_t error_bytes, const char *what)
{
	snprintf(error, error_bytes, "no memory for %s", what);
	return -ENOMEM;
}

static struct activations_shape activations_of(const struct spec_config *c, int64_t elem_bytes)
{
	return (struct activations_shape){
		.model = &c->model,
		.recompute = c->recompute,
		.B = c->micro_batch,
		.T = c->seq_len,
		.elem_bytes = elem_bytes,
		.real_bytes = (int64_t)sizeof(k_real),
	};
}

/* ---- memory ---- */

/* Memory of kernels besides the buffers. */
struct kernel_memory {
	int64_t scratch_bytes[K_SCRATCH_KINDS];
	int64_t tuning_bytes; /* while algorithms are chosen, beside the activations */
};

/* All 0 for a configuration that a check refuses for its size. As k_scratch_plan, with error. */
static int plan_kernels(struct k_context *ctx, int threads, const struct spec_config *config,
	struct kernel_memory *out, char *error, size_t error_bytes)
{
	const struct k_scratch_shape shape = {
		.dtype = compute_dtype(config->precision),
		.threads = threads,
		.B = config->micro_batch,
		.T = config->seq_len,
		.NH = config->model.n_head,
		.C = config->model.n_embd,
		.Vp = arena_vocab_padded(config->model.vocab_size),
	};
	const bool narrow = config->precision == SPEC_BF16 || config->precision == SPEC_FP16;
	struct activations_shape lent;
	const char *why;
	int rc;

	*out = (struct kernel_memory){0};
	if (memory_plan_beyond_reason(config))
		return 0;
	lent = activations_of(config, narrow ? 2 : (int64_t)sizeof(k_real));
	out->tuning_bytes = k_choices_bytes(ctx, &shape, activations_bytes(&lent));
	rc = k_scratch_plan(ctx, &shape, out->scratch_bytes);
	if (rc) {
		why = k_context_error(ctx);
		snprintf(error, error_bytes,
			"memory: the device does not report the memory of kernels: %s",
			why ? why : strerror(-rc));
	}
	return rc;
}

void training_read_facts(struct training_facts *f, const struct k_context *ctx, int64_t max_age_ns)
{
	const int64_t now_ns = clock_mono_ns();

	if (f->read_ns > 0 && now_ns - f->read_ns < max_age_ns)
		return;
	f->read_ns = now_ns;
	k_context_info(ctx, &f->device);
	memory_plan_limit(&f->device, f->limit);
}

int training_device(struct k_context *ctx, int threads, const struct spec_config *config, int world,
	const struct training_facts *facts, struct memory_device *out, char *error,
	size_t error_bytes)
{
	const struct k_device_info *info = &facts->device;
	struct kernel_memory kernels;
	int rc = plan_kernels(ctx, threads, config, &kernels, error, error_bytes);

	if (rc)
		return rc;
	memcpy(out->limit, facts->limit, sizeof(out->limit));
	out->backend = info->backend;
	out->total_bytes = info->memory_total_bytes;
	out->free_bytes = info->memory_free_bytes;
	out->comm_bytes = world > 1 ? collectives_scratch_bytes(world, (int)config->gpus) : 0;
	out->context_bytes = info->context_bytes;
	memcpy(out->scratch, kernels.scratch_bytes, sizeof(out->scratch));
	out->tuning_bytes = kernels.tuning_bytes;
	return 0;
}

/* Memory of a training before its first step. */
struct planned {
	int64_t bytes[WARM_SLOTS];
	struct memory_plan parts; /* as memory_plan_parts leaves it */
	/*
	 * besides the slots: while algorithms are chosen, and for a communicator still to be
	 * created
	 */
	int64_t tuning_bytes, comm_bytes;
};

static int plan_memory(
	const struct training *t, struct planned *out, char *error, size_t error_bytes)
{
	struct kernel_memory kernels;
	const struct spec_config *c = t->config;
	int64_t *bytes = out->bytes;
	int64_t owned = zero_owned_elems(&t->plan, c->zero_stage, t->warm->rank);
	struct memory_plan *n = &out->parts;
	int rc = plan_kernels(t->warm->ctx, t->warm->threads, c, &kernels, error, error_bytes);

	*n = (struct memory_plan){0};
	memory_plan_parts(n, &t->shape, t->plan.arena_elems, owned, kernels.scratch_bytes);
	bytes[WARM_PARAMS] = bytes[WARM_GRADS] = n->arena;
	bytes[WARM_MASTER] = n->master;
	bytes[WARM_MOMENT_M] = bytes[WARM_MOMENT_V] = n->moment;
	bytes[WARM_ACTIVATIONS] = n->activations + n->logits;
	bytes[WARM_BATCH] = batch_bytes(c->micro_batch, c->seq_len, c->accumulation);
	bytes[WARM_OPTIMIZER] = optimizer_small_bytes(&t->arena, &t->plan, c->zero_stage);
	bytes[WARM_SHARED] = STEP_SHARED_BYTES;
	memcpy(bytes + WARM_SCRATCH, kernels.scratch_bytes, sizeof(kernels.scratch_bytes));
	out->tuning_bytes = tuned_has(&t->warm->tuned, c) ? 0 : kernels.tuning_bytes;
	out->comm_bytes =
		t->warm->collectives ? collectives_growth(t->warm->collectives, (int)c->gpus) : 0;
	return rc;
}

struct memory {
	void *slot[WARM_SLOTS];
	struct step_host *host_step;
	void *host_batch;
};

static int take_host_memory(struct training *t, struct memory *m, char *error, size_t error_bytes)
{
	const struct spec_config *c = t->config;
	int64_t batch = batch_host_bytes(c->micro_batch, c->seq_len, c->accumulation);
	void *memory;

	if (warm_take_host(t->warm, STEP_HOST_BYTES + batch, &memory))
		return no_memory(error, error_bytes, "a batch");
	m->host_step = memory;
	m->host_batch = (char *)memory + STEP_HOST_BYTES;
	return 0;
}

/* Other users of the device's memory, as far as known. */
static const char *say_others(const struct training *t, char out[128])
{
	struct nvml_sample s;
	char size[SIZE_BYTES];

	out[0] = '\0';
	if (!t->warm->gpu_log || !gpu_log_latest(t->warm->gpu_log, &s) || s.others < 0)
		return out;
	if (s.others == 0)
		snprintf(out, 128, ", no other process computes on this GPU");
	else if (s.other_bytes < 0)
		snprintf(
			out, 128, ", other processes that compute on this GPU: %" PRId64, s.others);
	else
		snprintf(out, 128,
			", other processes that compute on this GPU: %" PRId64 ", process %" PRId64
			" holds %s",
			s.others, s.other_pid, size_text(s.other_bytes, size));
	return out;
}

/* Bytes that the plan would add to what this engine holds. */
static int64_t growth_of(const struct training *t, const struct planned *p)
{
	return warm_growth(t->warm, p->bytes) + p->tuning_bytes + p->comm_bytes;
}

/* In the words of a check: planned and missing memory, its users, and what takes less. */
static int refuse_memory(const struct training *t, const struct planned *p, int64_t free_bytes,
	char *error, size_t error_bytes)
{
	const struct memory_device device = {
		.free_bytes = free_bytes,
		.comm_bytes = p->comm_bytes,
		.tuning_bytes = p->tuning_bytes,
	};
	struct memory_plan n = p->parts;
	struct k_device_info info;
	char others[128];

	k_context_info(t->warm->ctx, &info);
	n.batch = p->bytes[WARM_BATCH];
	n.ranks = 1;
	n.together = info.pci == NULL &&
		nodes_ranks(t->warm->nodes, (int)t->config->gpus, t->warm->rank) > 1;
	n.total = p->tuning_bytes + p->comm_bytes;
	for (int i = 0; i < WARM_SLOTS; i++)
		n.total += p->bytes[i];
	n.planned = n.total;
	memory_plan_none_left(t->config, &device, &n, n.total - growth_of(t, p),
		say_others(t, others), error, error_bytes);
	return -ENOMEM;
}

/* 0: not known. */
static int64_t find_free(const struct training *t)
{
	struct training_facts facts = {0};

	training_read_facts(&facts, t->warm->ctx, 0);
	return facts.device.memory_free_bytes;
}

static int take_memory(struct training *t, struct memory *m, char *error, size_t error_bytes)
{
	struct planned p;
	char size[SIZE_BYTES];
	int64_t free_bytes;
	int rc = plan_memory(t, &p, error, error_bytes);

	if (rc)
		return rc;
	free_bytes = find_free(t);
	/* memory left by another shape may be the only obstacle */
	if (free_bytes > 0 && growth_of(t, &p) > free_bytes && warm_shrink(t->warm, p.bytes) > 0)
		free_bytes = find_free(t);
	if (free_bytes > 0 && growth_of(t, &p) > free_bytes)
		return refuse_memory(t, &p, free_bytes, error, error_bytes);
	for (int i = 0; i < WARM_SLOTS; i++) {
		const int64_t bytes = p.bytes[i];

		m->slot[i] = NULL;
		t->device_bytes += bytes;
		if (bytes && warm_take(t->warm, (enum warm_slot)i, bytes, &m->slot[i])) {
			snprintf(error, error_bytes, "memory: %s more were refused%s",
				size_text(bytes, size), starved_memory_text());
			return -ENOMEM;
		}
	}
	return take_host_memory(t, m, error, error_bytes);
}

/* ---- parts ---- */

static void fill_step(struct training *t, const struct dataset *data, const struct memory *m)
{
	struct warm *w = t->warm;
	struct k_device_info info;

	k_context_info(w->ctx, &info);
	t->step = (struct step){
		.config = t->config,
		.ctx = w->ctx,
		.compute = w->compute,
		.comm = w->comm,
		.rank = w->rank,
		.model = &t->model,
		.zero = &w->zero,
		.optimizer = &t->optimizer,
		.batch = &t->batch,
		.data = data,
		.time = &w->time,
		.shared = m->slot[WARM_SHARED],
		.host = m->host_step,
		.shared_in = w->shared_in,
		.shared_out = w->shared_out,
		.timeout_ns = K_WAIT_NS,
		.graphs = info.graphs && !w->no_graphs ? &w->graphs : NULL,
	};
}

/*
 * The key of a captured step: addresses, sizes and constants of its operations. Streams, events and
 * the device are this engine's and do not change.
 */
static void fill_key(struct training *t)
{
	const struct spec_config *c = t->config;
	const struct spec_model *m = &c->model;
	const void *const addresses[] = {t->model.params, t->model.grads, t->model.acts,
		t->optimizer.adamw.master, t->optimizer.adamw.m, t->optimizer.adamw.v,
		t->optimizer.state, t->batch.tokens, t->batch.host_tokens, t->step.shared,
		t->step.host};
	const int64_t numbers[] = {m->n_layer, m->n_head, m->n_embd, m->vocab_size, m->n_positions,
		m->tied_head, m->gelu, c->recompute, c->micro_batch, c->accumulation, c->batch,
		c->seq_len, c->precision, c->seed, c->decay, c->zero_stage, c->gpus,
		t->plan.arena_elems, t->plan.n_reduce, t->plan.reduce_elems, t->plan.gather_elems,
		c->reduce_scatter, c->overlap_comm, t->warm->ranks_graphs,
		t->optimizer.adamw.n_ranges, t->optimizer.adamw.n_decayed};
	const double reals[] = {m->dropout, c->beta1, c->beta2, c->eps, c->weight_decay};

	graphs_key_add(&t->step.key, addresses, sizeof(addresses));
	graphs_key_add(&t->step.key, numbers, sizeof(numbers));
	graphs_key_add(&t->step.key, reals, sizeof(reals));
}

static int make_parts(struct training *t, const struct memory *m)
{
	const struct spec_config *c = t->config;
	struct warm *w = t->warm;
	struct model_buffers mb = {
		.params = m->slot[WARM_PARAMS],
		.grads = m->slot[WARM_GRADS],
		.acts = m->slot[WARM_ACTIVATIONS],
	};
	struct optimizer_buffers ob = {
		.params = m->slot[WARM_PARAMS],
		.grads = m->slot[WARM_GRADS],
		.master = m->slot[m->slot[WARM_MASTER] ? WARM_MASTER : WARM_PARAMS],
		.m = m->slot[WARM_MOMENT_M],
		.v = m->slot[WARM_MOMENT_V],
		.small = m->slot[WARM_OPTIMIZER],
		.scratch = m->slot[WARM_ACTIVATIONS],
		.scratch_elems = activations_bytes(&t->shape) / (int64_t)sizeof(k_real),
	};
	struct optimizer_options options = {
		.ctx = w->ctx,
		.stream = w->compute,
		.config = c,
		.arena = &t->arena,
		.plan = &t->plan,
		.rank = w->rank,
	};
	int rc;

	model_init(&t->model, w->ctx, w->compute, &t->arena, &t->shape, &mb);
	batch_init(&t->batch, w->compute, c->micro_batch, c->seq_len, c->accumulation,
		m->host_batch, m->slot[WARM_BATCH]);
	rc = optimizer_init(&t->optimizer, &options, &ob);
	return rc ? rc : timeline_reserve(&w->time, step_marks(c));
}

int training_init(struct training *t, struct warm *w, const struct spec_config *config,
	const struct dataset *data, char *error, size_t error_bytes)
{
	const struct spec_config *c = config;
	struct memory memory;
	int rc;

	*t = (struct training){.warm = w, .config = config};
	if (k_context_set_dtype(w->ctx, compute_dtype(c->precision))) {
		snprintf(error, error_bytes, "this engine does not compute in that precision");
		return -ENOTSUP;
	}
	t->elem_bytes = (int64_t)k_elem_bytes(w->ctx);
	t->shape = activations_of(c, t->elem_bytes);
	arena_init(&t->arena, &c->model);
	rc = plan_make(&t->plan, t->arena.param_elems, (int)c->gpus, c->reduce_bucket_elems,
		c->allgather_bucket_elems, error, error_bytes);
	if (rc)
		goto fail;
	rc = take_memory(t, &memory, error, error_bytes);
	if (rc)
		goto fail;
	fill_step(t, data, &memory);
	rc = make_parts(t, &memory);
	if (rc == -ENOMEM) {
		no_memory(error, error_bytes, "ranges or events");
		goto fail;
	}
	if (rc) {
		step_failure(&t->step, rc, error, error_bytes);
		rc = -EIO;
		goto fail;
	}
	fill_key(t);
	return 0;

fail:
	arena_finish(&t->arena);
	return rc;
}

void training_finish(struct training *t)
{
	arena_finish(&t->arena);
}

int training_join(struct training *t, struct collectives_group *group)
{
	const struct zero_segment z = {
		.group = group,
		.plan = &t->plan,
		.stage = t->config->zero_stage,
		.reduce_scatter = t->config->reduce_scatter,
		.overlap = t->config->overlap_comm,
		.deferred = t->warm->ranks_graphs && !t->warm->no_graphs,
		.params = t->model.params,
		.grads = t->model.grads,
		.n_layer = t->config->model.n_layer,
	};

	t->step.group = group;
	t->step.collectives = group ? t->warm->collectives : NULL;
	return zero_begin(&t->warm->zero, &z);
}

static void try_passes(struct training *t)
{
	const struct spec_config *c = t->config;
	const struct step *s = &t->step;
	struct model_pass pass = {
		.tokens = batch_inputs(&t->batch, 0),
		.dropout = c->model.dropout,
		.seed = (uint64_t)c->seed,
		.dropout_from = &t->optimizer.state->dropout,
		.first = true,
	};

	model_forward(&t->model, &pass, NULL);
	model_loss(&t->model, t->batch.losses, batch_targets(&t->batch, 0), 1, NULL);
	k_sum_losses(s->compute, s->shared + STEP_SHARED_LOSS, t->batch.losses,
		t->batch.rows * t->batch.T);
	model_backward(&t->model, &pass, NULL);
	pass.first = false;
	if (c->accumulation > 1)
		model_backward(&t->model, &pass, NULL);
}

/*
 * The choices are made before anything of the shape runs: until then the activations are unused,
 * and the trials can use them. All this memory is this rank's alone, no peer reads it.
 */
static int choose(struct training *t, char *error, size_t error_bytes)
{
	const struct step *s = &t->step;
	const char *why;
	int rc = k_stream_sync(s->compute, s->timeout_ns);

	if (rc)
		return step_failure(s, rc, error, error_bytes);
	rc = k_choices_begin(s->compute, t->model.acts, activations_bytes(&t->shape));
	if (rc == -ENOTSUP)
		return 0;
	if (!rc) {
		try_passes(t);
		rc = k_choices_end(s->compute);
	}
	if (!rc || k_context_error(s->ctx))
		return step_failure(s, rc, error, error_bytes);
	why = k_graph_error(s->ctx);
	snprintf(error, error_bytes, "choosing algorithms: %s", why ? why : strerror(-rc));
	return -ENOTRECOVERABLE;
}

int training_try(struct training *t, char *error, size_t error_bytes)
{
	const struct spec_config *c = t->config;
	const struct step *s = &t->step;
	int rc;

	k_zero(s->compute, t->batch.tokens,
		(size_t)batch_tokens_bytes(c->micro_batch, c->seq_len, c->accumulation));
	rc = choose(t, error, error_bytes);
	if (rc)
		return rc;
	try_passes(t);
	s->host->state = (struct k_step_state){.loss_scale = 1, .t = 1};
	optimizer_try(&t->optimizer, &s->host->state);
	return step_failure(s, k_stream_sync(s->compute, s->timeout_ns), error, error_bytes);
}

void training_reset(struct training *t)
{
	/* the padding of the arena is summed and sent as well */
	k_zero(t->warm->compute, t->model.grads, (size_t)(t->plan.arena_elems * t->elem_bytes));
	optimizer_reset(&t->optimizer, &t->arena, &t->config->model, (uint64_t)t->config->seed);
	/* a failure is reported by the first step too */
	k_stream_sync(t->warm->compute, K_WAIT_NS);
	step_reset(&t->step);
}
