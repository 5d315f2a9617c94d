/*
 * size.h: a number of bytes as text for people, three digits in decimal units: "999 B", "40.0 MB".
 * Engines and gpt2ctl use the same form.
 */
#ifndef GPT2D_PROTO_SIZE_H
#define GPT2D_PROTO_SIZE_H

#include <stdint.h>

enum { SIZE_BYTES = 16 };

/* Written to out, which is returned. */
char *size_text(int64_t bytes, char out[SIZE_BYTES]);

#endif
