/*
 * waiting.h: the codes of reasons why a queued run does not start, in a text of "waiting" ("code:
 * text"). gpt2d-protocol(7) lists them from this table.
 */
#ifndef GPT2D_PROTO_WAITING_H
#define GPT2D_PROTO_WAITING_H

#include <stdio.h>

/* In order of precedence: the first one that applies is shown. */
enum waiting {
	WAITING_STOPPING,
	WAITING_MEMBER,
	WAITING_RELEASED,
	WAITING_DRAINED,
	WAITING_RANKS,
	WAITING_STORE,
	WAITING_ROOM,
	WAITING_BEHIND,
	WAITING_NODES,
	WAITING_ENGINES,
	WAITING_PREPARING,
	WAITINGS
};

const char *waiting_code(enum waiting why);
void waiting_print_man(FILE *out); /* items of an mdoc list */

#endif
