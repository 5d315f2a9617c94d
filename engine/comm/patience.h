/*
 * patience.h: waiting for a stream whose collectives may never end. After they have failed the
 * device is given some time to come to rest, since an abort ends them; should it not, the wait ends
 * all the same, so that the process can.
 */
#ifndef GPT2D_ENGINE_COMM_PATIENCE_H
#define GPT2D_ENGINE_COMM_PATIENCE_H

#include <stdint.h>

#include "engine/comm/collectives.h"
#include "kernels/kernels.h"
#include "proto/host/clock.h"

#define PATIENCE_NS (5 * CLOCK_S_NS)

struct patience {
	const struct collectives *collectives; /* NULL: there are none that could fail */
	int64_t timeout_ns;                    /* of the whole wait */
	int64_t patience_ns;                   /* after a failure; PATIENCE_NS */
};

/*
 * As k_stream_sync and k_event_sync, and -EPIPE when collectives have failed and the device did not
 * come to rest. A wait that ends otherwise says nothing of collectives.
 */
int patience_stream(const struct patience *p, struct k_stream *s);
int patience_event(const struct patience *p, struct k_event *e);

#endif
