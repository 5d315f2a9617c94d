/* help.h: help, from the verb table. */
#ifndef GPT2D_CTL_HELP_H
#define GPT2D_CTL_HELP_H

#include <stdio.h>

#include "ctl/verbs/verb.h"

/*
 * The verb's help to stdout; with --json as an object. verb NULL: the verbs of which `half` is one
 * of the two words, or if that is NULL too, the overview.
 */
void help_print(struct ctl *ctl, const struct verb *verb, const char *half);
void help_print_to(FILE *out, const struct verb *verb);

#endif
