/*
 * waiting.h: why a queued run does not start: the codes with which a text of "waiting" begins
 * ("code: text"). The table makes their list in gpt2d-protocol(7).
 */
#ifndef GPT2D_PROTO_WAITING_H
#define GPT2D_PROTO_WAITING_H

#include <stdio.h>

/* In the order in which they are looked for: the first that holds is told. */
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
