/*
 * content.h: the SHA-256 of the token files of a segment, so that equal work is proved by content
 * and not by file names. A thread of the lowest priority reads them while the segment trains.
 * gpt2d's state folder keeps each hash by device, inode, size and times, so a file is read once.
 */
#ifndef GPT2D_ENGINE_DATA_CONTENT_H
#define GPT2D_ENGINE_DATA_CONTENT_H

#include "engine/data/dataset.h"

struct content;

/*
 * Looks up known hashes, and computes the others in the background. dir: where hashes are kept,
 * NULL: nowhere. train, validation and weights (the last two may be NULL) may be closed meanwhile;
 * never NULL.
 */
struct content *content_start(const char *dir, const struct dataset *train,
	const struct dataset *validation, const struct dataset *weights);
/* Waits until it is done. Takes NULL. */
void content_wait(struct content *c);
bool content_wait_for(struct content *c, int64_t limit_ns); /* false: it is not done yet */
/* Cancels unfinished hashes. Takes NULL. */
void content_stop(struct content *c);
void content_destroy(struct content *c); /* waits; takes NULL */

/*
 * After content_wait: hexadecimal, "synthetic" for made-up data; NULL: there is no such file, or it
 * could not be hashed.
 */
const char *content_train(const struct content *c);
const char *content_validation(const struct content *c);
const char *content_weights(const struct content *c);
/* SHA-256 of these and of seed and seq_len, which determine their order; false: not known. */
bool content_hash(const struct content *c, const struct spec_config *config, char out[65]);

#endif
