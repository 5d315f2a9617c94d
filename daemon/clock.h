/* clock.h: durations from the monotonic clock, timestamps in UTC. */
#ifndef GPT2D_CLOCK_H
#define GPT2D_CLOCK_H

#include <jansson.h>
#include <stdint.h>

#define CLOCK_S_NS INT64_C(1000000000)

int64_t clock_mono_ns(void);
int64_t clock_utc_ns(void); /* since 1970 */

/*
 * For who looks each second how long others have been silent: it may have stood still itself
 * (stopped, its control group frozen, the machine paused), most likely together with them, and then
 * they get their time anew. Look once when the watch begins.
 */
struct clock_watch {
	int64_t looked_ns; /* last */
	int64_t awake_ns;  /* since then without such a gap; 0: there was none */
};
void clock_watch_look(struct clock_watch *watch, int64_t now_ns);
/* How long it is at the last look since heard_ns, of the time in which one was awake. */
int64_t clock_watch_since(const struct clock_watch *watch, int64_t heard_ns);

enum { CLOCK_TEXT_BYTES = 40 };
/* "2026-01-08T19:50:57.123Z" */
void clock_text(int64_t utc_ns, char out[CLOCK_TEXT_BYTES]);
/* The same as a JSON string, null for 0. */
json_t *clock_json(int64_t utc_ns);

#endif
