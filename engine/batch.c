#include "engine/batch.h"

#include <string.h>

enum { ALIGN_BYTES = 256 };

static int64_t tokens_bytes(int64_t rows, int64_t T)
{
	int64_t bytes = 2 * rows * T * (int64_t)sizeof(int32_t);

	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t batch_bytes(int64_t rows, int64_t T)
{
	return tokens_bytes(rows, T) + rows * T * (int64_t)sizeof(k_real);
}

int64_t batch_host_bytes(int64_t rows, int64_t T)
{
	return BATCH_HOST_SLOTS * tokens_bytes(rows, T) + rows * T * (int64_t)sizeof(k_real);
}

void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, void *host,
	void *device, struct k_event *const *taken)
{
	char *at = host;

	*b = (struct batch){
		.stream = stream,
		.rows = rows,
		.T = T,
		.taken = taken,
		.tokens = device,
		.losses = (k_real *)(void *)((char *)device + tokens_bytes(rows, T)),
	};
	for (int i = 0; i < BATCH_HOST_SLOTS; i++, at += tokens_bytes(rows, T))
		b->host_tokens[i] = (int32_t *)(void *)at;
	b->host_losses = (k_real *)(void *)at;
}

void batch_reset(struct batch *b)
{
	b->loss_sum = 0;
}

int batch_read(
	struct batch *b, const struct dataset *data, int64_t first, char *error, size_t error_bytes)
{
	int64_t n = b->rows * b->T;
	int slot = (int)(b->reads % BATCH_HOST_SLOTS), rc;
	int32_t *tokens = b->host_tokens[slot];

	/* a failure of the device shows at the step's end */
	if (b->reads >= BATCH_HOST_SLOTS)
		k_event_sync(b->taken[slot], INT64_MAX);
	rc = dataset_read(data, first, b->rows, tokens, tokens + n, error, error_bytes);
	if (rc)
		memset(tokens, 0, (size_t)(2 * n) * sizeof(*tokens));
	k_copy_in(b->stream, b->tokens, tokens, (size_t)(2 * n) * sizeof(*tokens));
	k_event_record(b->taken[slot], b->stream);
	b->reads++;
	return rc;
}

const int32_t *batch_inputs(const struct batch *b)
{
	return b->tokens;
}

const int32_t *batch_targets(const struct batch *b)
{
	return b->tokens + b->rows * b->T;
}

static void add_losses(void *arg)
{
	struct batch *b = arg;

	for (int64_t i = 0; i < b->rows * b->T; i++)
		b->loss_sum += (double)b->host_losses[i];
}

void batch_collect(struct batch *b)
{
	k_copy_out(b->stream, b->host_losses, b->losses, (size_t)(b->rows * b->T) * sizeof(k_real));
	k_stream_host(b->stream, add_losses, b);
}
