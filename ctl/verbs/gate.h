/* gate.h: what the verbs share that keep runs from starting, or let them. */
#ifndef GPT2D_CTL_VERBS_GATE_H
#define GPT2D_CTL_VERBS_GATE_H

#include "ctl/arguments.h"

/*
 * Send method with the options --reason, --now, --wait and --timeout where they were given, and
 * print the reply: the exit code.
 */
int gate_ask(struct ctl *ctl, const struct arguments *args, const char *method);

#endif
