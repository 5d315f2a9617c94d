/*
 * batch.h: the tokens of a whole step of this rank (all its micro-batches), read and copied to the
 * device. The caller owns the memory. Its address never changes, so a captured graph of the step
 * reads there what the host wrote before the launch; the host writes again only after the previous
 * step has run.
 */
#ifndef GPT2D_ENGINE_DATA_BATCH_H
#define GPT2D_ENGINE_DATA_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "engine/data/dataset.h"
#include "kernels/kernels.h"

struct batch {
	struct k_stream *stream;
	int64_t rows, T, micros; /* rows of a micro-batch */
	int32_t *host_tokens;    /* (2, micros * rows, T): inputs, targets */
	int32_t *ahead_tokens;   /* the same for a later batch, host */
	int32_t *tokens;         /* the same on the device */
	k_real *losses;          /* (rows, T) of the current micro-batch, device */
	struct batch_ahead {
		const struct dataset *data; /* NULL: nothing was read ahead */
		int64_t first, micros;
	} ahead;
};

/* Bytes of the device and of the host buffer (k_alloc_host) for batch_init. */
int64_t batch_bytes(int64_t rows, int64_t T, int64_t micros);
int64_t batch_host_bytes(int64_t rows, int64_t T, int64_t micros);
/* Bytes of the tokens of a whole step. */
int64_t batch_tokens_bytes(int64_t rows, int64_t T, int64_t micros);
/* No earlier batch in this memory may be in progress. */
void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, int64_t micros,
	void *host, void *device);

/*
 * Reads `micros` micro-batches from sample `first` of the data set into host memory. As
 * dataset_read; on failure tokens are 0.
 */
int batch_read(struct batch *b, const struct dataset *data, int64_t first, int64_t micros,
	char *error, size_t error_bytes);

/*
 * Call it while the device works on another batch: the batch_read for this one is then fast. Errors
 * are left to batch_read.
 */
void batch_read_ahead(struct batch *b, const struct dataset *data, int64_t first, int64_t micros);

/* On the stream: copies the batch to the device. */
void batch_send(struct batch *b, int64_t micros);

/* On the device, for one micro-batch. */
const int32_t *batch_inputs(const struct batch *b, int64_t micro);
const int32_t *batch_targets(const struct batch *b, int64_t micro);

#endif
