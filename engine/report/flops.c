#include "engine/report/flops.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

void flops_count(const struct spec_config *config, int64_t vocab_padded, struct flops *out)
{
	const double rows = (double)(config->batch * config->seq_len);
	const double width = (double)config->model.n_embd;
	const double layers = (double)config->model.n_layer;
	const double attention = rows * width * (double)(config->seq_len + 1);
	/* forward, gradients of inputs, gradients of weights */
	const double blocks = 3 * 2 * rows * 12 * width * width;
	const double vocabulary = 3 * 2 * rows * width * (double)vocab_padded;
	/* forward except the last product of a block; the last block is not recomputed */
	const double again = (2 * rows * 8 * width * width + 2 * attention) * (layers - 1);

	out->model = layers * (blocks + (2 + 5) * attention) + vocabulary;
	out->hardware = out->model + (config->recompute == SPEC_RECOMPUTE_FULL ? again : 0);
}

double flops_peak(const char *device)
{
	static const struct {
		const char *card;
		double tflops;
	} cards[] = {{"H100", 989}, {"H200", 989}, {"A100", 312}, {"V100", 125}, {"T4", 65}};

	for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
		const char *at = strstr(device, cards[i].card);
		const char *end = at ? at + strlen(cards[i].card) : NULL;

		if (at && (at == device || !isalnum((unsigned char)at[-1])) &&
			!isalnum((unsigned char)*end))
			return cards[i].tflops;
	}
	return 0;
}
