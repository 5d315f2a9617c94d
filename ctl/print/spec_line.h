/* spec_line.h: where a key stands in the text of a spec. */
#ifndef GPT2D_CTL_PRINT_SPEC_LINE_H
#define GPT2D_CTL_PRINT_SPEC_LINE_H

#include <stddef.h>

#include "proto/spec/spec_error.h"

/* The place of a dotted key ("data.train"); {0} when the text does not hold it. */
struct spec_place spec_line(const char *text, size_t n, const char *key);

#endif
