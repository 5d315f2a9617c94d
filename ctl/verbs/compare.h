/* compare.h: what `compare` shares with `follow` and `tune`. */
#ifndef GPT2D_CTL_VERBS_COMPARE_H
#define GPT2D_CTL_VERBS_COMPARE_H

#include <jansson.h>

#include "ctl/link/ctl_error.h"

struct spec;

/* The spec in a reply to "show"; NULL with e. The caller frees it. */
struct spec *compare_spec(const json_t *show, struct ctl_error *e);
/*
 * The comparison (proto/experiment/comparison.h) of a whole reply to "show": 0, or CTL_USAGE (no
 * such baseline), CTL_WRONG_STATE (no segment is done) or CTL_VERSION_MISMATCH with e.
 */
int compare_make(const json_t *show, const char *baseline, json_t **out, struct ctl_error *e);

#endif
