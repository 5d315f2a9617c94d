/* show.h: a run as the daemon knows it; `compare` draws its figures from it. */
#ifndef GPT2D_CTL_VERBS_SHOW_H
#define GPT2D_CTL_VERBS_SHOW_H

#include "ctl/ctl.h"

/* The reply to "show" for the run named by word: 0 and *reply (the caller's), or an exit code with
 * e. */
int show_fetch(struct ctl *ctl, const char *word, json_t **reply, struct ctl_error *e);

#endif
