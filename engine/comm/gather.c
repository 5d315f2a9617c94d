#include "engine/comm/gather.h"

#include <stdlib.h>
#include <string.h>

#include "proto/protocol.h"

/* The others wait for this rank. */
static bool no_memory(struct segment *s, const char *what)
{
	segment_poison(s, ENGINE_EXIT_POISONED);
	return segment_fail(s, "no_memory", "no memory for %s of %d ranks", what, s->world);
}

static bool gather_times(struct segment *s, struct warm *w)
{
	const size_t bytes = (size_t)s->measure.done * sizeof(*s->measure.own);
	struct measure_step *all = NULL;
	struct metrics_host_rank own;

	metrics_host_read(&own);
	if (w->gpu_log)
		gpu_log_summarise(gpu_log_device(w->gpu_log), &s->gpu, &own.gpu);
	s->ranks = calloc((size_t)s->world, sizeof(*s->ranks));
	if (s->world > 1)
		all = malloc((size_t)s->world * bytes);
	if (!s->ranks || (s->world > 1 && !all)) {
		free(all);
		return no_memory(s, "the times");
	}
	if (s->world > 1) {
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

/* Each rank sends as many samples as the one with most has; how many are its own is in ranks. */
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
	own = realloc(s->gpu.sample, bytes);
	if (!own)
		return no_memory(s, "the GPU samples");
	memset(own + s->gpu.n, 0, (room - s->gpu.n) * sizeof(*own));
	s->gpu.sample = own;
	s->gpu.capacity = room;
	s->gpus = malloc((size_t)s->world * bytes);
	if (!s->gpus)
		return no_memory(s, "the GPU samples");
	s->gpus_room = room;
	if (s->world == 1) {
		memcpy(s->gpus, own, bytes);
		return true;
	}
	collectives_gather_all(s->group, s->gpus, own, bytes, w->comm);
	return segment_sync(s, w);
}

bool gather_segment(struct segment *s, struct warm *w)
{
	return gather_times(s, w) && gather_gpus(s, w);
}
