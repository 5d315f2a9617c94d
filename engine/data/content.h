/*
 * content.h: the SHA-256 of the token files of a segment, so that equal work can be proved by what
 * the files hold and not by their names. A thread of the lowest priority reads them while the
 * segment trains. gpt2d's state folder keeps each hash by device, inode, size and times, so a file
 * is read once.
 */
#ifndef GPT2D_ENGINE_DATA_CONTENT_H
#define GPT2D_ENGINE_DATA_CONTENT_H

#include "engine/data/dataset.h"

struct content;

/*
 * Looks up, and hashes in the background what is not known. dir: where the hashes are kept, NULL:
 * nowhere. train, validation and weights (which both may be NULL) may be closed meanwhile;
 * never NULL.
 */
struct content *content_start(const char *dir, const struct dataset *train,
	const struct dataset *validation, const struct dataset *weights);
/* Waits until it is done. Takes NULL. */
void content_wait(struct content *c);
bool content_wait_for(struct content *c, int64_t limit_ns); /* false: it is not done by then */
/* Gives up what is not hashed yet. Takes NULL. */
void content_stop(struct content *c);
void content_destroy(struct content *c); /* waits; takes NULL */

/*
 * After content_wait: hexadecimal, "synthetic" of made-up data; NULL: there is no such file, or it
 * could not be hashed.
 */
const char *content_train(const struct content *c);
const char *content_validation(const struct content *c);
const char *content_weights(const struct content *c);
/*
 * SHA-256 over these and what their order follows from (seed and length of sequences); false: not
 * known.
 */
bool content_hash(const struct content *c, const struct spec_config *config, char out[65]);

#endif
