#include "proto/clock.h"

#include <time.h>

static int64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * CLOCK_S_NS + t.tv_nsec;
}

int64_t clock_mono_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

int64_t clock_boot_ns(void)
{
	return now_ns(CLOCK_BOOTTIME);
}

int64_t clock_utc_ns(void)
{
	return now_ns(CLOCK_REALTIME);
}
