#include "proto/host/clock.h"

#include <stdio.h>
#include <string.h>

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

struct timespec clock_timespec(int64_t ns)
{
	return (struct timespec){(time_t)(ns / CLOCK_S_NS), (long)(ns % CLOCK_S_NS)};
}

void clock_text_s(int64_t utc_ns, char out[CLOCK_TEXT_BYTES])
{
	time_t seconds = (time_t)(utc_ns / CLOCK_S_NS);
	struct tm t;

	if (gmtime_r(&seconds, &t) == NULL ||
		strftime(out, CLOCK_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &t) == 0)
		strcpy(out, "?Z");
}

void clock_text(int64_t utc_ns, char out[CLOCK_TEXT_BYTES])
{
	size_t n;

	clock_text_s(utc_ns, out);
	n = strlen(out) - 1; /* without Z */
	snprintf(out + n, CLOCK_TEXT_BYTES - n, ".%03dZ", (int)(utc_ns % CLOCK_S_NS / CLOCK_MS_NS));
}

json_t *clock_json(int64_t utc_ns)
{
	char text[CLOCK_TEXT_BYTES];

	if (utc_ns == 0)
		return json_null();
	clock_text(utc_ns, text);
	return json_string(text);
}
