/*
 * printed.h: standard output of a gpt2d that prints and ends. A write that fails, however early,
 * is told with its own error at the end: stdio forgets it where more is printed behind it.
 */
#ifndef GPT2D_DAEMON_CONFIG_PRINTED_H
#define GPT2D_DAEMON_CONFIG_PRINTED_H

#include <stdio.h>

struct printed {
	FILE *to; /* what is printed goes here; on a terminal line by line */
	int error;
};

/* 0 or -ENOMEM; p must stay where it is until printed_end. */
int printed_begin(struct printed *p);
/* All is out: 0, or the negative errno of the first write that failed. Once. */
int printed_end(struct printed *p);

#endif
