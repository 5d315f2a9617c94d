#include "daemon/runs/worker.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/host/memory.h"
#include "proto/host/thread.h"

STAILQ_HEAD(jobs, worker_job);

struct worker {
	pthread_t thread;
	bool started, stopped;
	int fd; /* eventfd: a job is complete */
	struct event *event;

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake;
	struct jobs waiting, complete;
	bool stopping;
};

static void *run_thread(void *arg)
{
	const uint64_t one = 1;
	struct worker *w = arg;
	struct worker_job *job;

	for (;;) {
		pthread_mutex_lock(&w->lock);
		while (STAILQ_EMPTY(&w->waiting) && !w->stopping)
			pthread_cond_wait(&w->wake, &w->lock);
		job = w->stopping ? NULL : STAILQ_FIRST(&w->waiting);
		if (job != NULL)
			STAILQ_REMOVE_HEAD(&w->waiting, link);
		pthread_mutex_unlock(&w->lock);
		if (job == NULL)
			return NULL;
		job->rc = job->work(job);
		pthread_mutex_lock(&w->lock);
		STAILQ_INSERT_TAIL(&w->complete, job, link);
		pthread_mutex_unlock(&w->lock);
		if (write(w->fd, &one, sizeof(one)) < 0)
			continue; /* the counter is full: it is already readable */
	}
}

static void deliver(struct worker *w)
{
	struct jobs complete = STAILQ_HEAD_INITIALIZER(complete);
	struct worker_job *job;

	/* jobs that a done() adds wait for the next turn */
	pthread_mutex_lock(&w->lock);
	STAILQ_CONCAT(&complete, &w->complete);
	pthread_mutex_unlock(&w->lock);
	while ((job = STAILQ_FIRST(&complete)) != NULL) {
		STAILQ_REMOVE_HEAD(&complete, link);
		job->done(job, job->rc);
	}
}

static void on_complete(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	uint64_t count;

	if (read(w->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	deliver(w);
}

int worker_create(struct event_base *base, struct worker **out)
{
	struct worker *w = memory_zeroed(1, sizeof(*w));
	int rc;

	STAILQ_INIT(&w->waiting);
	STAILQ_INIT(&w->complete);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = w->fd < 0 ? -errno : 0;
	if (rc == 0) {
		w->event = event_new(base, w->fd, EV_READ | EV_PERSIST, on_complete, w);
		event_add(w->event, NULL);
		rc = thread_start(&w->thread, run_thread, w, "worker");
	}
	w->started = rc == 0;
	if (rc == 0)
		*out = w;
	else
		worker_destroy(w);
	return rc;
}

void worker_add(struct worker *w, struct worker_job *job)
{
	if (w->stopped) {
		job->done(job, -ECANCELED);
		return;
	}
	pthread_mutex_lock(&w->lock);
	STAILQ_INSERT_TAIL(&w->waiting, job, link);
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void worker_stop(struct worker *w)
{
	struct worker_job *job;

	if (w == NULL || w->stopped)
		return;
	w->stopped = true;
	if (w->started) {
		pthread_mutex_lock(&w->lock);
		w->stopping = true;
		pthread_cond_signal(&w->wake);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
	}
	deliver(w);
	while ((job = STAILQ_FIRST(&w->waiting)) != NULL) {
		STAILQ_REMOVE_HEAD(&w->waiting, link);
		job->done(job, -ECANCELED);
	}
}

void worker_destroy(struct worker *w)
{
	if (w == NULL)
		return;
	if (w->event)
		event_free(w->event);
	if (w->fd >= 0)
		close(w->fd);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
