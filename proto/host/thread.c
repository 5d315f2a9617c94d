#include "proto/host/thread.h"

#include <signal.h>
#include <time.h>

int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg, const char *name)
{
	sigset_t all, before;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0)
		return -rc;
	pthread_setname_np(thread, name);
	*out = thread;
	return 0;
}

void thread_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}
