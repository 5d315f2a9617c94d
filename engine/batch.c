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

void batch_init(
	struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, void *host, void *device)
{
	*b = (struct batch){
		.stream = stream,
		.rows = rows,
		.T = T,
		.host_tokens = host,
		.tokens = device,
		.host_losses = (k_real *)(void *)((char *)host + tokens_bytes(rows, T)),
		.losses = (k_real *)(void *)((char *)device + tokens_bytes(rows, T)),
	};
}

void batch_reset(struct batch *b)
{
	b->loss_sum = 0;
}

int batch_read(
	struct batch *b, const struct dataset *data, int64_t first, char *error, size_t error_bytes)
{
	int64_t n = b->rows * b->T;
	int rc = dataset_read(
		data, first, b->rows, b->host_tokens, b->host_tokens + n, error, error_bytes);

	if (rc)
		memset(b->host_tokens, 0, (size_t)(2 * n) * sizeof(int32_t));
	k_copy_in(b->stream, b->tokens, b->host_tokens, (size_t)(2 * n) * sizeof(int32_t));
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
