#include "engine/train/zero.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(
	2 * PLAN_BUCKETS_MAX + 64 <= COLLECTIVES_STEP_MAX, "a step's collectives are watched");

/* Events: two of our own, one per part of backward, one per gather bucket. */
enum { EVENT_TO_COMM, EVENT_TO_COMPUTE, EVENT_READY };

void zero_init(struct zero *z, struct k_context *ctx, struct k_stream *compute,
	struct k_stream *comm, struct timeline *time)
{
	*z = (struct zero){.ctx = ctx, .compute = compute, .comm = comm, .time = time};
}

static void destroy_span(const struct zero_span *span)
{
	k_event_destroy(span->from);
	k_event_destroy(span->to);
}

void zero_finish(struct zero *z)
{
	for (int64_t i = 0; i < z->n_events; i++)
		k_event_destroy(z->events[i]);
	free(z->events);
	for (int64_t i = 0; i < z->spans_capacity; i++)
		destroy_span(&z->spans[i]);
	free(z->spans);
	destroy_span(&z->apart[0]);
	destroy_span(&z->apart[1]);
	*z = (struct zero){0};
}

static int reserve_events(struct zero *z, int64_t n)
{
	struct k_event **events;
	int rc;

	if (n <= z->n_events)
		return 0;
	events = realloc(z->events, (size_t)n * sizeof(*events));
	if (!events)
		return -ENOMEM;
	z->events = events;
	for (; z->n_events < n; z->n_events++) {
		rc = k_event_create(z->ctx, &z->events[z->n_events]);
		if (rc)
			return rc;
	}
	return 0;
}

static int create_span(struct zero *z, struct zero_span *span)
{
	int rc = k_event_create(z->ctx, &span->from);

	return rc ? rc : k_event_create(z->ctx, &span->to);
}

static int reserve_spans(struct zero *z, int64_t n)
{
	struct zero_span *spans;
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++)
		if (!z->apart[i].to)
			rc = create_span(z, &z->apart[i]);
	if (rc || n <= z->spans_capacity)
		return rc;
	spans = realloc(z->spans, (size_t)n * sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	z->spans = spans;
	for (; z->spans_capacity < n && !rc; z->spans_capacity++) {
		spans[z->spans_capacity] = (struct zero_span){0};
		rc = create_span(z, &spans[z->spans_capacity]);
	}
	return rc;
}

static struct k_event *ready_event(const struct zero *z, int64_t i)
{
	return z->events[EVENT_READY + i];
}

static struct k_event *gathered_event(const struct zero *z, int64_t bucket)
{
	return z->events[z->n_events - 1 - bucket];
}

int zero_begin(struct zero *z, const struct zero_segment *segment)
{
	int rc;

	z->group = segment->group;
	z->plan = segment->plan;
	z->stage = segment->stage;
	z->reduce_scatter = segment->reduce_scatter;
	z->overlap = segment->overlap;
	z->deferred = segment->deferred;
	z->params = segment->params;
	z->grads = segment->grads;
	z->elem_bytes = k_elem_bytes(z->ctx);
	z->reduced = 0;
	z->ready = 0;
	z->owed = false;
	z->gather_pending = 0;
	z->n_spans = z->n_apart = z->apart_due = z->apart_counted = 0;
	if (!z->group)
		return 0;
	rc = reserve_events(z, EVENT_READY + segment->n_layer + 2 + z->plan->n_gather);
	/* the parts of backward, the rest of the reduction, the gather */
	return rc ? rc : reserve_spans(z, segment->n_layer + 4);
}

int64_t zero_marks(int64_t n_layer)
{
	/*
	 * a wait is two marks: each part of forward, the reduction, the norm, a gather that is not
	 * overlapped
	 */
	return 2 * (n_layer + 2 + 3);
}

/* ---- which rank updates what ---- */

static bool owns_slices(const struct plan *plan, int64_t stage)
{
	return stage >= 1 && plan->world > 1;
}

int64_t zero_owned_ranges(const struct plan *plan, int64_t stage)
{
	return owns_slices(plan, stage) ? plan->n_reduce : 1;
}

struct k_range zero_owned_range(const struct plan *plan, int64_t stage, int rank, int64_t i)
{
	if (owns_slices(plan, stage))
		return plan_owned_slice(plan, i, rank);
	return (struct k_range){.first = 0, .n = plan->arena_elems};
}

int64_t zero_owned_elems(const struct plan *plan, int64_t stage, int rank)
{
	return owns_slices(plan, stage) ? plan_owned_elems(plan, rank) : plan->arena_elems;
}

/* ---- gradients ---- */

static void compute_waits_for(struct zero *z, struct k_event *event)
{
	enum timeline_phase before = timeline_enter(z->time, TIMELINE_EXPOSED);

	k_stream_wait(z->compute, event);
	timeline_enter(z->time, before);
}

static void name_range(const char *what, int64_t bucket)
{
	char name[48];

	snprintf(name, sizeof(name), "train/%s bucket %" PRId64, what, bucket);
	k_range_begin(name);
}

static void reduce_bucket(struct zero *z, int64_t bucket)
{
	struct k_range r = plan_reduce_bucket(z->plan, bucket);
	void *buf = z->grads + (size_t)r.first * z->elem_bytes;

	name_range("reduce", bucket);
	if (z->stage >= 1 && z->reduce_scatter)
		collectives_reduce_scatter(z->group, buf, r.n, z->comm);
	else
		collectives_all_reduce(
			z->group, buf, r.n, COLLECTIVES_ELEM, COLLECTIVES_SUM, z->comm);
	k_range_end();
}

static const struct zero_span *next_span(struct zero *z)
{
	assert(z->n_spans < z->spans_capacity);
	return &z->spans[z->n_spans++];
}

static void reduce_up_to(
	struct zero *z, int64_t complete, struct k_event *ready, struct k_stream *on)
{
	int64_t buckets = plan_complete_buckets(z->plan, complete);
	const struct zero_span *span;

	if (z->reduced >= buckets)
		return;
	k_event_record(ready, on);
	k_stream_wait(z->comm, ready);
	span = next_span(z);
	k_event_record(span->from, z->comm);
	for (; z->reduced < buckets; z->reduced++)
		reduce_bucket(z, z->reduced);
	k_event_record(span->to, z->comm);
}

static void on_done(void *arg, int64_t complete, struct k_stream *on)
{
	struct zero *z = arg;

	reduce_up_to(z, complete, ready_event(z, z->ready), on);
	z->ready++;
}

struct model_hooks zero_backward_hooks(struct zero *z)
{
	z->reduced = 0;
	z->ready = 0;
	if (!z->group || !z->overlap)
		return (struct model_hooks){0};
	return (struct model_hooks){.arg = z, .done = on_done};
}

void zero_reduce_finish(struct zero *z)
{
	if (!z->group)
		return;
	/*
	 * the arena's padding lies after the last parameter: the last bucket is complete only now
	 */
	reduce_up_to(z, z->plan->arena_elems, z->events[EVENT_TO_COMM], z->compute);
	assert(z->reduced == z->plan->n_reduce);
	k_event_record(z->events[EVENT_TO_COMPUTE], z->comm);
	compute_waits_for(z, z->events[EVENT_TO_COMPUTE]);
}

void zero_sum_owned(struct zero *z, int64_t *values, int64_t n)
{
	if (!z->group || z->stage < 1)
		return;
	k_event_record(z->events[EVENT_TO_COMM], z->compute);
	k_stream_wait(z->comm, z->events[EVENT_TO_COMM]);
	collectives_all_reduce(z->group, values, n, COLLECTIVES_INT64, COLLECTIVES_SUM, z->comm);
	k_event_record(z->events[EVENT_TO_COMPUTE], z->comm);
	compute_waits_for(z, z->events[EVENT_TO_COMPUTE]);
}

/* ---- parameters ---- */

static void gather_bucket(struct zero *z, int64_t bucket)
{
	struct k_range g = plan_gather_bucket(z->plan, bucket);
	int64_t first = g.first / z->plan->reduce_elems;

	name_range("gather", bucket);
	collectives_begin(z->group);
	for (int64_t i = first; i < z->plan->n_reduce; i++) {
		struct k_range r = plan_reduce_bucket(z->plan, i);

		if (r.first >= g.first + g.n)
			break;
		collectives_all_gather(
			z->group, z->params + (size_t)r.first * z->elem_bytes, r.n, z->comm);
	}
	collectives_end(z->group);
	k_range_end();
}

static bool gathers(const struct zero *z)
{
	return z->group && z->stage >= 1;
}

static void send_params(struct zero *z, const struct zero_span *span)
{
	z->owed = false;
	k_event_record(z->events[EVENT_TO_COMM], z->compute);
	k_stream_wait(z->comm, z->events[EVENT_TO_COMM]);
	k_event_record(span->from, z->comm);
	/* forward reads the arena from its end */
	for (int64_t i = z->plan->n_gather - 1; i >= 0; i--) {
		gather_bucket(z, i);
		if (i == 0)
			k_event_record(span->to, z->comm); /* compute waits for the following */
		k_event_record(gathered_event(z, i), z->comm);
	}
	z->gather_pending = z->plan->n_gather;
	if (!z->overlap)
		zero_drain(z);
}

static const struct zero_span *next_apart(struct zero *z)
{
	return &z->apart[z->n_apart++ % 2];
}

void zero_gather(struct zero *z)
{
	if (!gathers(z))
		return;
	if (z->deferred)
		z->owed = true;
	else
		send_params(z, z->overlap ? next_apart(z) : next_span(z));
}

void zero_step_begin(struct zero *z)
{
	z->n_spans = 0;
	z->apart_due = z->n_apart;
	if (gathers(z) && z->deferred)
		send_params(z, next_span(z));
}

int64_t zero_spans(const struct zero *z)
{
	return z->n_spans;
}

int64_t zero_comm_ns(struct zero *z)
{
	int64_t ns = 0;

	for (int64_t i = 0; i < z->n_spans; i++)
		ns += k_event_elapsed_ns(z->spans[i].from, z->spans[i].to);
	if (z->apart_due > z->apart_counted) {
		const struct zero_span *last = &z->apart[(z->apart_due - 1) % 2];

		ns += k_event_elapsed_ns(last->from, last->to);
	}
	z->apart_counted = z->apart_due;
	return ns;
}

void zero_replayed(struct zero *z, int64_t n_spans)
{
	z->n_spans = n_spans;
	z->apart_due = z->n_apart;
	z->owed = gathers(z) && z->deferred;
}

void zero_flush(struct zero *z)
{
	if (z->owed)
		send_params(z, next_apart(z));
}

static void on_need(void *arg, int64_t first, int64_t n)
{
	struct zero *z = arg;
	int64_t bucket = first / z->plan->gather_elems;

	/* buckets arrive from the last to the first: the lowest one stands for all above it */
	if (n <= 0 || bucket >= z->gather_pending)
		return;
	compute_waits_for(z, gathered_event(z, bucket));
	z->gather_pending = bucket;
}

struct model_hooks zero_forward_hooks(struct zero *z)
{
	return (struct model_hooks){.arg = z, .need = z->group ? on_need : NULL};
}

void zero_drain(struct zero *z)
{
	zero_flush(z);
	if (z->gather_pending)
		on_need(z, 0, 1);
}
