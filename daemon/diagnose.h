/*
 * diagnose.h: gpt2d --check: what gpt2d needs, looked at without starting it or changing anything
 * that is there. A line for each thing: ok, warn or fail, what was found, and what to do.
 */
#ifndef GPT2D_DIAGNOSE_H
#define GPT2D_DIAGNOSE_H

#include <stdbool.h>
#include <stdio.h>

struct settings;

/*
 * errors: what was wrong with the settings (then s holds defaults), or empty. As JSON:
 *   {version, build, ok, checks: [{check, verdict: ok|warn|fail, found, advice or null}]}
 * The number of things that failed, or -ENOMEM.
 */
int diagnose(const struct settings *s, const char *errors, bool json, FILE *out);

#endif
