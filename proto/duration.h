/*
 * duration.h: how long something lasts, in whole seconds, as people read it: "12 s", "25m14s",
 * "7h02m". gpt2d and gpt2ctl write it alike.
 */
#ifndef GPT2D_PROTO_DURATION_H
#define GPT2D_PROTO_DURATION_H

enum { DURATION_BYTES = 32 };

/* seconds: finite, not negative; rounded to the nearest. Written to out, which is returned. */
char *duration_text(double seconds, char out[DURATION_BYTES]);

#endif
