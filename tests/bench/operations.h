/*
 * operations.h: the operations of kernels.h as both benchmarks of kernels call them, on tensors
 * that each makes its own way, and how much work each is.
 */
#ifndef GPT2D_TESTS_BENCH_OPERATIONS_H
#define GPT2D_TESTS_BENCH_OPERATIONS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct operations_shape {
	const char *name;
	int64_t B, T, NH, HS, V, Vp;
};

/* Everything an operation may need, sized for one shape; device memory. */
struct operations_tensors {
	struct operations_shape s;
	int64_t R, C, params;
	void *x, *y, *z, *dx;     /* (R,4C) */
	void *pre;                /* (R,4C), what linear_gelu leaves */
	void *weight, *dweight;   /* (Vp,C), at least (4C,C) */
	void *bias, *dbias;       /* (8C) */
	k_real *mean, *rstd;      /* (R,NH) */
	void *logits;             /* (R,Vp) */
	k_real *master, *m, *v;   /* (params) */
	void *params_low, *grads; /* (params); params_low is master where their type is one */
	int32_t *tokens;          /* (R) */
	struct k_dropout drop;
	struct k_exact_sum *sum;
	struct k_step_state *step;
	struct k_range *range;
};

/* Products of sizes that work is a multiple of. ATTENTION: of matrices over the causal half. */
enum operations_unit {
	OPERATIONS_RC,
	OPERATIONS_RCC,
	OPERATIONS_RVC,
	OPERATIONS_ATTENTION,
	OPERATIONS_RV,
	OPERATIONS_PARAMS,
};

typedef void operations_run(struct k_stream *s, struct operations_tensors *t);

struct operations_row {
	const char *name;
	operations_run *run;
	enum operations_unit unit;
	double flops;        /* per unit; 0: bounded by memory */
	double elems, reals; /* per unit, of the compute type and of fp32: read or written once */
};

extern const struct operations_row operations_rows[];
extern const size_t operations_n_rows;

/* False for one that these tensors have no use for. */
bool operations_has(const struct operations_row *row, const struct operations_tensors *t);

/* Of one call; bytes of an operation that is bounded by memory, elem_bytes being k_elem_bytes(). */
double operations_flops(const struct operations_row *row, const struct operations_tensors *t);
double operations_bytes(
	const struct operations_row *row, const struct operations_tensors *t, size_t elem_bytes);

#endif
