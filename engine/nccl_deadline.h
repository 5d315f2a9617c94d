/*
 * nccl_deadline.h: which collective on its way is late. NCCL says nothing of a peer that has
 * stopped: a collective that has begun on the device and has not ended for some time is the only
 * sign.
 *
 * One thread issues collectives, another may look.
 */
#ifndef GPT2D_NCCL_DEADLINE_H
#define GPT2D_NCCL_DEADLINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { NCCL_DEADLINE_MARKS = 256 };

struct nccl_deadline_mark {
	struct k_event *begun, *ended;
	const char *name;
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
 * Around the launch of a collective on s; name lives as long as d. In a capture there is no mark,
 * NULL: nobody may look at the events of one. The launch of the graph is then what has marks.
 */
struct nccl_deadline_mark *nccl_deadline_begin(
	struct nccl_deadline *d, const char *name, struct k_stream *s);
void nccl_deadline_end(
	struct nccl_deadline *d, struct nccl_deadline_mark *mark, struct k_stream *s);

/* Name of the oldest collective if it has run for timeout_ns, as far as was looked; else NULL. */
const char *nccl_deadline_late(struct nccl_deadline *d, int64_t timeout_ns);

#endif
