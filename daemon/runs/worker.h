/*
 * worker.h: one thread for slow work on files of runs: reading, hashing, removing. The store's
 * thread does not wait for it. Jobs run in the order in which they were added. A long job does one
 * piece of its work, and its done() adds it again, so that other jobs get their turn.
 */
#ifndef GPT2D_DAEMON_RUNS_WORKER_H
#define GPT2D_DAEMON_RUNS_WORKER_H

#include <stdbool.h>
#include <sys/queue.h>

struct event_base;
struct worker;

/* The head of a caller's own structure. */
struct worker_job {
	int (*work)(struct worker_job *job); /* in the thread: 0 or a negative errno */
	/* in the loop; owns job; rc: of work, or -ECANCELED: it did not start */
	void (*done)(struct worker_job *job, int rc);
	int rc;                        /* private */
	STAILQ_ENTRY(worker_job) link; /* private */
};

/* 0 or a negative errno: no thread, no descriptor. */
int worker_create(struct event_base *base, struct worker **out);
/* After worker_stop: done() is called at once with -ECANCELED. */
void worker_add(struct worker *w, struct worker_job *job);
/* Ends the thread after the current job; calls done() of all. Takes NULL. */
void worker_stop(struct worker *w);
void worker_destroy(struct worker *w); /* after worker_stop; takes NULL */

#endif
