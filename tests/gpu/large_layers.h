/* large_layers.h: gpu_large's cases for the model's layers. */
#ifndef GPT2D_TESTS_GPU_LARGE_LAYERS_H
#define GPT2D_TESTS_GPU_LARGE_LAYERS_H

#include "tests/gpu/big.h"

void large_vocabulary(struct big *b); /* the product with the vocabulary, and its gradients */
void large_wide_layer(struct big *b); /* a layer with a bias */
void large_gelu(struct big *b);       /* one with GELU, and GELU's gradient */
void large_layernorm(struct big *b);
void large_dropout(struct big *b);
void large_embedding(struct big *b);

#endif
