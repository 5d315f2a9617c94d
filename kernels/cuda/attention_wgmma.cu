#include "kernels/cuda/attention_wgmma.cuh"

/* How many times the last heads' blocks fill all multiprocessors. */
enum { WAVES = 2 };

struct attention_order attention_order_of(
	const struct k_context *ctx, int64_t heads, int64_t blocks, int at_once)
{
	int64_t last = (int64_t)WAVES * at_once * ctx->multiprocessors / blocks + 1;

	last = last < heads ? last : heads;
	return {(int)blocks, (int)(heads - last), (int)last};
}
