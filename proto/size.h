/*
 * size.h: bytes as people read them, three digits in decimal units: "999 B", "40.0 MB". gpt2d's
 * engines and gpt2ctl write them alike.
 */
#ifndef GPT2D_PROTO_SIZE_H
#define GPT2D_PROTO_SIZE_H

#include <stdint.h>

enum { SIZE_BYTES = 16 };

/* Written to out, which is returned. */
char *size_text(int64_t bytes, char out[SIZE_BYTES]);

#endif
