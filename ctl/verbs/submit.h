/* submit.h: what `submit` shares with `rerun`: its options, and how a spec is sent. */
#ifndef GPT2D_CTL_VERBS_SUBMIT_H
#define GPT2D_CTL_VERBS_SUBMIT_H

#include "ctl/verbs/spec_errors.h"

extern const struct option_row submit_options[];

/* Options that exclude each other: 0, or CTL_USAGE, which is printed. */
int submit_check(struct ctl *ctl, const struct options *args);
/* Check the spec, with --set, and send it as the options say: the exit status. */
int submit_send(struct ctl *ctl, const struct spec_source *source);

#endif
