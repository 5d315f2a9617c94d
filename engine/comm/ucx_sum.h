/*
 * ucx_sum.h: reductions in rank order.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_SUM_H
#define GPT2D_ENGINE_COMM_UCX_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"

enum ucx_sum_type { UCX_SUM_FLOAT, UCX_SUM_DOUBLE, UCX_SUM_INT64 };

size_t ucx_sum_elem_bytes(enum ucx_sum_type type);

/*
 * dst (n elements) = src0 op src1 op ... in that order; dst may be one of them. Integers wrap. A
 * maximum with a nan in it is nan.
 */
void ucx_sum(enum ucx_sum_type type, enum collectives_op op, void *dst, const void *const *srcs,
	int count, int64_t n);

#endif
