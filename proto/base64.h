/* base64.h: bytes as text and back: RFC 4648, section 4, with padding. */
#ifndef GPT2D_PROTO_BASE64_H
#define GPT2D_PROTO_BASE64_H

#include <stddef.h>

/* Characters that n bytes take, without the NUL. */
size_t base64_length(size_t n);
/* out has base64_length(n) + 1 bytes. */
void base64_encode(const void *bytes, size_t n, char *out);
/*
 * Decodes text, length characters, to out, which has length / 4 * 3 bytes: 0 and *n, or -EINVAL for
 * text that base64_encode does not produce.
 */
int base64_decode(const char *text, size_t length, unsigned char *out, size_t *n);

#endif
