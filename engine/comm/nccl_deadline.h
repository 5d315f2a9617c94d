/*
 * nccl_deadline.h: which collective on its way is late. NCCL says nothing of a peer that has
 * stopped: a collective that has begun on the device and has not ended for some time is the only
 * sign. A captured step is watched as a whole, since nobody may look at the events inside it; what
 * it computes is no waiting for peers, so it has longer, by what steps like it took.
 *
 * One thread issues collectives, another may look.
 */
#ifndef GPT2D_ENGINE_COMM_NCCL_DEADLINE_H
#define GPT2D_ENGINE_COMM_NCCL_DEADLINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "kernels/kernels.h"

/* One mark for two collectives would also count what is computed between them. */
enum { NCCL_DEADLINE_MARKS = COLLECTIVES_STEP_MAX };

struct nccl_deadline_mark {
	struct k_event *begun, *ended; /* NULL: it was never needed */
	const char *name;
	int64_t limit_ns; /* it may take so long */
};

struct nccl_deadline {
	struct k_context *ctx;
	struct nccl_deadline_mark ring[NCCL_DEADLINE_MARKS];
	_Atomic uint64_t issued, ended;
	int64_t begun_ns; /* when the oldest was seen to have begun; 0: it has not */
};

/* 0 or a negative errno; to be finished either way. */
int nccl_deadline_init(struct nccl_deadline *d, struct k_context *ctx);
void nccl_deadline_finish(struct nccl_deadline *d); /* also when all 0 */

/*
 * Around the launch of a collective on s, which may take so long; name lives as long as d. In a
 * capture there is no mark, NULL: nobody may look at the events of one. The launch of the graph is
 * then what has marks. NULL too when there is no event to be had: it is not watched then.
 */
struct nccl_deadline_mark *nccl_deadline_begin(
	struct nccl_deadline *d, const char *name, int64_t limit_ns, struct k_stream *s);
void nccl_deadline_end(
	struct nccl_deadline *d, struct nccl_deadline_mark *mark, struct k_stream *s);

/* The oldest collective if it has run for as long as it may, as far as was looked; else NULL. */
const struct nccl_deadline_mark *nccl_deadline_late(struct nccl_deadline *d);

#endif
