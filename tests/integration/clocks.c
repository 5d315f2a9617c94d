/*
 * Other times than the machine's, for tests: a library to be preloaded, which adds to the wall
 * clock, to the one since boot and to the monotonic one what the test has asked for. $GPT2D_CLOCKS
 * is a folder; a program takes part when the folder has a file of its name, a struct control.
 * clocks.py writes it.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "tests/integration/preload.h"

/* Shared with the test. */
struct control {
	int64_t utc_s, boot_s, mono_s;
};

static const struct control *control;
static int (*next)(clockid_t clock, struct timespec *out);

__attribute__((constructor)) static void begin(void)
{
	void *symbol = dlsym(RTLD_NEXT, "clock_gettime");

	if (symbol == NULL)
		abort();
	*(void **)(void *)&next = symbol;
	control = preload_control("GPT2D_CLOCKS", sizeof(*control));
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	int rc;

	if (next == NULL)
		begin();
	rc = next(clock, out);
	if (rc == 0 && control != NULL && clock == CLOCK_REALTIME)
		out->tv_sec += (time_t)__atomic_load_n(&control->utc_s, __ATOMIC_SEQ_CST);
	if (rc == 0 && control != NULL && clock == CLOCK_BOOTTIME)
		out->tv_sec += (time_t)__atomic_load_n(&control->boot_s, __ATOMIC_SEQ_CST);
	if (rc == 0 && control != NULL && clock == CLOCK_MONOTONIC)
		out->tv_sec += (time_t)__atomic_load_n(&control->mono_s, __ATOMIC_SEQ_CST);
	return rc;
}
