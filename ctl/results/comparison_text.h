/*
 * comparison_text.h: a comparison (proto/experiment/comparison.h) as text. Figures that are null
 * are left out.
 */
#ifndef GPT2D_CTL_RESULTS_COMPARISON_TEXT_H
#define GPT2D_CTL_RESULTS_COMPARISON_TEXT_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/print/output.h"

/* The member of an array of objects with this `arm`; NULL: none. */
const json_t *comparison_text_arm(const json_t *rows, const json_t *arm);
/* Whether a row of `comparisons` is the A/A control and not an arm of the spec. */
bool comparison_text_hidden(const json_t *comparison, const json_t *row);

/* Of its intervals, in percent. */
int comparison_text_confidence(const json_t *comparison);

/* comparison also has `machine`, an object or null: the machine as described in the run's files. */
void comparison_text_print(struct output *o, const json_t *comparison);

#endif
