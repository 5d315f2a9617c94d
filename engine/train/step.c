#include "engine/train/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/comm/patience.h"
#include "engine/train/schedule.h"
#include "proto/host/clock.h"

int64_t step_marks(const struct spec_config *config)
{
	/* data, other, per micro-batch forward and backward, optimizer */
	return 2 * config->accumulation + 3 + zero_marks(config->model.n_layer);
}

static void give_up_graphs(struct step *s, const char *why)
{
	snprintf(s->no_graph, sizeof(s->no_graph), "%s", why);
	s->graphs = NULL;
}

void step_reset(struct step *s)
{
	s->attempted = 0;
	s->applied = 0;
	s->resumed = 0;
	s->graph = NULL;
	s->replayed = 0;
	s->capture_ns = 0;
	s->single_ns = 0;
	s->no_graph[0] = '\0';
	loss_scale_init(&s->scale, s->config);
	timeline_reset(s->time);
	if (s->graphs && s->group && !s->zero->deferred)
		give_up_graphs(s, "there is more than one rank");
	if (s->graphs && !graphs_key_fits(&s->key))
		give_up_graphs(s, "its key is too long");
}

void step_resume(
	struct step *s, int64_t attempted, int64_t applied, const struct loss_scale *scale)
{
	s->attempted = s->resumed = attempted;
	s->applied = applied;
	s->scale = *scale;
}

/* ---- the parts ---- */

/* This rank's values of the step, for the device to read. */
static void write_host(struct step *s, int64_t sample, bool stop, bool failed)
{
	s->host->own[STEP_SHARED_LOSS] = 0;
	s->host->own[STEP_SHARED_STOP] = stop ? 1 : 0;
	s->host->own[STEP_SHARED_FAILED] = failed ? 1 : 0;
	s->host->state = (struct k_step_state){
		.lr = schedule_lr(s->config, s->applied),
		.clip = s->config->gradient_clipping,
		.loss_scale = s->scale.scale,
		.t = s->applied + 1,
		.dropout = model_dropout_from(&s->config->model, sample),
	};
}

static void set_state(struct step *s)
{
	k_copy_in(s->compute, s->shared, s->host->own, sizeof(s->host->own));
	k_copy_in(s->compute, s->optimizer->state, &s->host->state, sizeof(s->host->state));
	/* forward does not need them */
	model_begin_gradients(s->model, k_stream_fork(s->compute));
}

/* Of the first rows. */
static void add_losses(struct step *s, int64_t rows)
{
	k_sum_losses(
		s->compute, s->shared + STEP_SHARED_LOSS, s->batch->losses, rows * s->batch->T);
}

/*
 * The sum of the losses, requests to stop and read failures are exchanged while backward runs. A
 * rank that cannot read completes the step like all others, so that nobody waits for it.
 */
static void share_loss(struct step *s)
{
	double *sums = s->shared + STEP_SHARED;
	size_t bytes = sizeof(s->host->shared);

	if (!s->group) {
		k_copy_out(s->compute, s->host->shared, s->shared, bytes);
		return;
	}
	k_copy(s->compute, sums, s->shared, bytes);
	k_event_record(s->shared_in, s->compute);
	k_stream_wait(s->comm, s->shared_in);
	collectives_all_reduce(
		s->group, sums, STEP_SHARED, COLLECTIVES_DOUBLE, COLLECTIVES_SUM, s->comm);
	k_copy_out(s->comm, s->host->shared, sums, bytes);
	k_event_record(s->shared_out, s->comm);
}

int step_failure(const struct step *s, int rc, char *error, size_t error_bytes)
{
	if (k_context_error(s->ctx)) {
		snprintf(error, error_bytes, "%s", k_context_error(s->ctx));
		return -ENOTRECOVERABLE;
	}
	if (rc == -ETIMEDOUT)
		snprintf(error, error_bytes, "device: not finished for %g s",
			(double)s->timeout_ns * 1e-9);
	else if (rc)
		snprintf(error, error_bytes, "device: %s", strerror(-rc));
	return rc;
}

/* Waits until the compute stream is done and the shared sums have arrived. */
static int wait_for_all(struct step *s, char *error, size_t error_bytes)
{
	const struct patience p = {.collectives = s->collectives,
		.timeout_ns = s->timeout_ns,
		.patience_ns = PATIENCE_NS};
	int rc = patience_stream(&p, s->compute);

	if (s->group && !rc)
		rc = patience_event(&p, s->shared_out);
	if (s->collectives && collectives_error(s->collectives)) {
		snprintf(error, error_bytes, "%s", collectives_error(s->collectives));
		return -EPIPE;
	}
	return step_failure(s, rc, error, error_bytes);
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

	timeline_total(s->time, ns);
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
		.skipped = s->host->state.skip != 0,
		.end_utc_ns = clock_utc_ns(),
	};
	for (int i = 0; i < TIMELINE_PHASES; i++)
		out->step_ns += ns[i];
}

/* ---- the step ---- */

static void enqueue_micro(struct step *s, int64_t micro, double scale)
{
	const struct spec_config *c = s->config;
	struct model_hooks forward = zero_forward_hooks(s->zero), backward;
	bool last = micro + 1 == c->accumulation;
	struct model_pass pass = {
		.tokens = batch_inputs(s->batch, micro),
		.dropout = c->model.dropout,
		.seed = (uint64_t)c->seed,
		.first_sample = micro * c->micro_batch,
		.first = micro == 0,
		.dropout_from = &s->optimizer->state->dropout,
	};

	timeline_enter(s->time, TIMELINE_FORWARD);
	k_range_begin("train/forward");
	model_forward(s->model, &pass, &forward);
	k_range_end();
	k_range_begin("train/loss");
	model_loss(s->model, s->batch->losses, batch_targets(s->batch, micro), scale,
		&s->optimizer->state->loss_scale);
	add_losses(s, s->batch->rows);
	if (last)
		share_loss(s);
	k_range_end();

	/*
	 * gradients add up over the micro-batches; the last one sends the buckets as they complete
	 */
	timeline_enter(s->time, TIMELINE_BACKWARD);
	if (last)
		backward = s->group ? zero_backward_hooks(s->zero)
				    : optimizer_backward_hooks(s->optimizer);
	k_range_begin("train/backward");
	model_backward(s->model, &pass, last ? &backward : NULL);
	k_range_end();
}

/* The whole step on the device; only values in memory differ between steps. */
static void enqueue(struct step *s)
{
	const struct spec_config *c = s->config;
	double scale = 1 / (double)(c->batch * c->seq_len);

	zero_step_begin(s->zero);
	batch_send(s->batch, c->accumulation);
	timeline_enter(s->time, TIMELINE_OTHER);
	set_state(s);
	for (int64_t micro = 0; micro < c->accumulation; micro++)
		enqueue_micro(s, micro, scale);
	zero_reduce_finish(s->zero);

	timeline_enter(s->time, TIMELINE_OPTIMIZER);
	k_range_begin("train/optimizer_step");
	optimizer_norm(s->optimizer, s->zero);
	optimizer_update(s->optimizer);
	k_copy_out(s->compute, &s->host->state, s->optimizer->state, sizeof(s->host->state));
	zero_gather(s->zero);
	k_range_end();
}

/*
 * Whether it is true on every rank. False if that cannot be determined: the collectives have
 * failed.
 */
static bool on_all_ranks(struct step *s, bool own)
{
	bool all[SPEC_WORLD_MAX] = {false}, result = true;

	if (!s->group)
		return own;
	collectives_gather_all(s->group, all, &own, sizeof(own), s->comm);
	for (int64_t i = 0; i < s->config->gpus; i++)
		result = result && all[i];
	return result;
}

/* The graph of an earlier segment. */
static struct graphs_entry *find_kept(struct step *s)
{
	struct graphs_entry *entry = graphs_find(s->graphs, &s->key);

	if (on_all_ranks(s, entry != NULL))
		return entry;
	graphs_drop(s->graphs, entry);
	return NULL;
}

static int capture_graph(struct step *s, struct k_graph **graph)
{
	int rc = k_graph_begin(s->compute);

	if (rc)
		return rc;
	enqueue(s);
	return k_graph_end(s->compute, graph);
}

static void count_sent(const struct step *s, struct collectives_bytes *sent)
{
	if (s->group)
		collectives_count(s->group, sent);
}

/* The step as a graph. NULL: there is none, and there will be none in this segment. */
static struct graphs_entry *capture(struct step *s)
{
	struct collectives_bytes before = {0}, after = {0};
	struct graphs_entry *entry = NULL;
	struct k_graph *graph = NULL;
	int64_t marks = s->time->n, from = clock_mono_ns();
	int rc;

	count_sent(s, &before);
	rc = capture_graph(s, &graph);
	count_sent(s, &after);
	if (!rc)
		entry = graphs_add(
			s->graphs, &s->key, graph, s->time->phases + marks, s->time->n - marks);
	if (!entry) {
		const char *why = rc ? k_graph_error(s->ctx) : NULL;

		k_graph_destroy(graph);
		on_all_ranks(s, false);
		give_up_graphs(s, why ? why : strerror(rc ? -rc : ENOMEM));
	} else if (!on_all_ranks(s, true)) {
		graphs_drop(s->graphs, entry);
		entry = NULL;
		give_up_graphs(s, "another rank could not capture its step");
	} else {
		entry->sent = collectives_between(&before, &after);
		entry->longest_ns = s->single_ns;
		entry->n_spans = zero_spans(s->zero);
	}
	s->time->n = marks;
	s->capture_ns = clock_mono_ns() - from;
	return entry;
}

static void launch_graph(struct step *s, const struct collectives_bytes *sent)
{
	timeline_replay(s->time, s->graph->phases, s->graph->n_phases);
	if (s->group)
		collectives_graph_begin(s->group, s->graph->longest_ns, s->compute);
	k_graph_launch(s->graph->graph, s->compute); /* its failure is the context's */
	if (s->group)
		collectives_graph_end(s->group, sent, s->compute);
	zero_replayed(s->zero, s->graph->n_spans);
	s->replayed++;
}

static void launch(struct step *s)
{
	const struct collectives_bytes nothing = {0};

	if (s->graphs && s->attempted == s->resumed)
		s->graph = find_kept(s);
	if (s->graph) {
		launch_graph(s, &s->graph->sent);
		return;
	}
	if (s->graphs && s->attempted > s->resumed)
		s->graph = capture(s);
	if (s->graph)
		launch_graph(s, &nothing); /* counted while it was captured */
	else
		enqueue(s);
}

/* From its launch on; the expected time of later ones. */
static void note_time(struct step *s, int64_t took_ns)
{
	if (!s->graph)
		s->single_ns = took_ns;
	else if (took_ns > s->graph->longest_ns)
		s->graph->longest_ns = took_ns;
}

int step_run(struct step *s, bool stop, struct step_result *out, char *error, size_t error_bytes)
{
	const struct spec_config *c = s->config;
	int64_t sample = s->attempted * c->batch + s->rank * c->accumulation * c->micro_batch;
	int64_t launched_ns;
	int rc, data_rc;

	timeline_start(s->time);
	timeline_enter(s->time, TIMELINE_DATA);
	k_range_begin("train/dataload");
	data_rc = batch_read(s->batch, s->data, sample, c->accumulation, error, error_bytes);
	k_range_end();
	write_host(s, sample, stop, data_rc != 0);
	launched_ns = clock_mono_ns();
	launch(s);
	timeline_end(s->time);
	if (s->attempted + 1 < c->optimizer_steps)
		batch_read_ahead(s->batch, s->data, sample + c->batch, c->accumulation);

	rc = wait_for_all(s, error, error_bytes);
	if (!rc)
		rc = data_failure(s, data_rc, error, error_bytes);
	if (rc)
		return rc;

	note_time(s, clock_mono_ns() - launched_ns);
	s->attempted++;
	if (!s->host->state.skip)
		s->applied++; /* the schedule and AdamW's time stand still on a skipped step */
	if (c->precision == SPEC_FP16)
		loss_scale_update(&s->scale, s->host->state.skip != 0);

	out->stop = s->host->shared[STEP_SHARED_STOP] > 0;
	measure_step(s, &out->measure);
	out->comm_ns = zero_comm_ns(s->zero);
	return 0;
}

/* ---- validation ---- */

/*
 * One micro-batch per rank and, after it, the sums over all ranks so far. The losses of sequences
 * from `sequences` on are excluded, so that the same ones count for any division.
 */
static int validate_one(struct step *s, const struct dataset *data, int64_t i, int64_t sequences,
	const struct step_asked *asked, char *error, size_t error_bytes)
{
	const struct spec_config *c = s->config;
	struct model_hooks hooks = zero_forward_hooks(s->zero);
	int64_t first = (i * c->gpus + s->rank) * c->micro_batch;
	int64_t left = first < sequences ? sequences - first : 0;
	int rc, data_rc = batch_read(s->batch, data, first, 1, error, error_bytes);
	struct model_pass pass = {.tokens = batch_inputs(s->batch, 0)};
	int begin = i == 0 ? 0 : STEP_SHARED_LOSS + 1; /* the losses add up */

	write_host(s, 0, asked->stop(asked->arg), data_rc != 0);
	k_copy_in(s->compute, s->shared + begin, s->host->own + begin,
		(size_t)(STEP_SHARED - begin) * sizeof(double));
	batch_send(s->batch, 1);
	zero_flush(s->zero);
	k_range_begin("val/forward");
	model_forward(s->model, &pass, &hooks);
	k_range_end();
	k_range_begin("val/loss");
	model_loss(s->model, s->batch->losses, batch_targets(s->batch, 0), 0, NULL);
	if (left > 0)
		add_losses(s, left < c->micro_batch ? left : c->micro_batch);
	share_loss(s);
	k_range_end();
	rc = wait_for_all(s, error, error_bytes);
	return rc ? rc : data_failure(s, data_rc, error, error_bytes);
}

int step_validate(struct step *s, const struct dataset *data, int64_t sequences,
	const struct step_asked *asked, double *loss, char *error, size_t error_bytes)
{
	const struct spec_config *c = s->config;
	int64_t at_once = c->gpus * c->micro_batch;
	int64_t steps = sequences / at_once + (sequences % at_once != 0);
	int rc;

	timeline_start(s->time); /* this wait belongs to no step */
	for (int64_t i = 0; i < steps; i++) {
		rc = validate_one(s, data, i, sequences, asked, error, error_bytes);
		if (rc)
			return rc;
		if (s->host->shared[STEP_SHARED_STOP] > 0 && i + 1 < steps)
			return -EINTR;
	}
	*loss = s->host->shared[STEP_SHARED_LOSS] / (double)sequences / (double)c->seq_len;
	return 0;
}
