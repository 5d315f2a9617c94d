/*
 * duration.h: a duration in whole seconds, as text for people: "12 s", "25m14s", "7h02m". gpt2d and
 * gpt2ctl use the same form.
 */
#ifndef GPT2D_PROTO_DURATION_H
#define GPT2D_PROTO_DURATION_H

enum { DURATION_BYTES = 32 };

/* seconds: finite, not negative; rounded to the nearest. Written to out, which is returned. */
char *duration_text(double seconds, char out[DURATION_BYTES]);

#endif
