#include "engine/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/artifact.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/host/thread.h"

/* Segments of a few milliseconds are faster than the disk: then the engine waits. */
enum { QUEUE_MAX = 8, PATIENCE_S = 5 };

struct writer {
	struct writer_options options;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct segment *first, **last;
	int queued;
	bool closing;
};

static const char *text_of(const struct segment *s, const char *key)
{
	const char *text = json_string_value(json_object_get(s->params, key));

	return text ? text : "";
}

static int64_t number_of(const struct segment *s, const char *key)
{
	return json_integer_value(json_object_get(s->params, key));
}

static struct metrics_traffic describe_sent(const struct collectives_bytes *sent)
{
	return (struct metrics_traffic){.reduce_scatter = sent->reduce_scatter,
		.all_gather = sent->all_gather,
		.all_reduce = sent->all_reduce,
		.other = sent->other};
}

/* NULL: all work was done. */
static const char *partial_state(const struct segment *s)
{
	if (s->failure.reason)
		return "failed";
	if (!s->cancelled)
		return NULL;
	return s->stop.state[0] ? s->stop.state : "interrupted";
}

static struct metrics_network describe_network(const struct collectives_network *n)
{
	return (struct metrics_network){.name = n->name,
		.devices = n->devices,
		.paths = n->paths,
		.gpu_direct = n->gpu_direct};
}

static void describe(const struct writer *w, const struct segment *s, const char *run,
	struct metrics_segment *out)
{
	const struct plan *p = &s->training.plan;
	const struct plan_traffic t =
		plan_step_traffic(p, (int)s->config.zero_stage, s->config.reduce_scatter);
	const bool gathers = plan_gathers(p, (int)s->config.zero_stage);
	const int64_t logits = activations_logits_bytes(&s->training.shape);

	*out = (struct metrics_segment){
		.dir = s->dir,
		.run = run,
		.name = s->spec->name,
		.arm = text_of(s, "arm"),
		.segment = s->segment,
		.segments = number_of(s, "segments"),
		.block = number_of(s, "block"),
		.position = number_of(s, "position"),
		.attempt = number_of(s, "attempt"),
		.spec_text = s->spec_text,
		.spec_sha256 = s->spec_sha256,
		.run_spec_sha256 = json_string_value(json_object_get(s->params, "spec_sha256")),
		.config = &s->config,
		.world = s->world,
		.model_params = s->training.arena.model_params,
		.plan = {.param_elems = p->param_elems,
			.arena_elems = p->arena_elems,
			.reduce_elems = p->reduce_elems,
			.n_reduce = p->n_reduce,
			.gather_elems = gathers ? p->gather_elems : 0,
			.n_gather = gathers ? p->n_gather : 0},
		.activations_bytes = activations_bytes(&s->training.shape) - logits,
		.logits_bytes = logits,
		.planned_elems = {.reduce_scatter = t.reduce_scatter_elems,
			.all_gather = t.all_gather_elems,
			.all_reduce = t.all_reduce_elems},
		.measure = &s->measure,
		.elem_bytes = s->training.elem_bytes,
		.device_bytes = s->training.device_bytes,
		.train_sequences = s->train.n_sequences,
		.val_sequences = s->has_val ? s->val.n_sequences : 0,
		.device = &w->options.device,
		.collectives = s->world > 1 ? w->options.collectives : NULL,
		.tuning_sha256 = s->tuning_sha256[0] ? s->tuning_sha256 : NULL,
		.sent_bytes = describe_sent(&s->sent),
		.ranks = s->ranks,
		.gpus = s->gpus,
		.gpus_room = s->gpus_room,
		.threads = w->options.threads,
		.vocab_padded = s->training.arena.vocab_padded,
		.peak_tflops = w->options.peak_tflops,
		.checkpoints = s->saves ? &s->saved : NULL,
		.validated = s->validated,
		.val_loss = s->val_loss,
		.init_ns = s->init_ns,
		.switch_ns = s->switch_ns,
		.started_utc_ns = s->received_utc_ns,
		.wall_ns = s->wall_ns,
		.log = &s->log,
	};
}

static void send_artifacts(
	const struct writer *w, const struct segment *s, const struct metrics_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		link_send(w->options.link, SEGMENT_ARTIFACT,
			json_pack("{s:I, s:I, s:s, s:I}", "run", (json_int_t)s->run, "segment",
				(json_int_t)s->segment, "path", files->file[i].name, "bytes",
				(json_int_t)files->file[i].bytes));
}

static void write_segment(const struct writer *w, struct segment *s)
{
	struct metrics_segment m;
	struct metrics_files files = {0};
	char run[32], data_hash[65], error[512], why[sizeof(s->failure.message) + 64];
	json_t *summary;
	int rc = 0;

	snprintf(run, sizeof(run), "%" PRId64, s->run);
	content_wait(s->content);
	describe(w, s, run, &m);
	m.partial = partial_state(s);
	m.network = describe_network(&s->network);
	m.train_sha256 = content_train(s->content);
	m.val_sha256 = content_validation(s->content);
	m.data_hash = content_hash(s->content, &s->config, data_hash) ? data_hash : NULL;
	m.partial_reason = m.partial ? why : NULL;
	if (s->failure.reason)
		snprintf(why, sizeof(why), "%s: %s", s->failure.reason, s->failure.message);
	else
		snprintf(why, sizeof(why), "%s", s->stop.reason);
	if (m.partial && s->measure.done <= s->measure.warmup)
		s->measure.warmup = 0; /* it ended so early that there are no others */
	if (s->measure.done > s->measure.warmup)
		rc = metrics_write(&m, &files, error, sizeof(error));
	if (rc && !s->failure.reason) {
		s->failure.reason = artifact_failure_code(rc);
		snprintf(s->failure.message, sizeof(s->failure.message), "%s", error);
	} else if (rc) {
		link_log(w->options.link, "warning", "run %s: segment %" PRId64 ": %s", run,
			s->segment, error);
	}
	send_artifacts(w, s, &files);
	if (s->failure.reason) {
		segment_report_failure(s, w->options.link);
		return;
	}
	if (s->cancelled) {
		link_send(w->options.link, SEGMENT_CANCELLED,
			json_pack("{s:I, s:I, s:I}", "run", (json_int_t)s->run, "segment",
				(json_int_t)s->segment, "step",
				(json_int_t)(s->measure.before + s->measure.done)));
		return;
	}
	summary = metrics_summary(&m, &files);
	link_send(w->options.link, SEGMENT_DONE,
		json_pack("{s:I, s:I, s:o}", "run", (json_int_t)s->run, "segment",
			(json_int_t)s->segment, "summary", summary ? summary : json_null()));
}

static void *run(void *arg)
{
	struct writer *w = arg;

	for (;;) {
		struct segment *s;

		pthread_mutex_lock(&w->lock);
		while (!w->first && !w->closing)
			pthread_cond_wait(&w->changed, &w->lock);
		s = w->first;
		if (s) {
			w->first = s->next;
			if (!w->first)
				w->last = &w->first;
			w->queued--;
			pthread_cond_broadcast(&w->changed);
		}
		pthread_mutex_unlock(&w->lock);
		if (!s)
			return NULL;
		write_segment(w, s);
		segment_destroy(s);
	}
}

int writer_create(const struct writer_options *options, struct writer **out)
{
	struct writer *w = memory_zeroed(1, sizeof(*w));
	int rc;

	w->options = *options;
	w->last = &w->first;
	pthread_mutex_init(&w->lock, NULL);
	thread_condition_init(&w->changed);
	rc = thread_start(&w->thread, run, w, "writer");
	if (rc) {
		pthread_cond_destroy(&w->changed);
		pthread_mutex_destroy(&w->lock);
		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void writer_destroy(struct writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->closing = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void writer_wait(struct writer *w)
{
	const struct timespec until = clock_timespec(clock_mono_ns() + PATIENCE_S * CLOCK_S_NS);
	int queued, status = 0;

	pthread_mutex_lock(&w->lock);
	while (w->queued >= QUEUE_MAX && status != ETIMEDOUT)
		status = pthread_cond_timedwait(&w->changed, &w->lock, &until);
	queued = w->queued;
	pthread_mutex_unlock(&w->lock);
	if (queued < QUEUE_MAX)
		return;
	link_log(w->options.link, "warning",
		"rank 0 waits for the disk: the files of %d segments are still to be written",
		queued);
	pthread_mutex_lock(&w->lock);
	while (w->queued >= QUEUE_MAX)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void writer_add(struct writer *w, struct segment *s)
{
	s->next = NULL;
	pthread_mutex_lock(&w->lock);
	*w->last = s;
	w->last = &s->next;
	w->queued++;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}
