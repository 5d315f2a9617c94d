#include "engine/data/batch.h"

#include <string.h>

enum { ALIGN_BYTES = 256 };

int64_t batch_tokens_bytes(int64_t rows, int64_t T, int64_t micros)
{
	int64_t bytes = 2 * micros * rows * T * (int64_t)sizeof(int32_t);

	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t batch_bytes(int64_t rows, int64_t T, int64_t micros)
{
	return batch_tokens_bytes(rows, T, micros) + rows * T * (int64_t)sizeof(k_real);
}

int64_t batch_host_bytes(int64_t rows, int64_t T, int64_t micros)
{
	return 2 * batch_tokens_bytes(rows, T, micros);
}

void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, int64_t micros,
	void *host, void *device)
{
	int64_t bytes = batch_tokens_bytes(rows, T, micros);
	char *losses = (char *)device + bytes, *ahead = (char *)host + bytes;

	*b = (struct batch){
		.stream = stream,
		.rows = rows,
		.T = T,
		.micros = micros,
		.host_tokens = host,
		.ahead_tokens = (int32_t *)(void *)ahead,
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
	const struct batch_ahead *ahead = &b->ahead;
	size_t bytes = (size_t)(2 * half(b)) * sizeof(*b->host_tokens);
	int rc;

	if (ahead->data == data && ahead->first == first && ahead->micros == micros) {
		memcpy(b->host_tokens, b->ahead_tokens, bytes);
		b->ahead.data = NULL;
		return 0;
	}
	rc = dataset_read(data, first, micros * b->rows, b->host_tokens, b->host_tokens + half(b),
		error, error_bytes);
	if (rc)
		memset(b->host_tokens, 0, bytes);
	return rc;
}

void batch_read_ahead(struct batch *b, const struct dataset *data, int64_t first, int64_t micros)
{
	char ignored[1];
	int rc = dataset_read(data, first, micros * b->rows, b->ahead_tokens,
		b->ahead_tokens + half(b), ignored, sizeof(ignored));

	b->ahead = (struct batch_ahead){rc ? NULL : data, first, micros};
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
