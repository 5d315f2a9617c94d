/* dry_run.h: the output of `submit --dry-run`. */
#ifndef GPT2D_CTL_VERBS_DRY_RUN_H
#define GPT2D_CTL_VERBS_DRY_RUN_H

#include <jansson.h>

#include "ctl/print/output.h"

/* verbose: with the resolved spec; --json always has it. */
void dry_run_print(struct output *o, const json_t *reply, bool verbose);

#endif
