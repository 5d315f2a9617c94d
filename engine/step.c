#include "engine/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/schedule.h"

int64_t step_marks(const struct spec_config *config)
{
	/* per micro-batch: data, forward, backward; then optimizer and the two ends */
	return 3 * config->accumulation + 8 + zero_marks(config->model.n_layer);
}

void step_reset(struct step *s)
{
	s->attempted = 0;
	s->applied = 0;
	loss_scale_init(&s->scale, s->config);
	timeline_reset(s->time);
}

/* ---- the parts ---- */

static void set_state(struct step *s)
{
	s->host->state = (struct k_step_state){
		.lr = schedule_lr(s->config, s->applied),
		.clip = s->config->gradient_clipping,
		.loss_scale = s->scale.scale,
		.t = s->applied + 1,
	};
	k_copy_in(s->compute, s->optimizer->state, &s->host->state, sizeof(s->host->state));
	k_zero(s->compute, s->model->grads,
		(size_t)s->optimizer->plan->arena_elems * k_elem_bytes(s->ctx));
	batch_reset(s->batch);
}

static struct model_pass make_pass(const struct step *s, int64_t first_sample, double dropout)
{
	return (struct model_pass){
		.tokens = batch_inputs(s->batch),
		.dropout = dropout,
		.seed = (uint64_t)s->config->seed,
		.first_sample = first_sample,
	};
}

static void write_shared(void *arg)
{
	struct step *s = arg;

	s->host->shared[STEP_SHARED_LOSS] = s->batch->loss_sum;
}

/*
 * The sum of the losses, the wish to stop and a failure to read go round while backward runs. A
 * rank that cannot read goes through the step like all others, so that nobody waits for it.
 */
static void share_loss(struct step *s, bool stop, bool failed)
{
	size_t bytes = sizeof(s->host->shared);

	s->host->shared[STEP_SHARED_STOP] = stop ? 1 : 0;
	s->host->shared[STEP_SHARED_FAILED] = failed ? 1 : 0;
	k_stream_host(s->compute, write_shared, s);
	if (!s->group)
		return;
	k_copy_in(s->compute, s->shared, s->host->shared, bytes);
	k_event_record(s->shared_in, s->compute);
	k_stream_wait(s->comm, s->shared_in);
	collectives_all_reduce(
		s->group, s->shared, STEP_SHARED, COLLECTIVES_DOUBLE, COLLECTIVES_SUM, s->comm);
	k_copy_out(s->comm, s->host->shared, s->shared, bytes);
	k_event_record(s->shared_out, s->comm);
}

/* Until the compute stream is done and the shared sums are here. */
static int wait_for_all(struct step *s, char *error, size_t error_bytes)
{
	int rc = k_stream_sync(s->compute, s->timeout_ns);

	if (s->group && !rc)
		rc = k_event_sync(s->shared_out, s->timeout_ns);
	if (s->collectives && collectives_error(s->collectives)) {
		snprintf(error, error_bytes, "%s", collectives_error(s->collectives));
		return -EPIPE;
	}
	if (k_context_error(s->ctx)) {
		snprintf(error, error_bytes, "%s", k_context_error(s->ctx));
		return -ENOTRECOVERABLE;
	}
	if (rc)
		snprintf(error, error_bytes, "device: %s", strerror(-rc));
	return rc;
}

static int data_failure(const struct step *s, int own, char *error, size_t error_bytes)
{
	if (own)
		return own;
	if (s->host->shared[STEP_SHARED_FAILED] > 0) {
		snprintf(error, error_bytes, "another rank could not read its data");
		return -ECANCELED;
	}
	return 0;
}

static void measure_step(struct step *s, struct measure_step *out)
{
	int64_t ns[TIMELINE_PHASES], tokens = s->config->batch * s->config->seq_len;
	struct timespec now;

	timeline_total(s->time, ns);
	clock_gettime(CLOCK_REALTIME, &now);
	*out = (struct measure_step){
		.data_ns = ns[TIMELINE_DATA],
		.forward_ns = ns[TIMELINE_FORWARD],
		.backward_ns = ns[TIMELINE_BACKWARD],
		.exposed_comm_ns = ns[TIMELINE_EXPOSED],
		.optimizer_ns = ns[TIMELINE_OPTIMIZER],
		.loss = s->host->shared[STEP_SHARED_LOSS] / (double)tokens,
		.grad_norm = s->host->state.grad_norm,
		.lr = s->host->state.lr,
		.loss_scale = s->host->state.loss_scale,
		.skipped = s->host->state.skip,
		.end_utc_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
	};
	for (int i = 0; i < TIMELINE_PHASES; i++)
		out->step_ns += ns[i];
}

/* ---- the step ---- */

int step_run(struct step *s, bool stop, struct step_result *out, char *error, size_t error_bytes)
{
	const struct spec_config *c = s->config;
	struct model_hooks forward_hooks = zero_forward_hooks(s->zero), backward_hooks;
	double scale = s->scale.scale / (double)(c->batch * c->seq_len);
	int64_t sample = s->attempted * c->batch + s->rank * c->accumulation * c->micro_batch;
	int rc, data_rc = 0;

	timeline_start(s->time);
	set_state(s);

	for (int64_t micro = 0; micro < c->accumulation; micro++, sample += c->micro_batch) {
		bool last = micro + 1 == c->accumulation;
		struct model_pass pass;

		timeline_enter(s->time, TIMELINE_DATA);
		if (!data_rc)
			data_rc = batch_read(s->batch, s->data, sample, error, error_bytes);
		pass = make_pass(s, sample, c->model.dropout);

		timeline_enter(s->time, TIMELINE_FORWARD);
		model_forward(s->model, &pass, &forward_hooks);
		model_loss(s->model, s->batch->losses, batch_targets(s->batch), scale);
		batch_collect(s->batch);
		if (last)
			share_loss(s, stop, data_rc != 0);

		/*
		 * gradients add up over the micro-batches; the last one lets the buckets go as they
		 * complete
		 */
		timeline_enter(s->time, TIMELINE_BACKWARD);
		if (last)
			backward_hooks = zero_backward_hooks(s->zero);
		model_backward(s->model, &pass, last ? &backward_hooks : NULL);
	}
	zero_reduce_finish(s->zero);

	timeline_enter(s->time, TIMELINE_OPTIMIZER);
	optimizer_norm(s->optimizer, s->zero);
	optimizer_update(s->optimizer);
	k_copy_out(s->compute, &s->host->state, s->optimizer->state, sizeof(s->host->state));
	zero_gather(s->zero);
	timeline_enter(s->time, TIMELINE_OTHER);

	rc = wait_for_all(s, error, error_bytes);
	if (!rc)
		rc = data_failure(s, data_rc, error, error_bytes);
	if (rc)
		return rc;

	s->attempted++;
	if (!s->host->state.skip)
		s->applied++; /* the schedule and AdamW's time stand still on a skipped step */
	if (c->precision == SPEC_FP16)
		loss_scale_update(&s->scale, s->host->state.skip != 0);

	out->stop = s->host->shared[STEP_SHARED_STOP] > 0;
	measure_step(s, &out->measure);
	return 0;
}

/* ---- validation ---- */

/* One micro-batch and, after it, the sums over all ranks so far. */
static int validate_one(struct step *s, const struct dataset *data, int64_t i,
	const struct step_asked *asked, char *error, size_t error_bytes)
{
	const struct spec_config *c = s->config;
	struct model_hooks hooks = zero_forward_hooks(s->zero);
	int64_t first = (i * c->gpus + s->rank) * c->micro_batch;
	int rc, data_rc = batch_read(s->batch, data, first, error, error_bytes);
	struct model_pass pass = make_pass(s, first, 0);

	model_forward(s->model, &pass, &hooks);
	model_loss(s->model, s->batch->losses, batch_targets(s->batch), 0);
	batch_collect(s->batch);
	share_loss(s, asked->stop(asked->arg), data_rc != 0);
	rc = wait_for_all(s, error, error_bytes);
	return rc ? rc : data_failure(s, data_rc, error, error_bytes);
}

int step_validate(struct step *s, const struct dataset *data, int64_t steps,
	const struct step_asked *asked, double *loss, char *error, size_t error_bytes)
{
	const struct spec_config *c = s->config;
	int64_t tokens = steps * c->gpus * c->micro_batch * c->seq_len;
	int rc;

	batch_reset(s->batch);
	timeline_start(s->time); /* what is awaited here belongs to no step */
	for (int64_t i = 0; i < steps; i++) {
		rc = validate_one(s, data, i, asked, error, error_bytes);
		if (rc)
			return rc;
		if (s->host->shared[STEP_SHARED_STOP] > 0 && i + 1 < steps)
			return -EINTR;
	}
	*loss = s->host->shared[STEP_SHARED_LOSS] / (double)tokens;
	return 0;
}
