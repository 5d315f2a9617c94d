/* show.h: requests a run with all segments; `compare` computes its figures from it. */
#ifndef GPT2D_CTL_VERBS_SHOW_H
#define GPT2D_CTL_VERBS_SHOW_H

#include "ctl/verbs/verb.h"

struct spec;

/*
 * The reply to "show" for the run named by word, with all segments: 0 and *reply (the caller's), or
 * an exit status with e.
 */
int show_fetch(struct ctl *ctl, const char *word, json_t **reply, struct ctl_error *e);
/* The spec in a reply; NULL with e (CTL_VERSION_MISMATCH). The caller frees it. */
struct spec *show_spec(const json_t *reply, struct ctl_error *e);
/* Prints the keys in which an arm differs from the first one, a line for each. */
void show_differences(const struct term *t, const struct spec *spec, size_t arm);

#endif
