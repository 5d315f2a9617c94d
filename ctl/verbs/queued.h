/*
 * queued.h: why a run that is waited for has not begun: what of it is told. No event tells of it:
 * it is asked for, again and again.
 */
#ifndef GPT2D_CTL_VERBS_QUEUED_H
#define GPT2D_CTL_VERBS_QUEUED_H

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
 * Takes in an outlook, and puts off the next look. Whether this one is to be told: the first, and
 * each whose reason is of another kind. That of a run that is about to start is not, unless it
 * stays so.
 */
bool queued_take(struct queued *q, const json_t *outlook);

#endif
