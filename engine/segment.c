#include "engine/segment.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/check/check.h"
#include "engine/comm/nodes.h"
#include "engine/comm/patience.h"
#include "engine/segment_private.h"
#include "proto/artifact.h"
#include "proto/checkpoint.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

/*
 * Shortest interval between messages of steps, and between lines of train.log; the last step always
 * has both.
 */
#define STEP_MESSAGE_NS (50 * CLOCK_MS_NS)
#define STEP_LINE_NS    CLOCK_S_NS
/* A long validation repeats the last step's message, because gpt2d takes silence for a hang. */
#define VALIDATION_MESSAGE_NS (10 * CLOCK_S_NS)

bool segment_fail(struct segment *s, const char *reason, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->failure.message, sizeof(s->failure.message), format, args);
	va_end(args);
	s->failure.reason = reason;
	return false;
}

void segment_poison(struct segment *s, int exit_code)
{
	s->failure.poisoned = true;
	s->failure.exit_code = exit_code;
}

/* ---- life ---- */

struct segment *segment_create(json_t *params, struct saver *saver, struct link *link)
{
	struct segment *s = memory_zeroed(1, sizeof(*s));

	s->data = json_object();
	s->params = params;
	s->saver = saver;
	s->link = link;
	s->run = json_integer_value(json_object_get(params, "run"));
	s->segment = json_integer_value(json_object_get(params, "segment"));
	s->dir = json_string_value(json_object_get(params, "dir"));
	s->world = (int)json_integer_value(json_object_get(params, "world"));
	s->switch_ns = -1;
	s->received_ns = clock_mono_ns();
	s->received_utc_ns = clock_utc_ns();
	metrics_log_init(&s->log);
	return s;
}

void segment_destroy(struct segment *s)
{
	if (!s)
		return;
	content_destroy(s->content);
	segment_resume_finish(s);
	if (s->has_train)
		dataset_close(&s->train);
	if (s->has_val)
		dataset_close(&s->val);
	if (s->has_weights)
		gpt2_weights_close(&s->weights);
	if (s->has_training)
		training_finish(&s->training);
	measure_finish(&s->measure);
	metrics_log_finish(&s->log);
	gpu_log_samples_finish(&s->gpu);
	free(s->gpus);
	free(s->ranks);
	free(s->spec_text);
	spec_free(s->spec);
	json_decref(s->data);
	json_decref(s->params);
	free(s);
}

/* ---- prepare ---- */

static bool read_spec(struct segment *s, const struct warm *w)
{
	struct spec_options options = {.world = w->world};
	struct spec_errors errors = {0};
	const char *text = json_string_value(json_object_get(s->params, "spec"));
	const char *expected = json_string_value(json_object_get(s->params, "spec_sha256"));
	const char *name = json_string_value(json_object_get(s->params, "arm"));
	char sha256[65] = "";
	int arm;

	if (!text)
		return segment_fail(s, "spec_refused", "segment.start has no spec");
	artifact_sha256(text, strlen(text), sha256);
	if (expected && strcmp(expected, sha256) != 0)
		return segment_fail(s, "spec_mismatch",
			"the spec has SHA-256 %s, segment.start says %s", sha256, expected);
	if (spec_parse(text, strlen(text), &options, &s->spec, &errors))
		return segment_fail(
			s, "spec_refused", "%s: %s", errors.error[0].key, errors.error[0].message);
	arm = check_find_arm(s->spec, name);
	if (arm < 0)
		return segment_fail(
			s, "spec_refused", "the spec has no arm \"%s\"", name ? name : "");
	s->config = s->spec->arms[arm].config;
	s->spec_text = spec_canonical_arm(s->spec, (size_t)arm);
	artifact_sha256(s->spec_text, strlen(s->spec_text), s->spec_sha256);
	if (data_roots_read(&s->data_roots, json_object_get(s->params, "data_roots")) < 0)
		return segment_fail(
			s, "spec_refused", "segment.start: data_roots is not an array of folders");
	if (s->config.gpus != s->world)
		return segment_fail(s, "spec_refused",
			"gpus: %" PRId64 " in the spec, world: %d in segment.start", s->config.gpus,
			s->world);
	return true;
}

static bool check(struct segment *s, struct warm *w)
{
	struct check_options options = {
		.config = &s->config,
		.world = w->world,
		.together = nodes_ranks(w->nodes, s->world, w->rank),
		.cache = &w->scans,
		.data_roots = s->data_roots,
	};
	struct training_facts facts = {0};
	json_t *errors, *report, *first;

	training_read_facts(&facts, w->ctx, 0);
	if (training_device(w->ctx, w->threads, &s->config, w->world, &facts, &options.device,
		    s->failure.message, sizeof(s->failure.message))) {
		segment_poison(s, ENGINE_EXIT_POISONED);
		s->failure.reason = "device";
		return false;
	}
	options.device.free_bytes = 0; /* the segment can use the memory that this engine holds */
	check_run(&options, &errors, &report);
	first = json_array_get(errors, 0);
	if (first)
		segment_fail(s, "spec_refused", "%s: %s",
			json_string_value(json_object_get(first, "key")),
			json_string_value(json_object_get(first, "message")));
	json_decref(errors);
	json_decref(report);
	return !first;
}

/* The file with that name in earlier segments of the run, if any. */
static bool open_one(
	struct segment *s, const struct warm *w, bool validation, struct dataset *d, bool *has)
{
	const json_t *known = json_object_get(s->params, "data");
	char *error = s->failure.message;
	size_t n = sizeof(s->failure.message);

	s->failure.reason = "data";
	if (dataset_open_below(d, &s->config, validation, &s->data_roots, error, n))
		return false;
	*has = true;
	/* on other nodes it is another file; agreement.c compares the content */
	if (nodes_together(w->nodes, 0, w->rank) && dataset_identity_check(known, d, error, n))
		return false;
	dataset_identity_add(s->data, d);
	s->failure.reason = NULL;
	return true;
}

static bool open_data(struct segment *s, const struct warm *w)
{
	int64_t left_over;

	if (!open_one(s, w, false, &s->train, &s->has_train))
		return false;
	s->config.optimizer_steps =
		check_optimizer_steps(&s->config, s->train.n_sequences, &left_over);
	return s->config.validation_steps == 0 || open_one(s, w, true, &s->val, &s->has_val);
}

static bool make_training(struct segment *s, struct warm *w)
{
	const struct spec_config *c = &s->config;
	int rc = training_init(
		&s->training, w, c, &s->train, s->failure.message, sizeof(s->failure.message));

	if (rc == -EIO)
		segment_poison(s, ENGINE_EXIT_POISONED);
	if (rc) {
		s->failure.reason = rc == -ENOMEM ? "memory"
			: rc == -EIO              ? "device"
						  : "spec_refused";
		return false;
	}
	s->has_training = true;
	return segment_begin_measure(s);
}

bool segment_begin_measure(struct segment *s)
{
	const struct spec_config *c = &s->config;
	const int64_t before = s->resume.open ? s->resume.open->step : 0;
	const int64_t steps = c->optimizer_steps - before;
	int64_t warmup = c->warmup_steps;

	/* the warm-up is for the timing only: it may not exceed the remaining steps */
	if (before > 0 && warmup >= steps)
		warmup = steps - 1;
	if (warmup != c->warmup_steps)
		metrics_log_add(&s->log, "%" PRId64 " warm-up steps: %" PRId64 " are left to train",
			warmup, steps);
	measure_finish(&s->measure);
	if (measure_init(&s->measure, steps, warmup, c->batch * c->seq_len, s->world))
		return segment_fail(
			s, "spec_refused", "%" PRId64 " warm-up steps of %" PRId64, warmup, steps);
	s->measure.before = before;
	return true;
}

/* After make_training, because it is checked against its arena. */
static bool open_weights(struct segment *s, const struct warm *w)
{
	const json_t *known = json_object_get(s->params, "data");
	char *error = s->failure.message;
	size_t n = sizeof(s->failure.message);

	if (!s->config.init_safetensors[0])
		return true;
	s->failure.reason = "data";
	if (gpt2_weights_open(&s->weights, &s->training.arena, s->config.init_safetensors,
		    &s->data_roots, error, n))
		return false;
	s->has_weights = true;
	if (nodes_together(w->nodes, 0, w->rank) &&
		dataset_identity_check(known, &s->weights.identity, error, n))
		return false;
	dataset_identity_add(s->data, &s->weights.identity);
	s->failure.reason = NULL;
	return true;
}

bool segment_prepare(struct segment *s, struct warm *w)
{
	bool several;
	int rc;

	if (!s->dir || s->world < 1 || w->rank >= s->world || s->world > w->world)
		return segment_fail(s, "spec_refused",
			"segment.start: %d ranks of %d, rank %d, dir %s", s->world, w->world,
			w->rank, s->dir ? s->dir : "missing");
	/* a replaced file is reported before errors of the new one */
	if (!read_spec(s, w) || !open_data(s, w) || !check(s, w) || !segment_resume_find(s, w) ||
		!make_training(s, w) || !open_weights(s, w))
		return false;
	/* one rank of each node hashes its files */
	several = nodes_count(w->nodes, s->world) > 1;
	if (w->rank == 0 || (several && nodes_first(w->nodes, w->rank) == w->rank))
		s->content = content_start(w->tuned.dir, &s->train, s->has_val ? &s->val : NULL,
			s->has_weights && several ? &s->weights.identity : NULL);
	if (w->rank == 0) {
		rc = metrics_begin(s->dir);
		if (rc)
			return segment_fail(
				s, artifact_failure_code(rc), "%s: %s", s->dir, strerror(-rc));
	}
	return true;
}

bool segment_sync(struct segment *s, struct warm *w)
{
	const struct patience p = {
		.collectives = w->collectives, .timeout_ns = K_WAIT_NS, .patience_ns = PATIENCE_NS};
	int rc = patience_stream(&p, w->comm);

	return (!rc && !collectives_error(w->collectives)) || segment_lost(s, w, rc);
}

bool segment_lost(struct segment *s, const struct warm *w, int rc)
{
	const char *lost = collectives_error(w->collectives);

	segment_poison(s, ENGINE_EXIT_PEER_LOST);
	return segment_fail(s, "peer_lost", "%s", lost ? lost : strerror(-rc));
}

/* ---- train ---- */

bool segment_step_failed(struct segment *s, int rc, const char *error)
{
	switch (rc) {
	case -EPIPE:
		segment_poison(s, ENGINE_EXIT_PEER_LOST);
		return segment_fail(s, "peer_lost", "%s", error);
	case -ENOTRECOVERABLE:
	case -ETIMEDOUT:
		segment_poison(s, ENGINE_EXIT_POISONED);
		return segment_fail(s, "device", "%s", error);
	case -ECANCELED:
		s->failure.silent = true;
		return segment_fail(s, "data", "%s", error);
	default:
		return segment_fail(s, "data", "%s", error);
	}
}

bool segment_can_continue(struct segment *s, int rank, const struct measure_step *m)
{
	const struct spec_config *c = &s->config;
	const struct loss_scale *scale = &s->training.step.scale;
	int64_t step = s->measure.before + s->measure.done;

	s->failure.silent = rank != 0;
	if (c->precision != SPEC_FP16 && !isfinite(m->loss))
		return segment_fail(s, "nonfinite_loss", "step %" PRId64 ": the loss is %s", step,
			isnan(m->loss) ? "nan" : "infinite");
	if (c->precision != SPEC_FP16 && m->skipped)
		return segment_fail(s, "nonfinite_gradient",
			"step %" PRId64 ": a gradient is not finite", step);
	if (c->precision == SPEC_FP16 && scale->skips_in_place >= c->fp16_skips_max)
		return segment_fail(s, "loss_scale_floor",
			"step %" PRId64 ": %" PRId64 " overflows in a row with loss scale %g", step,
			scale->skips_in_place, scale->scale);
	if (s->measure.done == s->measure.steps && s->training.step.applied == 0)
		return segment_fail(s, "no_update",
			"all %" PRId64 " steps overflowed and were skipped: nothing was trained",
			step);
	s->failure.silent = false;
	return true;
}

void segment_send_step(struct segment *s, struct link *link, const struct measure_step *m)
{
	double tokens_per_s =
		m->step_ns > 0 ? (double)s->measure.tokens_per_step * 1e9 / (double)m->step_ns : 0;

	link_send_lossy(link, SEGMENT_STEP,
		json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:I}", "run", (json_int_t)s->run,
			"segment", (json_int_t)s->segment, "step",
			(json_int_t)(s->measure.before + s->measure.done), "steps",
			(json_int_t)(s->measure.before + s->measure.steps), "loss",
			rpc_real(m->loss), "tokens_per_sec", rpc_real(tokens_per_s), "step_time_ns",
			(json_int_t)m->step_ns));
}

static void log_step(struct segment *s, const struct measure_step *m)
{
	metrics_log_add(&s->log,
		"step %" PRId64 "/%" PRId64 " loss %.6f grad norm %.4g lr %.4g %.3f ms",
		s->measure.before + s->measure.done, s->measure.before + s->measure.steps, m->loss,
		m->grad_norm, m->lr, (double)m->step_ns / 1e6);
}

static void send_started(struct segment *s, struct link *link)
{
	json_t *params = json_pack("{s:I, s:I, s:I, s:O}", "run", (json_int_t)s->run, "segment",
		(json_int_t)s->segment, "init_ns", (json_int_t)s->init_ns, "data", s->data);

	if (s->switch_ns >= 0)
		json_object_set_new(params, "switch_ns", json_integer((json_int_t)s->switch_ns));
	link_send(link, SEGMENT_STARTED, params);
}

static int put_values(void *arg, int64_t first, const float *values, int64_t n)
{
	return optimizer_put(arg, first, values, n);
}

/* The peers of a rank that cannot read the file start without it: then this process ends. */
static bool load_weights(struct segment *s)
{
	const struct gpt2_weights_target to = {put_values, &s->training.optimizer};
	int rc =
		gpt2_weights_load(&s->weights, &to, s->failure.message, sizeof(s->failure.message));

	if (!rc)
		return true;
	if (rc == -ENOTRECOVERABLE || s->world > 1)
		segment_poison(s, ENGINE_EXIT_POISONED);
	s->failure.reason = rc == -ENOTRECOVERABLE ? "device" : "data";
	return false;
}

static bool set_up(struct segment *s, struct warm *w, struct link *link)
{
	int64_t begin = clock_mono_ns(), end;
	int rc = metrics_host_reset_peak();

	if (rc)
		metrics_log_add(
			&s->log, "peak memory counts from the engine's start: %s", strerror(-rc));
	training_reset(&s->training);
	if (!segment_resume(s, w) || (s->has_weights && !s->resume.open && !load_weights(s)))
		return false;
	end = clock_mono_ns();
	s->init_ns = end - begin;
	if (w->work_end_ns)
		s->switch_ns = end - w->work_end_ns;
	if (w->rank == 0)
		send_started(s, link);
	metrics_log_add(&s->log, "parameters %s in %.3f ms",
		s->has_weights || s->resume.open ? "loaded" : "initialised",
		(double)s->init_ns / 1e6);
	return true;
}

/* Reports how steps are launched, once it is known: after the second one. */
static void log_launches(struct segment *s, struct warm *w, struct link *link)
{
	const struct step *step = &s->training.step;

	if (step->no_graph[0]) {
		metrics_log_add(&s->log, "steps run without a CUDA graph: %s", step->no_graph);
		if (w->rank == 0)
			link_log(link, "info",
				"run %" PRId64 ": steps run without a CUDA graph: %s", s->run,
				step->no_graph);
	} else if (step->replayed) {
		metrics_log_add(&s->log, "steps are launched as a graph, captured in %.3f ms",
			(double)step->capture_ns / 1e6);
	}
}

/* Reports allocations beyond the plan. */
static void log_growth(struct segment *s, struct warm *w, int64_t before)
{
	int64_t times = k_stream_grown(w->compute) - before;

	if (times > 0)
		metrics_log_add(
			&s->log, "operations took memory beyond the plan %" PRId64 " times", times);
}

/* asked: this rank was, before the step. All ranks agree in a started step, and complete it. */
static void log_stop(const struct segment *s, const struct warm *w, struct link *link, bool asked)
{
	if (w->rank != 0)
		return;
	link_log(link, "info",
		"run %" PRId64 ": stopped after step %" PRId64 " of %" PRId64
		", 1 step after the request to %s",
		s->run, s->measure.before + s->measure.done, s->measure.before + s->measure.steps,
		asked ? "stop" : "another rank");
}

static void keep_waits(struct segment *s)
{
	const struct timeline *time = s->training.step.time;
	float *ns = measure_keep_waits(&s->measure, timeline_exposed(time, NULL));

	if (ns)
		timeline_exposed(time, ns);
}

/* Seconds of communication in a measured step. */
static double mean_comm(const struct segment *s)
{
	const int64_t measured = s->measure.done - s->measure.warmup;

	return measured > 0 ? (double)s->comm_ns / 1e9 / (double)measured : (double)NAN;
}

static bool run_steps(struct segment *s, struct warm *w, struct link *link)
{
	int64_t sent_ns = 0, logged_ns = 0, grown = k_stream_grown(w->compute);

	while (s->measure.done < s->measure.steps) {
		bool stop = link_stop_asked(link, s->run, s->segment), last;
		const bool saving = segment_saving(s);
		struct step_result result;
		char error[sizeof(s->failure.message)];
		int64_t now;
		int rc = step_run(&s->training.step, stop, &result, error, sizeof(error));

		if (rc)
			return segment_step_failed(s, rc, error);
		result.measure.saving = saving;
		s->measure.own[s->measure.done++] = result.measure;
		keep_waits(s);
		if (s->measure.done > s->measure.warmup)
			s->comm_ns += result.comm_ns;
		last = s->measure.done == s->measure.steps;
		if (s->measure.done == 2) {
			log_launches(s, w, link);
			log_growth(s, w, grown);
		}
		now = clock_mono_ns();
		if (w->rank == 0 && (last || now - sent_ns >= STEP_MESSAGE_NS)) {
			segment_send_step(s, link, &result.measure);
			sent_ns = now;
		}
		if (w->rank == 0 && (last || now - logged_ns >= STEP_LINE_NS)) {
			log_step(s, &result.measure);
			logged_ns = now;
		}
		if (!segment_can_continue(s, w->rank, &result.measure) ||
			!segment_save_if_due(s, w))
			return false;
		s->cancelled = result.stop;
		if (s->cancelled) {
			if (w->rank == 0)
				link_stop_why(link, s->run, s->segment, &s->stop);
			log_stop(s, w, link, stop);
			segment_save_interrupted(s, w);
			return false;
		}
	}
	return true;
}

/* A validation in progress, which has no steps to report. */
struct validating {
	struct segment *s;
	struct link *link;
	bool reports; /* this rank sends progress */
	int64_t reported_ns;
};

/* Reports progress from time to time; returns whether to end. */
static bool validation_stop(void *arg)
{
	struct validating *v = arg;
	struct segment *s = v->s;
	int64_t now = clock_mono_ns();

	if (v->reports && now - v->reported_ns >= VALIDATION_MESSAGE_NS) {
		segment_send_step(s, v->link, &s->measure.own[s->measure.done - 1]);
		v->reported_ns = now;
	}
	return link_stop_asked(v->link, s->run, s->segment);
}

static bool validate(struct segment *s, struct warm *w, struct link *link)
{
	struct validating v = {s, link, w->rank == 0, clock_mono_ns()};
	struct step_asked asked = {validation_stop, &v};
	char error[sizeof(s->failure.message)];
	int rc;

	if (!s->has_val)
		return true;
	rc = step_validate(&s->training.step, &s->val,
		s->config.validation_steps * SPEC_VALIDATION_SEQUENCES, &asked, &s->val_loss, error,
		sizeof(error));
	s->cancelled = rc == -EINTR;
	if (s->cancelled && w->rank == 0)
		link_stop_why(link, s->run, s->segment, &s->stop);
	if (s->cancelled)
		return false;
	if (rc)
		return segment_step_failed(s, rc, error);
	s->validated = true;
	metrics_log_add(&s->log, "validation loss %.6f", s->val_loss);
	return true;
}

/* ---- gather ---- */

static bool gather_times(struct segment *s, struct warm *w)
{
	const size_t bytes = (size_t)s->measure.done * sizeof(*s->measure.own);
	struct measure_step *all = NULL;
	struct metrics_host_rank own;

	metrics_host_read(&own);
	own.node = w->nodes ? w->nodes[w->rank] : 0;
	own.use = s->use;
	own.waits_per_step = s->measure.waits.per_step;
	own.waits_steps = s->measure.waits.steps;
	if (w->gpu_log)
		gpu_log_summarise(gpu_log_device(w->gpu_log), &s->gpu, &own.gpu);
	s->ranks = memory_zeroed((size_t)s->world, sizeof(*s->ranks));
	if (s->world > 1) {
		all = memory_resized(NULL, (size_t)s->world * bytes);
		collectives_gather_all(s->group, s->ranks, &own, sizeof(own), w->comm);
		collectives_gather_all(s->group, all, s->measure.own, bytes, w->comm);
		if (!segment_sync(s, w)) {
			free(all);
			return false;
		}
	} else {
		s->ranks[0] = own;
	}
	measure_merge(&s->measure, all);
	return true;
}

/* Nothing if the ranks do not have the same waits: then their shares are not known. */
static bool gather_waits(struct segment *s, struct warm *w)
{
	struct measure_waits *waits = &s->measure.waits;
	const size_t bytes = (size_t)(waits->steps * waits->per_step) * sizeof(*waits->own);

	for (int i = 0; i < s->world; i++)
		if (s->ranks[i].waits_per_step != s->ranks[0].waits_per_step ||
			s->ranks[i].waits_steps != s->ranks[0].waits_steps)
			return true;
	if (s->world == 1 || bytes == 0)
		return true;
	waits->all = memory_resized(NULL, (size_t)s->world * bytes);
	collectives_gather_all(s->group, waits->all, waits->own, bytes, w->comm);
	return segment_sync(s, w);
}

/* Each rank sends as many samples as the largest number of a rank; ranks has the real numbers. */
static bool gather_gpus(struct segment *s, struct warm *w)
{
	struct gpu_log_sample *own;
	size_t room = 0, bytes;

	for (int i = 0; i < s->world; i++)
		if ((size_t)s->ranks[i].gpu.samples > room)
			room = (size_t)s->ranks[i].gpu.samples;
	if (room == 0)
		return true;
	bytes = room * sizeof(*own);
	own = memory_resized(s->gpu.sample, bytes);
	memset(own + s->gpu.n, 0, (room - s->gpu.n) * sizeof(*own));
	s->gpu.sample = own;
	s->gpu.capacity = room;
	s->gpus = memory_resized(NULL, (size_t)s->world * bytes);
	s->gpus_room = room;
	if (s->world == 1) {
		memcpy(s->gpus, own, bytes);
		return true;
	}
	collectives_gather_all(s->group, s->gpus, own, bytes, w->comm);
	return segment_sync(s, w);
}

bool segment_gather(struct segment *s, struct warm *w)
{
	if (s->world > 1)
		collectives_network(w->collectives, &s->network);
	return gather_times(s, w) && gather_waits(s, w) && gather_gpus(s, w);
}

static void count_sent(const struct segment *s, struct collectives_bytes *out)
{
	*out = (struct collectives_bytes){0};
	if (s->group)
		collectives_count(s->group, out);
}

static int64_t cpu_time_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * CLOCK_S_NS + used.tv_nsec;
}

static void begin_use(struct segment *s, const struct warm *w, struct link *link)
{
	struct segment_counters *start = &s->at_start;

	link_watch_begin(link);
	*start = (struct segment_counters){
		.mono_ns = clock_mono_ns(), .cpu_ns = cpu_time_ns(), .gpu_mj = -1};
	if (w->gpu_log)
		start->gpu_mj = gpu_log_energy_mj(w->gpu_log);
	else
		metrics_host_read_energy(METRICS_HOST_POWERCAP, &start->packages);
}

/*
 * Joules since begin_use. The packages are those of all ranks of a node; its first rank reports
 * them.
 */
static double used_energy(const struct segment *s, const struct warm *w)
{
	const struct segment_counters *start = &s->at_start;
	struct metrics_host_energy packages;
	int64_t mj;

	if (w->gpu_log) {
		mj = gpu_log_energy_mj(w->gpu_log);
		return start->gpu_mj < 0 || mj < start->gpu_mj ? (double)NAN
							       : (double)(mj - start->gpu_mj) / 1e3;
	}
	if (nodes_first(w->nodes, w->rank) != w->rank)
		return 0;
	metrics_host_read_energy(METRICS_HOST_POWERCAP, &packages);
	return metrics_host_energy_between(&start->packages, &packages);
}

static void end_use(struct segment *s, const struct warm *w, struct link *link)
{
	const int64_t took_ns = clock_mono_ns() - s->at_start.mono_ns;

	s->use = (struct metrics_host_use){
		.cpu_percent = took_ns > 0
			? 100.0 * (double)(cpu_time_ns() - s->at_start.cpu_ns) / (double)took_ns
			: (double)NAN,
		.energy_j = used_energy(s, w),
		.comm_s = mean_comm(s),
		.standstill_ns = link_watch_end(link),
	};
}

bool segment_train(struct segment *s, struct warm *w, struct link *link)
{
	struct collectives_bytes before, after;
	bool trained = false, lost;
	char name[64];

	snprintf(name, sizeof(name), "run %" PRId64 " segment %" PRId64, s->run, s->segment);
	k_range_begin(name); /* a profiler's range around the whole segment */
	if (!set_up(s, w, link)) {
		k_range_end();
		return false;
	}
	if (w->gpu_log)
		gpu_log_begin(w->gpu_log);
	else if (w->no_gpu_log[0])
		metrics_log_add(&s->log, "no log of the GPU: %s", w->no_gpu_log);
	count_sent(s, &before);
	begin_use(s, w, link);
	trained = run_steps(s, w, link);
	end_use(s, w, link);
	trained = segment_save_end(s, w) && trained;
	lost = s->failure.poisoned;
	if (!lost) {
		zero_drain(&w->zero);
		count_sent(s, &after);
		s->sent = collectives_between(&before, &after);
		trained = trained && validate(s, w, link);
	}
	w->work_end_ns = w->used_ns = clock_mono_ns();
	if (tuned_missed(&w->tuned) > 0)
		metrics_log_add(&s->log,
			"%" PRId64 " algorithms were chosen in a step and are not saved",
			tuned_missed(&w->tuned));
	if (w->gpu_log)
		gpu_log_end(w->gpu_log, &s->gpu);
	/* a segment that failed on all ranks alike, or was cancelled, has useful times */
	if (!s->failure.poisoned && s->measure.done > 0 && !segment_gather(s, w))
		trained = false;
	s->wall_ns = clock_mono_ns() - s->received_ns;
	k_range_end();
	return trained;
}

void segment_report_failure(const struct segment *s, struct link *link)
{
	const struct segment_failure *f = &s->failure;

	if (f->silent)
		return;
	link_send(link, SEGMENT_FAILED,
		json_pack("{s:I, s:I, s:s, s:s, s:b}", "run", (json_int_t)s->run, "segment",
			(json_int_t)s->segment, "reason", f->reason, "message", f->message,
			"poisoned", f->poisoned));
}
