#include "engine/comm/nccl_deadline.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "proto/host/clock.h"

static int make_events(const struct nccl_deadline *d, struct nccl_deadline_mark *mark)
{
	int status = 0;

	if (mark->begun == NULL)
		status = k_event_create(d->ctx, &mark->begun);
	if (status == 0 && mark->ended == NULL)
		status = k_event_create(d->ctx, &mark->ended);
	return status;
}

int nccl_deadline_init(struct nccl_deadline *d, struct k_context *ctx)
{
	memset(d, 0, sizeof(*d));
	d->ctx = ctx;
	/* the rest are created when needed: most runs have few collectives */
	return make_events(d, &d->ring[0]);
}

void nccl_deadline_finish(struct nccl_deadline *d)
{
	for (int i = 0; i < NCCL_DEADLINE_MARKS; i++) {
		k_event_destroy(d->ring[i].begun);
		k_event_destroy(d->ring[i].ended);
	}
}

/*
 * If the ring is full, its newest mark also stands for later collectives: it ends with the last of
 * them.
 */
struct nccl_deadline_mark *nccl_deadline_begin(
	struct nccl_deadline *d, const char *name, int64_t limit_ns, struct k_stream *s)
{
	uint64_t issued = atomic_load(&d->issued);
	struct nccl_deadline_mark *mark = &d->ring[issued % NCCL_DEADLINE_MARKS];

	if (k_graph_capturing(s))
		return NULL;
	if (issued - atomic_load(&d->ended) >= NCCL_DEADLINE_MARKS)
		return &d->ring[(issued - 1) % NCCL_DEADLINE_MARKS];
	if (make_events(d, mark) != 0)
		return NULL;
	mark->name = name;
	mark->limit_ns = limit_ns;
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

const struct nccl_deadline_mark *nccl_deadline_late(struct nccl_deadline *d)
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
		return d->begun_ns != 0 && now - d->begun_ns >= mark->limit_ns ? mark : NULL;
	}
	return NULL;
}
