/*
 * worker.h: one thread for files of runs that may take long: read, hashed, removed. The store's
 * thread is not made to wait for them. Jobs run one after another in the order in which they were
 * added; one that has much to do does a piece, and is added again by its done(), so that those of
 * others come between.
 */
#ifndef GPT2D_DAEMON_STORE_WORKER_H
#define GPT2D_DAEMON_STORE_WORKER_H

#include <stdbool.h>

struct event_base;
struct worker;

/* The head of a caller's own structure. */
struct worker_job {
	int (*work)(struct worker_job *job);          /* in the thread: 0 or a negative errno */
	void (*done)(struct worker_job *job, int rc); /* in the loop; owns job; rc: of work, or
						       * -ECANCELED: it was not begun */
	int rc;                                       /* private */
	struct worker_job *next;                      /* private */
};

/* 0 or a negative errno: no thread, no descriptor, no memory. */
int worker_create(struct event_base *base, struct worker **out);
/* After worker_stop: done() is called at once with -ECANCELED. */
void worker_add(struct worker *w, struct worker_job *job);
/* Ends the thread after the job it is at; calls done() of all. Takes NULL. */
void worker_stop(struct worker *w);
void worker_destroy(struct worker *w); /* after worker_stop; takes NULL */

#endif
