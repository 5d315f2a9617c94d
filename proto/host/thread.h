/*
 * thread.h: threads that block all signals, which only the main thread handles, and conditions that
 * use the monotonic clock.
 */
#ifndef GPT2D_PROTO_HOST_THREAD_H
#define GPT2D_PROTO_HOST_THREAD_H

#include <pthread.h>

/*
 * name, of at most 15 bytes, is shown by top and gdb. 0 and *out, which the caller must join; or a
 * negative errno: -EAGAIN if no more threads are allowed.
 */
int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg, const char *name);

/* As pthread_cond_init, but pthread_cond_timedwait takes a time of CLOCK_MONOTONIC. */
void thread_condition_init(pthread_cond_t *condition);

#endif
