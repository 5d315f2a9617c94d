/* digest.h: the SHA-256 of data that comes in pieces. */
#ifndef GPT2D_PROTO_DIGEST_H
#define GPT2D_PROTO_DIGEST_H

#include <stddef.h>

struct digest;

/* NULL without memory, or if libcrypto has no SHA-256. */
struct digest *digest_create(void);
void digest_destroy(struct digest *d); /* takes NULL */

int digest_add(struct digest *d, const void *bytes, size_t n); /* 0 or -EIO */
/* Hexadecimal, NUL-terminated; call it once, at the end. 0 or -EIO. */
int digest_finish(struct digest *d, char out[65]);

#endif
