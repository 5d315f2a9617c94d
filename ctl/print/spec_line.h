/* spec_line.h: where a key stands in the text of a spec. */
#ifndef GPT2D_CTL_PRINT_SPEC_LINE_H
#define GPT2D_CTL_PRINT_SPEC_LINE_H

#include <stddef.h>

/* The line of a dotted key ("data.train"), from 1; 0 when the text does not hold it. */
int spec_line(const char *text, size_t n, const char *key);

#endif
