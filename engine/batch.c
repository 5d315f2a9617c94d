#include "engine/batch.h"

#include <string.h>

enum { ALIGN_BYTES = 256 };

static int64_t tokens_bytes(int64_t rows, int64_t T, int64_t micros)
{
	int64_t bytes = 2 * micros * rows * T * (int64_t)sizeof(int32_t);

	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t batch_bytes(int64_t rows, int64_t T, int64_t micros)
{
	return tokens_bytes(rows, T, micros) + rows * T * (int64_t)sizeof(k_real);
}

int64_t batch_host_bytes(int64_t rows, int64_t T, int64_t micros)
{
	return tokens_bytes(rows, T, micros);
}

void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, int64_t micros,
	void *host, void *device)
{
	char *losses = (char *)device + tokens_bytes(rows, T, micros);

	*b = (struct batch){
		.stream = stream,
		.rows = rows,
		.T = T,
		.micros = micros,
		.host_tokens = host,
		.tokens = device,
		.losses = (k_real *)(void *)losses,
	};
}

/* From the first input to the first target. */
static int64_t half(const struct batch *b)
{
	return b->micros * b->rows * b->T;
}

int batch_read(struct batch *b, const struct dataset *data, int64_t first, int64_t micros,
	char *error, size_t error_bytes)
{
	int rc = dataset_read(data, first, micros * b->rows, b->host_tokens,
		b->host_tokens + half(b), error, error_bytes);

	if (rc)
		memset(b->host_tokens, 0, (size_t)(2 * half(b)) * sizeof(*b->host_tokens));
	return rc;
}

void batch_send(struct batch *b, int64_t micros)
{
	size_t bytes = (size_t)(micros * b->rows * b->T) * sizeof(*b->tokens);

	if (micros == b->micros) {
		k_copy_in(b->stream, b->tokens, b->host_tokens, 2 * bytes);
		return;
	}
	k_copy_in(b->stream, b->tokens, b->host_tokens, bytes);
	k_copy_in(b->stream, b->tokens + half(b), b->host_tokens + half(b), bytes);
}

const int32_t *batch_inputs(const struct batch *b, int64_t micro)
{
	return b->tokens + micro * b->rows * b->T;
}

const int32_t *batch_targets(const struct batch *b, int64_t micro)
{
	return batch_inputs(b, micro) + half(b);
}
