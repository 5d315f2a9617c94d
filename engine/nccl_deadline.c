#include "engine/nccl_deadline.h"

#include <errno.h>
#include <stddef.h>

#include "proto/clock.h"

int nccl_deadline_init(struct nccl_deadline *d, struct k_context *ctx)
{
	int status = 0;

	*d = (struct nccl_deadline){.ctx = ctx};
	for (int i = 0; i < NCCL_DEADLINE_MARKS && status == 0; i++) {
		status = k_event_create(ctx, &d->ring[i].begun);
		if (status == 0)
			status = k_event_create(ctx, &d->ring[i].ended);
	}
	return status;
}

void nccl_deadline_finish(struct nccl_deadline *d)
{
	for (int i = 0; i < NCCL_DEADLINE_MARKS; i++) {
		k_event_destroy(d->ring[i].begun);
		k_event_destroy(d->ring[i].ended);
	}
}

/*
 * When the ring is full its newest mark stands for what follows too: it ends when the last of them
 * does.
 */
struct nccl_deadline_mark *nccl_deadline_begin(
	struct nccl_deadline *d, const char *name, struct k_stream *s)
{
	uint64_t issued = atomic_load(&d->issued);
	struct nccl_deadline_mark *mark = &d->ring[issued % NCCL_DEADLINE_MARKS];

	if (k_graph_capturing(s))
		return NULL;
	if (issued - atomic_load(&d->ended) >= NCCL_DEADLINE_MARKS)
		return &d->ring[(issued - 1) % NCCL_DEADLINE_MARKS];
	mark->name = name;
	k_event_record(mark->begun, s);
	return mark;
}

void nccl_deadline_end(struct nccl_deadline *d, struct nccl_deadline_mark *mark, struct k_stream *s)
{
	if (!mark)
		return;
	k_event_record(mark->ended, s);
	if (mark == &d->ring[atomic_load(&d->issued) % NCCL_DEADLINE_MARKS])
		atomic_fetch_add(&d->issued, 1);
}

const char *nccl_deadline_late(struct nccl_deadline *d, int64_t timeout_ns)
{
	while (atomic_load(&d->ended) != atomic_load(&d->issued)) {
		struct nccl_deadline_mark *mark =
			&d->ring[atomic_load(&d->ended) % NCCL_DEADLINE_MARKS];
		int64_t now = clock_mono_ns();

		if (k_event_sync(mark->ended, 0) != -ETIMEDOUT) {
			d->begun_ns = 0;
			atomic_fetch_add(&d->ended, 1);
			continue;
		}
		if (d->begun_ns == 0 && k_event_sync(mark->begun, 0) != -ETIMEDOUT)
			d->begun_ns = now;
		return d->begun_ns != 0 && now - d->begun_ns >= timeout_ns ? mark->name : NULL;
	}
	return NULL;
}
