/*
 * batch.h: one micro-batch on its way in (tokens to the device) and the losses on their way out.
 * Memory and events are kept by the caller and only pointed at. Tokens have two places on the host:
 * one is filled while the device may still read the other.
 */
#ifndef GPT2D_BATCH_H
#define GPT2D_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "engine/dataset.h"
#include "kernels/kernels.h"

enum { BATCH_HOST_SLOTS = 2 };

struct batch {
	struct k_stream *stream;
	int64_t rows, T;
	int32_t *host_tokens[BATCH_HOST_SLOTS]; /* (2, rows, T): inputs, targets */
	struct k_event *const *taken;           /* BATCH_HOST_SLOTS: the device has read them */
	int64_t reads;
	int32_t *tokens;     /* (2, rows, T) on the device */
	k_real *host_losses; /* (rows, T) */
	k_real *losses;      /* the same on the device */
	double loss_sum;     /* of all micro-batches since batch_reset, host */
};

/* Bytes of the device and of the host buffer (k_alloc_host) that batch_init takes. */
int64_t batch_bytes(int64_t rows, int64_t T);
int64_t batch_host_bytes(int64_t rows, int64_t T);
/* taken: BATCH_HOST_SLOTS events. Nothing of an earlier batch in this memory is under way. */
void batch_init(struct batch *b, struct k_stream *stream, int64_t rows, int64_t T, void *host,
	void *device, struct k_event *const *taken);
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
