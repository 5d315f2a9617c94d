/*
 * poison.h: an engine that breaks its device in the middle of a step. The file named by
 * GPT2D_POISON has the step's number; number 1 is the step that finds the file. That step removes
 * the file, so that a replacement engine runs unharmed and only one of several ranks breaks.
 */
#ifndef GPT2D_TESTS_GPU_POISON_H
#define GPT2D_TESTS_GPU_POISON_H

#include <stdint.h>

#include "kernels/kernels.h"

/*
 * Breaks the device of s for good at the at-th call; in a capture the call becomes part of the
 * graph, and each launch counts.
 */
void poison_enqueue(struct k_stream *s, int64_t at);

#endif
