/*
 * flops.h: floating-point operations of a training step, counted as tests/bench/floor counts them:
 * matrix products and causal attention. Norms, GELU, cross-entropy and AdamW are left out.
 */
#ifndef GPT2D_ENGINE_REPORT_FLOPS_H
#define GPT2D_ENGINE_REPORT_FLOPS_H

#include <stdint.h>

#include "proto/spec/spec.h"

/* Of one optimizer step on all ranks. */
struct flops {
	double model;    /* that the training requires */
	double hardware; /* with the recomputation of activation checkpointing "full" */
};
void flops_count(const struct spec_config *config, int64_t vocab_padded, struct flops *out);

/*
 * TFLOP/s of a card by its name, dense and in 16 bits, from NVIDIA's data sheets; 0: unknown card.
 */
double flops_peak(const char *device);

#endif
