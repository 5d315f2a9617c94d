/*
 * tuned.h: the kernels' choices of algorithms by timing, and for which trainings. All ranks use
 * rank 0's choices, which rank 0 keeps on disk (tuning.h), so a run's bits do not depend on new
 * timings. If the backend makes no choices, nothing is done.
 */
#ifndef GPT2D_ENGINE_TRAIN_TUNED_H
#define GPT2D_ENGINE_TRAIN_TUNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "kernels/kernels.h"
#include "proto/spec/spec.h"

enum { TUNED_SHAPES = 32, TUNED_NUMBERS = 13 };

struct tuned {
	struct k_context *ctx;
	const char *dir;       /* NULL: nothing is kept */
	const char *holds_for; /* NULL: no choices to make */
	struct tuned_shape {
		int64_t number[TUNED_NUMBERS];
	} shape[TUNED_SHAPES]; /* the latest */
	int64_t shapes;
	int64_t n;            /* number of choices in sha256 */
	int64_t guessed;      /* of these, not timed for lack of memory */
	char sha256[65];      /* of all present choices as a file of tuning.h; empty: none */
	char file_sha256[65]; /* of the file as it was read or written */
	char note[512];       /* what is wrong with the file; empty: nothing */
};

/* dir outlives t. Choices in dir apply when it returns. */
void tuned_init(struct tuned *t, struct k_context *ctx, const char *dir);

/* Whether all products of such a training have a choice; remembers it. */
bool tuned_has(const struct tuned *t, const struct spec_config *config);
void tuned_add(struct tuned *t, const struct spec_config *config);

/* Number of choices made since tuned_share: neither disk nor other ranks have them. */
int64_t tuned_missed(const struct tuned *t);

/* The ranks that share choices. */
struct tuned_peers {
	const struct collectives *collectives;
	struct collectives_group *group;
	struct k_stream *comm;
	int64_t patience_ns; /* after a failure of collectives; PATIENCE_NS */
};

/*
 * Sends rank 0's choices to all of peers (NULL: alone), and writes them to disk if the file
 * differs; note has an error of the latter. *changed: number of products that now use another
 * algorithm. All ranks call it at the same time. 0, or -ENOMEM: then the others wait for this rank;
 * or another negative errno: a peer was lost (see collectives_error), or the device failed.
 */
int tuned_share(struct tuned *t, const struct tuned_peers *peers, int rank, int64_t *changed);

#endif
