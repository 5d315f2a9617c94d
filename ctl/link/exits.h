/* exits.h: the exit statuses of gpt2ctl, as rows for help and the manual page. */
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

/* Whether the status leaves open if gpt2d did what was requested. */
bool exits_leave_open(int exit);
/* The status for an error of the protocol (enum protocol_error). */
int exits_of(int code);

#endif
