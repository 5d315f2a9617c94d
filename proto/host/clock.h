/* clock.h: the time in nanoseconds. Durations use the monotonic clock. */
#ifndef GPT2D_PROTO_HOST_CLOCK_H
#define GPT2D_PROTO_HOST_CLOCK_H

#include <jansson.h>
#include <stdint.h>
#include <time.h>

#define CLOCK_MS_NS INT64_C(1000000)
#define CLOCK_S_NS  INT64_C(1000000000)

int64_t clock_mono_ns(void);
int64_t clock_boot_ns(void); /* the same, including suspensions of the machine */
int64_t clock_utc_ns(void);  /* since 1970 */

/* ns >= 0, a time or a duration, in the form of the system's waits. */
struct timespec clock_timespec(int64_t ns);

enum { CLOCK_TEXT_BYTES = 40 };
/* "2026-01-08T19:50:57.123Z" */
void clock_text(int64_t utc_ns, char out[CLOCK_TEXT_BYTES]);
/* As clock_text, as a JSON string; null for 0. */
json_t *clock_json(int64_t utc_ns);
/* "2026-01-08T19:50:57Z" */
void clock_text_s(int64_t utc_ns, char out[CLOCK_TEXT_BYTES]);

#endif
