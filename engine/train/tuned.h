/*
 * tuned.h: what the kernels of this engine have chosen by timing, and for which trainings. All
 * ranks of a world act by rank 0's choices, which rank 0 keeps on disk (tuning.h): so a run's bits
 * depend on nothing that a stopwatch said anew. Where the backend makes no choices nothing is done.
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
	const char *holds_for; /* NULL: there are no choices to make */
	struct tuned_shape {
		int64_t number[TUNED_NUMBERS];
	} shape[TUNED_SHAPES]; /* the latest */
	int64_t shapes;
	int64_t n;            /* choices that sha256 is of */
	int64_t guessed;      /* of them, that no memory was there to time */
	char sha256[65];      /* of all choices in force as a file of tuning.h; empty: none */
	char file_sha256[65]; /* of the file as it was read or written */
	char note[512];       /* what was wrong with the file; empty: nothing */
};

/* dir outlives t. Choices kept there are in force when it returns. */
void tuned_init(struct tuned *t, struct k_context *ctx, const char *dir);

/* Whether all products of such a training have their choice, and that it is so from here on. */
bool tuned_has(const struct tuned *t, const struct spec_config *config);
void tuned_add(struct tuned *t, const struct spec_config *config);

/* Products whose choice was made since tuned_share: neither disk nor other ranks have it. */
int64_t tuned_missed(const struct tuned *t);

/* The ranks that go by the same choices. */
struct tuned_peers {
	const struct collectives *collectives;
	struct collectives_group *group;
	struct k_stream *comm;
	int64_t patience_ns; /* after a failure of collectives; PATIENCE_NS */
};

/*
 * Rank 0's choices to all of peers (NULL: alone), and to disk unless the file has them already;
 * what goes wrong with that is in note. *changed: so many products are now calculated otherwise
 * than before. All ranks call it at the same time. 0, or -ENOMEM: then the others wait for this
 * rank; or another negative errno: a peer was lost, which collectives_error tells, or the device.
 */
int tuned_share(struct tuned *t, const struct tuned_peers *peers, int rank, int64_t *changed);

#endif
