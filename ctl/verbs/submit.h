/* submit.h: shared by `submit` and `rerun`: the options, and sending a spec. */
#ifndef GPT2D_CTL_VERBS_SUBMIT_H
#define GPT2D_CTL_VERBS_SUBMIT_H

#include "ctl/verbs/spec_source.h"

/* The first options are of submit alone. */
extern const struct option_row submit_options[];
enum { SUBMIT_OWN_OPTIONS = 2 };

/*
 * The canonical spec with the changes of the options, the caller's. NULL: CTL_USAGE, with e unless
 * the errors were printed.
 */
char *submit_parse(struct ctl *ctl, const struct spec_source *source, struct ctl_error *e);
/* Checks for options that exclude each other: 0, or CTL_USAGE with e. */
int submit_check(struct ctl *ctl, const struct options *args, struct ctl_error *e);
/*
 * Check the spec, with --set, and send it as the options say: the exit status, with e unless the
 * errors were printed.
 */
int submit_send(struct ctl *ctl, const struct spec_source *source, struct ctl_error *e);

#endif
