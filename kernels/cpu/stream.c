#include "kernels/cpu/stream.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUEUE_ENTRIES = 256, ARGS_INLINE_BYTES = 192, THREAD_NAME_BYTES = 16 };

struct entry {
	const char *name;
	stream_fn *fn;
	bool always;
	void *args_heap; /* if too large for args */
	_Alignas(16) unsigned char args[ARGS_INLINE_BYTES];
};

struct stream_queue {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled; /* the worker waits for it */
	pthread_cond_t moved;  /* an entry has run */
	int64_t submitted, finished;
	bool stop;
	struct entry entries[QUEUE_ENTRIES];
};

int64_t stream_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct timespec stream_deadline(int64_t timeout_ns)
{
	int64_t now = stream_now_ns(), at;

	if (timeout_ns < 0)
		timeout_ns = 0;
	at = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
	return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

void stream_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

static void run_now(
	struct k_stream *s, const char *name, stream_fn *fn, bool always, const void *args)
{
	int rc;

	if (!always && atomic_load(&s->ctx->failed))
		return;
	rc = fn(s, args);
	if (rc < 0)
		context_fail(s->ctx, "%s: %s", name, strerrordesc_np(-rc));
}

static void *worker_main(void *arg)
{
	struct k_stream *s = arg;
	struct stream_queue *q = s->queue;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct entry *e;

		while (q->finished == q->submitted && !q->stop)
			pthread_cond_wait(&q->filled, &q->lock);
		if (q->finished == q->submitted)
			break;
		e = &q->entries[q->finished % QUEUE_ENTRIES];
		pthread_mutex_unlock(&q->lock);
		run_now(s, e->name, e->fn, e->always, e->args_heap ? e->args_heap : e->args);
		free(e->args_heap);
		pthread_mutex_lock(&q->lock);
		q->finished++;
		pthread_cond_broadcast(&q->moved);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

static void enqueue(struct stream_queue *q, struct k_context *ctx, const char *name, stream_fn *fn,
	bool always, const void *args, size_t bytes)
{
	void *heap = NULL;
	struct entry *e;

	if (bytes > ARGS_INLINE_BYTES) {
		heap = malloc(bytes);
		if (!heap) {
			context_fail(ctx, "%s: no memory to queue it", name);
			return;
		}
		memcpy(heap, args, bytes);
	}
	pthread_mutex_lock(&q->lock);
	while (q->submitted - q->finished == QUEUE_ENTRIES)
		pthread_cond_wait(&q->moved, &q->lock);
	e = &q->entries[q->submitted % QUEUE_ENTRIES];
	e->name = name;
	e->fn = fn;
	e->always = always;
	e->args_heap = heap;
	if (!heap && bytes > 0)
		memcpy(e->args, args, bytes);
	q->submitted++;
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
}

void stream_submit(
	struct k_stream *s, const char *name, stream_fn *fn, const void *args, size_t bytes)
{
	if (s->queue)
		enqueue(s->queue, s->ctx, name, fn, false, args, bytes);
	else
		run_now(s, name, fn, false, args);
}

void stream_submit_always(
	struct k_stream *s, const char *name, stream_fn *fn, const void *args, size_t bytes)
{
	if (s->queue)
		enqueue(s->queue, s->ctx, name, fn, true, args, bytes);
	else
		run_now(s, name, fn, true, args);
}

static int queue_create(struct k_stream *s, const char *name)
{
	struct stream_queue *q = calloc(1, sizeof *q);
	char short_name[THREAD_NAME_BYTES];
	sigset_t all, before;
	int rc;

	if (!q)
		return -ENOMEM;
	pthread_mutex_init(&q->lock, NULL);
	stream_cond_init(&q->filled);
	stream_cond_init(&q->moved);
	s->queue = q;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&q->thread, NULL, worker_main, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0) {
		free(q);
		return -rc;
	}
	snprintf(short_name, sizeof short_name, "%s", name);
	pthread_setname_np(q->thread, short_name);
	return 0;
}

static void queue_destroy(struct stream_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	pthread_cond_destroy(&q->moved);
	pthread_cond_destroy(&q->filled);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

int k_stream_create(
	struct k_context *ctx, enum k_stream_kind kind, const char *name, struct k_stream **out)
{
	struct k_stream *s = calloc(1, sizeof *s);
	int rc;

	if (!s)
		return -ENOMEM;
	s->ctx = ctx;
	s->pool = ctx->pool;
	if (kind != K_STREAM_COMPUTE) {
		rc = pool_create(1, &s->pool);
		if (rc < 0)
			goto free_stream;
		rc = queue_create(s, name);
		if (rc < 0)
			goto destroy_pool;
	}
	*out = s;
	return 0;

destroy_pool:
	pool_destroy(s->pool);
free_stream:
	free(s);
	return rc;
}

void k_stream_destroy(struct k_stream *s)
{
	if (!s)
		return;
	if (s->queue) {
		queue_destroy(s->queue);
		pool_destroy(s->pool);
	}
	free(s);
}

struct k_stream *k_stream_fork(struct k_stream *s)
{
	return s;
}

void k_stream_mark(struct k_stream *s, int i)
{
}

void k_stream_await(struct k_stream *s, int i)
{
}

void k_stream_join(struct k_stream *s)
{
}

struct host_call {
	void (*fn)(void *arg);
	void *arg;
};

static int run_host_call(struct k_stream *s, const void *args)
{
	const struct host_call *call = args;

	call->fn(call->arg);
	return 0;
}

void k_stream_host(struct k_stream *s, void (*fn)(void *arg), void *arg)
{
	struct host_call call = {fn, arg};

	stream_submit_always(s, "k_stream_host", run_host_call, &call, sizeof call);
}

static int queue_wait(struct stream_queue *q, int64_t timeout_ns)
{
	struct timespec deadline = stream_deadline(timeout_ns);
	int64_t target;
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	target = q->submitted;
	while (q->finished < target && rc == 0)
		rc = pthread_cond_timedwait(&q->moved, &q->lock, &deadline);
	rc = q->finished < target ? -ETIMEDOUT : 0;
	pthread_mutex_unlock(&q->lock);
	return rc;
}

void *k_stream_native(struct k_stream *s)
{
	return NULL;
}

int k_stream_sync(struct k_stream *s, int64_t timeout_ns)
{
	int rc = s->queue ? queue_wait(s->queue, timeout_ns) : 0;

	if (rc == 0 && atomic_load(&s->ctx->failed))
		rc = -EIO;
	return rc;
}
