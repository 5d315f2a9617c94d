/*
 * thread.h: threads that take no signals, which are the business of the main thread, and conditions
 * that are waited for by the monotonic clock.
 */
#ifndef GPT2D_PROTO_HOST_THREAD_H
#define GPT2D_PROTO_HOST_THREAD_H

#include <pthread.h>

/*
 * name, of at most 15 bytes, is what top and gdb show. 0 and *out, which is to be joined; or a
 * negative errno: -EAGAIN where there may be no more threads.
 */
int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg, const char *name);

/* As pthread_cond_init, but that pthread_cond_timedwait takes a time of CLOCK_MONOTONIC. */
void thread_condition_init(pthread_cond_t *condition);

#endif
