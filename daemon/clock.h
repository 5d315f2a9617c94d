/* clock.h: durations from the monotonic clock, timestamps in UTC. */
#ifndef GPT2D_CLOCK_H
#define GPT2D_CLOCK_H

#include <jansson.h>
#include <stdint.h>

#define CLOCK_S_NS INT64_C(1000000000)

int64_t clock_mono_ns(void);
int64_t clock_utc_ns(void); /* since 1970 */

enum { CLOCK_TEXT_BYTES = 40 };
/* "2026-01-08T19:50:57.123Z" */
void clock_text(int64_t utc_ns, char out[CLOCK_TEXT_BYTES]);
/* The same as a JSON string, null for 0. */
json_t *clock_json(int64_t utc_ns);

#endif
