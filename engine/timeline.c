#include "engine/timeline.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void timeline_init(struct timeline *t, struct k_context *ctx, struct k_stream *stream)
{
	*t = (struct timeline){.ctx = ctx, .stream = stream};
}

void timeline_finish(struct timeline *t)
{
	for (int64_t i = 0; i < t->capacity; i++)
		k_event_destroy(t->events[i]);
	free(t->events);
	free(t->phases);
	*t = (struct timeline){0};
}

int timeline_reserve(struct timeline *t, int64_t marks)
{
	struct k_event **events;
	enum timeline_phase *phases;
	int rc;

	t->n = 0;
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
}

void timeline_start(struct timeline *t)
{
	struct k_event *last;

	if (!t->n) {
		timeline_enter(t, TIMELINE_OTHER);
		return;
	}
	last = t->events[t->n - 1];
	t->events[t->n - 1] = t->events[0];
	t->events[0] = last;
	t->phases[0] = TIMELINE_OTHER;
	t->n = 1;
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

void timeline_total(const struct timeline *t, int64_t ns[TIMELINE_PHASES])
{
	memset(ns, 0, TIMELINE_PHASES * sizeof(*ns));
	for (int64_t i = 0; i + 1 < t->n; i++)
		ns[t->phases[i]] += k_event_elapsed_ns(t->events[i], t->events[i + 1]);
}
