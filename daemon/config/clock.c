#include "daemon/config/clock.h"

enum { GAP_S = 3 }; /* longest pause between two updates, which should come each second */

void clock_watch_update(struct clock_watch *watch, int64_t now_ns)
{
	if (watch->updated_ns != 0 && now_ns - watch->updated_ns > GAP_S * CLOCK_S_NS)
		watch->awake_ns = now_ns;
	watch->updated_ns = now_ns;
}

int64_t clock_watch_since(const struct clock_watch *watch, int64_t heard_ns)
{
	return watch->updated_ns - (heard_ns > watch->awake_ns ? heard_ns : watch->awake_ns);
}

void clock_trust_begin(struct clock_trust *trust, int64_t last_ns, int64_t boot_ns, int64_t utc_ns)
{
	const bool known = last_ns > 0;

	*trust = (struct clock_trust){.boot_ns = boot_ns,
		.utc_ns = known ? last_ns : utc_ns,
		.leap_ns = (known ? CLOCK_AWAY_S : CLOCK_LEAP_S) * CLOCK_S_NS,
		.doubted_ns = -1};
}

void clock_trust_update(struct clock_trust *trust, int64_t boot_ns, int64_t utc_ns)
{
	const bool doubted = !clock_trust_has(trust);

	trust->expected_ns = trust->utc_ns + (boot_ns - trust->boot_ns);
	if (utc_ns - trust->expected_ns > trust->leap_ns &&
		(!doubted || boot_ns - trust->doubted_ns < CLOCK_DOUBT_S * CLOCK_S_NS)) {
		if (!doubted)
			trust->doubted_ns = boot_ns;
		return;
	}
	trust->boot_ns = boot_ns;
	trust->utc_ns = utc_ns;
	trust->leap_ns = CLOCK_LEAP_S * CLOCK_S_NS;
	trust->doubted_ns = -1;
}

bool clock_trust_has(const struct clock_trust *trust)
{
	return trust->doubted_ns < 0;
}
