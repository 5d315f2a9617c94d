/* sample.h: chooses the next token from the logits of a model. Pure. */
#ifndef GPT2D_ENGINE_SAMPLE_H
#define GPT2D_ENGINE_SAMPLE_H

#include <stdint.h>

struct sample {
	double temperature; /* 0: the most likely token, the first one if equal */
	int64_t top_k;      /* draw from the K most likely tokens, and equal ones; 0: all */
	uint64_t random;    /* state of the draws, the seed at first */
};

/*
 * The next token by logits (vocab), and in *log_prob the logarithm of its probability among all
 * tokens at temperature 1. scratch: vocab floats. -1: a logit is not a number, or infinite.
 */
int64_t sample_next(
	struct sample *s, const float *logits, int64_t vocab, float *scratch, double *log_prob);

#endif
