/*
 * batch.h: the tokens of a whole step of this rank (all its micro-batches) on their way to the
 * device. Memory is kept by the caller and only pointed at. It is always the same, so a captured
 * graph of the step reads there what the host wrote before the launch; the host writes again only
 * when the step before has run.
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
	int32_t *ahead_tokens;   /* the same of a batch to come, host */
	int32_t *tokens;         /* the same on the device */
	k_real *losses;          /* (rows, T) of the micro-batch under way, device */
	struct batch_ahead {
		const struct dataset *data; /* NULL: nothing was read ahead */
		int64_t first, micros;
	} ahead;
};

/* Bytes of the device and of the host buffer (k_alloc_host) that batch_init takes. */
int64_t batch_bytes(int64_t rows, int64_t T, int64_t micros);
int64_t batch_host_bytes(int64_t rows, int64_t T, int64_t micros);
/* Bytes of the tokens of a whole step. */
int64_t batch_tokens_bytes(int64_t rows, int64_t T, int64_t micros);
/* Nothing of an earlier batch in this memory is under way. */
void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, int64_t micros,
	void *host, void *device);

/*
 * `micros` micro-batches from sample `first` of the data set on into host memory. As dataset_read;
 * on failure tokens are 0.
 */
int batch_read(struct batch *b, const struct dataset *data, int64_t first, int64_t micros,
	char *error, size_t error_bytes);

/*
 * To be called while the device works on another batch: batch_read of the same has little to do
 * then. What cannot be read is left for batch_read to tell.
 */
void batch_read_ahead(struct batch *b, const struct dataset *data, int64_t first, int64_t micros);

/* On the stream: what was read goes to the device. */
void batch_send(struct batch *b, int64_t micros);

/* On the device, of one micro-batch. */
const int32_t *batch_inputs(const struct batch *b, int64_t micro);
const int32_t *batch_targets(const struct batch *b, int64_t micro);

#endif
