/* schema_outputs.h: the kinds of objects that gpt2ctl --json prints. */
#ifndef GPT2D_CTL_PRINT_SCHEMA_OUTPUTS_H
#define GPT2D_CTL_PRINT_SCHEMA_OUTPUTS_H

#include "proto/schema/schema.h"

extern const struct schema_row schema_outputs[];
extern const struct schema_document schema_outputs_document;

#endif
