#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/stream.h"

/* Records are numbered: a wait is for the last record issued before it. */
struct k_event {
	struct k_context *ctx;
	pthread_mutex_t lock;
	pthread_cond_t reached;
	int64_t issued, done;
	int64_t time_ns; /* of record `done`, CLOCK_MONOTONIC */
};

struct event_call {
	struct k_event *event;
	int64_t number;
};

int k_event_create(struct k_context *ctx, struct k_event **out)
{
	struct k_event *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->ctx = ctx;
	pthread_mutex_init(&e->lock, NULL);
	stream_cond_init(&e->reached);
	*out = e;
	return 0;
}

void k_event_destroy(struct k_event *e)
{
	if (!e)
		return;
	pthread_cond_destroy(&e->reached);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static int run_record(struct k_stream *s, const void *args)
{
	const struct event_call *call = args;
	struct k_event *e = call->event;

	pthread_mutex_lock(&e->lock);
	if (call->number > e->done) {
		e->done = call->number;
		e->time_ns = stream_now_ns();
	}
	pthread_cond_broadcast(&e->reached);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static int run_wait(struct k_stream *s, const void *args)
{
	const struct event_call *call = args;
	struct k_event *e = call->event;

	pthread_mutex_lock(&e->lock);
	while (e->done < call->number)
		pthread_cond_wait(&e->reached, &e->lock);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static int64_t last_issued(struct k_event *e, bool add)
{
	int64_t number;

	pthread_mutex_lock(&e->lock);
	if (add)
		e->issued++;
	number = e->issued;
	pthread_mutex_unlock(&e->lock);
	return number;
}

void k_event_record(struct k_event *e, struct k_stream *s)
{
	struct event_call call = {e, last_issued(e, true)};

	stream_submit_always(s, "k_event_record", run_record, &call, sizeof call);
}

void k_stream_wait(struct k_stream *s, struct k_event *e)
{
	struct event_call call = {e, last_issued(e, false)};

	stream_submit_always(s, "k_stream_wait", run_wait, &call, sizeof call);
}

int k_event_sync(struct k_event *e, int64_t timeout_ns)
{
	struct timespec deadline = stream_deadline(timeout_ns);
	int rc = 0;
	int64_t target;

	pthread_mutex_lock(&e->lock);
	target = e->issued;
	while (e->done < target && rc == 0)
		rc = pthread_cond_timedwait(&e->reached, &e->lock, &deadline);
	rc = e->done < target ? -ETIMEDOUT : 0;
	pthread_mutex_unlock(&e->lock);
	if (rc == 0 && atomic_load(&e->ctx->failed))
		rc = -EIO;
	return rc;
}

int64_t k_event_elapsed_ns(const struct k_event *from, const struct k_event *to)
{
	return to->time_ns - from->time_ns;
}
