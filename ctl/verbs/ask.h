/* ask.h: a question on the terminal. */
#ifndef GPT2D_CTL_VERBS_ASK_H
#define GPT2D_CTL_VERBS_ASK_H

#include <stdbool.h>

#include "ctl/ctl.h"

/*
 * Whether the answer is yes: "y" or "yes". All else is no, the end of input and a signal too; one
 * that comes as soon as the question can be seen is taken. The answer is read from stdin.
 */
bool ask_yes(struct ctl *ctl, const char *question, ...) __attribute__((format(printf, 2, 3)));

#endif
