/* help.h: help, from the verb table. */
#ifndef GPT2D_CTL_HELP_H
#define GPT2D_CTL_HELP_H

#include <stdio.h>

#include "ctl/verbs/verb.h"

/* The verb's help, or with NULL the overview, to stdout; with --json as an object. */
void help_print(struct ctl *ctl, const struct verb *verb);
void help_print_to(FILE *out, const struct verb *verb);

#endif
