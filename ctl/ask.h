/* ask.h: the answer to a question on the terminal. */
#ifndef GPT2D_ASK_H
#define GPT2D_ASK_H

#include <stdbool.h>

#include "ctl/ctl.h"

/*
 * Until stdin can be read, after the question was written to ctl->err: false when a signal came
 * instead, which is an answer too: no. The line is ended then.
 */
bool ask_answered(struct ctl *ctl);

#endif
