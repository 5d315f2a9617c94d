/* dry_run.h: what `submit --dry-run` prints. */
#ifndef GPT2D_CTL_VERBS_DRY_RUN_H
#define GPT2D_CTL_VERBS_DRY_RUN_H

#include <jansson.h>

#include "ctl/print/output.h"

/* verbose: with the resolved spec, which --json has always. */
void dry_run_print(struct output *o, const json_t *reply, bool verbose);

#endif
