/*
 * comparison_table.h: a comparison (proto/experiment/comparison.h) for other programs and papers:
 * as Markdown, as CSV, and as a paragraph for a methods section. A row per arm; null is an empty
 * cell.
 */
#ifndef GPT2D_CTL_RESULTS_COMPARISON_TABLE_H
#define GPT2D_CTL_RESULTS_COMPARISON_TABLE_H

#include <jansson.h>

#include "ctl/print/output.h"

void comparison_table_markdown(struct output *o, const json_t *comparison);
void comparison_table_csv(struct output *o, const json_t *comparison);
/* Of the machine it names what comparison's `machine` has. */
void comparison_table_methods(struct output *o, const json_t *comparison);

#endif
