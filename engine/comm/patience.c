#include "engine/comm/patience.h"

#include <errno.h>
#include <stdbool.h>

/* Pause between two checks of the collectives. */
#define LOOK_NS (100 * CLOCK_MS_NS)

static int wait_for(const struct patience *p, struct k_stream *s, struct k_event *e)
{
	int64_t begun = clock_mono_ns(), failed = -1, now = begun;

	for (;;) {
		int64_t left = p->timeout_ns - (now - begun);
		int64_t slice = left < LOOK_NS ? left : LOOK_NS;
		int rc = s ? k_stream_sync(s, slice) : k_event_sync(e, slice);

		now = clock_mono_ns();
		if (rc != -ETIMEDOUT || left <= LOOK_NS)
			return rc;
		if (!p->collectives || !collectives_error(p->collectives))
			continue;
		if (failed < 0)
			failed = now;
		else if (now - failed >= p->patience_ns)
			return -EPIPE;
	}
}

int patience_stream(const struct patience *p, struct k_stream *s)
{
	return wait_for(p, s, NULL);
}

int patience_event(const struct patience *p, struct k_event *e)
{
	return wait_for(p, NULL, e);
}
