/*
 * batch.h: one micro-batch on its way in (tokens to the device) and the losses on their way out.
 * Host and device memory are kept by the caller and only pointed at.
 */
#ifndef GPT2D_BATCH_H
#define GPT2D_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "engine/dataset.h"
#include "kernels/kernels.h"

struct batch {
	struct k_stream *stream;
	int64_t rows, T;
	int32_t *host_tokens; /* (2, rows, T): inputs, targets */
	int32_t *tokens;      /* the same on the device */
	k_real *host_losses;  /* (rows, T) */
	k_real *losses;       /* the same on the device */
	double loss_sum;      /* of all micro-batches since batch_reset, host */
};

/* Bytes of the host and of the device buffer that batch_init takes. */
int64_t batch_bytes(int64_t rows, int64_t T);
void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, void *host,
	void *device);
void batch_reset(struct batch *b);

/*
 * Samples first .. first + rows - 1 of the data set to the device. As dataset_read; on failure
 * tokens are 0.
 */
int batch_read(struct batch *b, const struct dataset *data, int64_t first, char *error,
	size_t error_bytes);
const int32_t *batch_inputs(const struct batch *b);
const int32_t *batch_targets(const struct batch *b);

/* In stream order: add the losses, in their order, to loss_sum. */
void batch_collect(struct batch *b);

#endif
