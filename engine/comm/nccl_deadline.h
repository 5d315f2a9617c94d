/*
 * nccl_deadline.h: detects late collectives. NCCL does not report a peer that has stopped: the only
 * sign is a collective that has started on the device and does not end. A captured step is watched
 * as a whole, because events inside a graph cannot be queried. It also computes, so its limit
 * includes the time of earlier steps like it.
 *
 * One thread issues collectives, another may check.
 */
#ifndef GPT2D_ENGINE_COMM_NCCL_DEADLINE_H
#define GPT2D_ENGINE_COMM_NCCL_DEADLINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "kernels/kernels.h"

/* One mark for two collectives would also include the computation between them. */
enum { NCCL_DEADLINE_MARKS = COLLECTIVES_STEP_MAX };

struct nccl_deadline_mark {
	struct k_event *begun, *ended; /* NULL: not needed yet */
	const char *name;
	int64_t limit_ns; /* its time limit */
};

struct nccl_deadline {
	struct k_context *ctx;
	struct nccl_deadline_mark ring[NCCL_DEADLINE_MARKS];
	_Atomic uint64_t issued, ended;
	int64_t begun_ns; /* when the oldest was first seen started; 0: not yet */
};

/* 0 or a negative errno; call the finish function in either case. */
int nccl_deadline_init(struct nccl_deadline *d, struct k_context *ctx);
void nccl_deadline_finish(struct nccl_deadline *d); /* also when all 0 */

/*
 * Around the launch of a collective on s, with its time limit; name lives as long as d. In a
 * capture there is no mark (NULL), because events in a graph cannot be queried; the launch of the
 * graph has marks instead. NULL also if no event is available: then the collective is not watched.
 */
struct nccl_deadline_mark *nccl_deadline_begin(
	struct nccl_deadline *d, const char *name, int64_t limit_ns, struct k_stream *s);
void nccl_deadline_end(
	struct nccl_deadline *d, struct nccl_deadline_mark *mark, struct k_stream *s);

/* The oldest collective if it has exceeded its limit, as of the last check; else NULL. */
const struct nccl_deadline_mark *nccl_deadline_late(struct nccl_deadline *d);

#endif
