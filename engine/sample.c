#include "engine/sample.h"

#include <math.h>
#include <stdbool.h>

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), of which the upper 53 bits are used: [0, 1). */
static double draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* The first of a heap's n values is the smallest: moves value down from there to its place. */
static void sift(float *heap, int64_t n, float value)
{
	int64_t at = 0, child;

	for (; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= value)
			break;
		heap[at] = heap[child];
	}
	heap[at] = value;
}

/* The k-th largest logit. */
static float threshold(const float *logits, int64_t vocab, int64_t k, float *heap)
{
	for (int64_t i = 0; i < k; i++)
		heap[i] = -INFINITY;
	for (int64_t i = 0; i < vocab; i++)
		if (logits[i] > heap[0])
			sift(heap, k, logits[i]);
	return heap[0];
}

static int64_t find_largest(const float *logits, int64_t vocab)
{
	int64_t best = 0;

	for (int64_t i = 0; i < vocab; i++) {
		if (!isfinite(logits[i]))
			return -1;
		if (logits[i] > logits[best])
			best = i;
	}
	return best;
}

static int64_t draw_token(
	struct sample *s, const float *logits, int64_t vocab, float *scratch, double largest)
{
	const bool some = s->top_k > 0 && s->top_k < vocab;
	const float least = some ? threshold(logits, vocab, s->top_k, scratch) : -INFINITY;
	double sum = 0, at;
	int64_t last = 0;

	for (int64_t i = 0; i < vocab; i++) {
		scratch[i] = logits[i] < least
			? 0
			: (float)exp(((double)logits[i] - largest) / s->temperature);
		sum += (double)scratch[i];
	}
	at = draw(&s->random) * sum;
	for (int64_t i = 0; i < vocab; i++) {
		if (scratch[i] <= 0)
			continue;
		last = i;
		at -= (double)scratch[i];
		if (at < 0)
			break;
	}
	return last;
}

int64_t sample_next(
	struct sample *s, const float *logits, int64_t vocab, float *scratch, double *log_prob)
{
	int64_t token = find_largest(logits, vocab);
	double largest, sum = 0;

	if (token < 0)
		return -1;
	largest = (double)logits[token];
	for (int64_t i = 0; i < vocab; i++)
		sum += exp((double)logits[i] - largest);
	if (s->temperature > 0)
		token = draw_token(s, logits, vocab, scratch, largest);
	*log_prob = (double)logits[token] - largest - log(sum);
	return token;
}
