/*
 * exits.h: the exit codes of gpt2ctl: which one an error of gpt2d's gives, and all of them as rows,
 * for help and the manual page.
 */
#ifndef GPT2D_CTL_LINK_EXITS_H
#define GPT2D_CTL_LINK_EXITS_H

#include <stdbool.h>

#include "proto/protocol.h"

struct exits_row {
	enum ctl_exit code;
	const char *brief; /* in the overview */
	const char *text;  /* in the manual page */
};

/* Ends with a row whose brief is NULL. */
extern const struct exits_row exits_table[];

/* After a request: whether gpt2d has done it is not told by this code alone. */
bool exits_leave_open(int exit);
/* That of an error of the protocol (enum protocol_error). */
int exits_of(int code);

#endif
