/* clock.h: who has been silent for how long, which clock is believed. */
#ifndef GPT2D_DAEMON_CONFIG_CLOCK_H
#define GPT2D_DAEMON_CONFIG_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/host/clock.h"

/*
 * Measures how long others have been silent, for a caller that looks each second. If the caller was
 * suspended (stopped, its control group frozen, the machine paused), the others most likely were
 * too, and their time begins again. Look once when the watch begins.
 */
struct clock_watch {
	int64_t looked_ns; /* last */
	int64_t awake_ns;  /* since then without such a gap; 0: there was none */
};
void clock_watch_look(struct clock_watch *watch, int64_t now_ns);
/* How long it is at the last look since heard_ns, of the time in which one was awake. */
int64_t clock_watch_since(const struct clock_watch *watch, int64_t heard_ns);

/*
 * Whether the wall clock is believed, for who looks at least once a minute. It is not once it is
 * further ahead than what has passed since the last look explains, by more than CLOCK_LEAP_S; nor
 * at the start when it is more than CLOCK_AWAY_S after what was last known, as it is after a long
 * time without gpt2d as well. It is again when it is back, and after CLOCK_DOUBT_S in any case.
 */
enum { CLOCK_LEAP_S = 3600, CLOCK_AWAY_S = 30 * 86400, CLOCK_DOUBT_S = 86400 };
struct clock_trust {
	int64_t boot_ns, utc_ns; /* when it was believed last */
	int64_t leap_ns;         /* what it may be ahead of that and the time since */
	int64_t doubted_ns;      /* since then, by boot_ns, it is not believed; -1: it is */
	int64_t expected_ns;     /* what it was to be at the last look */
};
/* last_ns: UTC, of what was last known, 0: nothing. */
void clock_trust_begin(struct clock_trust *trust, int64_t last_ns, int64_t boot_ns, int64_t utc_ns);
void clock_trust_look(struct clock_trust *trust, int64_t boot_ns, int64_t utc_ns);
bool clock_trust_has(const struct clock_trust *trust); /* at the last look */

#endif
