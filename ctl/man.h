/* man.h: gpt2ctl's manual pages: a frame of mdoc, and what the tables say. */
#ifndef GPT2D_MAN_H
#define GPT2D_MAN_H

#include <stdio.h>

/*
 * Copy frame to out. A line @SYNOPSIS@, @OPTIONS@, @VERBS@, @EXITS@ or @OUTPUTS@ is replaced by
 * what the tables say; 0, or -EINVAL for another line that begins with @.
 */
int man_print(FILE *frame, FILE *out);

#endif
