/*
 * queued.h: why a run that is waited for has not begun: what of it is told. No event tells of it:
 * it is asked for, again and again.
 */
#ifndef GPT2D_QUEUED_H
#define GPT2D_QUEUED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { QUEUED_LOOK_S = 2 };

/* All zeros at first. */
struct queued {
	char code[32];   /* of the reason that was told last, see proto/waiting.h */
	bool looked;     /* there was an outlook before */
	int64_t look_ns; /* when to ask for the next one; clock_mono_ns */
};

/*
 * Whether an outlook is to be told: the first one, and each whose reason is of another kind. That
 * of a run that is about to start is not, unless it stays so.
 */
bool queued_is_news(struct queued *q, const json_t *outlook);

#endif
