/* gpt2_shape.h: the shape of GPT-2 124M (Radford et al., 2019), for tests that want its sizes. */
#ifndef GPT2D_TESTS_UNIT_ENGINE_GPT2_SHAPE_H
#define GPT2D_TESTS_UNIT_ENGINE_GPT2_SHAPE_H

#include "proto/spec/spec.h"

static inline struct spec_model gpt2_shape(void)
{
	return (struct spec_model){.n_layer = 12,
		.n_head = 12,
		.n_embd = 768,
		.vocab_size = 50257,
		.n_positions = 1024,
		.tied_head = true};
}

#endif
