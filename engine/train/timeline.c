#include "engine/train/timeline.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int timeline_init(struct timeline *t, struct k_context *ctx, struct k_stream *stream)
{
	int rc;

	*t = (struct timeline){.ctx = ctx, .stream = stream};
	rc = k_event_create(ctx, &t->ends[0]);
	return rc ? rc : k_event_create(ctx, &t->ends[1]);
}

void timeline_finish(struct timeline *t)
{
	for (int64_t i = 0; i < t->capacity; i++)
		k_event_destroy(t->events[i]);
	free(t->events);
	free(t->phases);
	k_event_destroy(t->ends[0]);
	k_event_destroy(t->ends[1]);
	*t = (struct timeline){0};
}

int timeline_reserve(struct timeline *t, int64_t marks)
{
	struct k_event **events;
	enum timeline_phase *phases;
	int rc;

	timeline_reset(t);
	if (marks <= t->capacity)
		return 0;
	events = realloc(t->events, (size_t)marks * sizeof(*events));
	if (!events)
		return -ENOMEM;
	t->events = events;
	phases = realloc(t->phases, (size_t)marks * sizeof(*phases));
	if (!phases)
		return -ENOMEM;
	t->phases = phases;
	for (; t->capacity < marks; t->capacity++) {
		rc = k_event_create(t->ctx, &t->events[t->capacity]);
		if (rc)
			return rc;
	}
	return 0;
}

void timeline_reset(struct timeline *t)
{
	t->n = 0;
	t->begun = false;
}

void timeline_start(struct timeline *t)
{
	if (!t->begun)
		k_event_record(t->ends[t->last], t->stream);
	t->begun = true;
	t->n = 0;
}

enum timeline_phase timeline_enter(struct timeline *t, enum timeline_phase phase)
{
	enum timeline_phase before = t->n ? t->phases[t->n - 1] : TIMELINE_OTHER;

	assert(t->n < t->capacity);
	t->phases[t->n] = phase;
	k_event_record(t->events[t->n], t->stream);
	t->n++;
	return before;
}

void timeline_replay(struct timeline *t, const enum timeline_phase *phases, int64_t n)
{
	assert(t->n + n <= t->capacity);
	memcpy(t->phases + t->n, phases, (size_t)n * sizeof(*phases));
	t->n += n;
}

void timeline_end(struct timeline *t)
{
	t->last = !t->last;
	k_event_record(t->ends[t->last], t->stream);
}

void timeline_total(const struct timeline *t, int64_t ns[TIMELINE_PHASES])
{
	const struct k_event *from = t->ends[!t->last];

	memset(ns, 0, TIMELINE_PHASES * sizeof(*ns));
	for (int64_t i = 0; i <= t->n; i++) {
		const struct k_event *to = i < t->n ? t->events[i] : t->ends[t->last];

		ns[i ? t->phases[i - 1] : TIMELINE_OTHER] += k_event_elapsed_ns(from, to);
		from = to;
	}
}

int64_t timeline_exposed(const struct timeline *t, float *ns)
{
	int64_t n = 0;

	for (int64_t i = 0; i < t->n; i++) {
		const struct k_event *to = i + 1 < t->n ? t->events[i + 1] : t->ends[t->last];

		if (t->phases[i] != TIMELINE_EXPOSED)
			continue;
		if (ns)
			ns[n] = (float)k_event_elapsed_ns(t->events[i], to);
		n++;
	}
	return n;
}
