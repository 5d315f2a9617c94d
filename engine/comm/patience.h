/*
 * patience.h: waits for a stream whose collectives may never end. After a failure the device gets
 * some time to become idle, because an abort ends the collectives. If it does not, the wait ends
 * anyway, so that the process can end.
 */
#ifndef GPT2D_ENGINE_COMM_PATIENCE_H
#define GPT2D_ENGINE_COMM_PATIENCE_H

#include <stdint.h>

#include "engine/comm/collectives.h"
#include "kernels/kernels.h"
#include "proto/host/clock.h"

#define PATIENCE_NS (5 * CLOCK_S_NS)

struct patience {
	const struct collectives *collectives; /* NULL: there are no collectives */
	int64_t timeout_ns;                    /* of the whole wait */
	int64_t patience_ns;                   /* after a failure; PATIENCE_NS */
};

/*
 * As k_stream_sync and k_event_sync, and -EPIPE if collectives have failed and the device did not
 * become idle. Other results say nothing about collectives.
 */
int patience_stream(const struct patience *p, struct k_stream *s);
int patience_event(const struct patience *p, struct k_event *e);

#endif
