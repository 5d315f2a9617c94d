/*
 * poison.h: an engine whose device is broken on purpose in the middle of a step. The file that
 * GPT2D_POISON names says in which, counted from 1 from the step that finds it there; that step
 * removes it, so that an engine started instead is left in peace, and of several ranks one is hit.
 */
#ifndef GPT2D_TESTS_GPU_POISON_H
#define GPT2D_TESTS_GPU_POISON_H

#include <stdint.h>

#include "kernels/kernels.h"

/*
 * Breaks the device of s for good the at-th time that this is done; in a capture it becomes part of
 * the graph, and each launch counts.
 */
void poison_enqueue(struct k_stream *s, int64_t at);

#endif
