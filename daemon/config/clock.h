/* clock.h: detects silence of others, and a wall clock that has jumped ahead. */
#ifndef GPT2D_DAEMON_CONFIG_CLOCK_H
#define GPT2D_DAEMON_CONFIG_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/host/clock.h"

/*
 * Measures how long others have been silent. The caller updates it when the watch begins and then
 * each second. If the caller was suspended (stopped, its control group frozen, the machine paused),
 * the others most likely were too, so the measurement starts again.
 */
struct clock_watch {
	int64_t updated_ns; /* the last update */
	int64_t awake_ns;   /* since when there was no such gap; 0: there was none */
};
void clock_watch_update(struct clock_watch *watch, int64_t now_ns);
/* Time from heard_ns to the last update, without suspensions. */
int64_t clock_watch_since(const struct clock_watch *watch, int64_t heard_ns);

/*
 * Detects a wall clock that has jumped ahead. The caller updates it at least once a minute. The
 * clock is distrusted if it is ahead of the elapsed time by more than CLOCK_LEAP_S. At the start it
 * is distrusted if it is more than CLOCK_AWAY_S after the last known time, which also happens after
 * a long time without gpt2d. It is trusted again when it is right again, and after CLOCK_DOUBT_S in
 * any case.
 */
enum { CLOCK_LEAP_S = 3600, CLOCK_AWAY_S = 30 * 86400, CLOCK_DOUBT_S = 86400 };
struct clock_trust {
	int64_t boot_ns, utc_ns; /* the last trusted time */
	int64_t leap_ns;         /* how far it may be ahead of that time plus the elapsed time */
	int64_t doubted_ns;      /* since when it is distrusted, by boot_ns; -1: it is trusted */
	int64_t expected_ns;     /* the expected time at the last update */
};
/* last_ns: UTC, the last known time; 0: none. */
void clock_trust_begin(struct clock_trust *trust, int64_t last_ns, int64_t boot_ns, int64_t utc_ns);
void clock_trust_update(struct clock_trust *trust, int64_t boot_ns, int64_t utc_ns);
bool clock_trust_has(const struct clock_trust *trust); /* at the last update */

#endif
