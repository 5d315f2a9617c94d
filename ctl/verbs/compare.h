/* compare.h: functions of `compare` that `follow` and `tune` use. */
#ifndef GPT2D_CTL_VERBS_COMPARE_H
#define GPT2D_CTL_VERBS_COMPARE_H

#include <jansson.h>

#include "ctl/link/ctl_error.h"

/*
 * The comparison (proto/experiment/comparison.h) of a whole reply to "show": 0, or CTL_USAGE (no
 * such baseline), CTL_WRONG_STATE (no segment is done) or CTL_VERSION_MISMATCH with e.
 */
int compare_make(const json_t *show, const char *baseline, json_t **out, struct ctl_error *e);

#endif
