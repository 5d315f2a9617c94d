/*
 * page.h: lines of at most 80 columns, made of parts; a part that does not fit starts the next
 * line.
 */
#ifndef GPT2D_CTL_PRINT_PAGE_H
#define GPT2D_CTL_PRINT_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "ctl/print/format.h"
#include "ctl/print/term.h"

struct page {
	const struct term *term;
	bool flush; /* a paragraph: its continuation lines have no indent */
	size_t column;
	bool fresh; /* private to page.c: only the indent was printed */
};
/* The first part of a line starts at the left edge; three blanks separate parts. */
void page_part(struct page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A part from a template of members.h. */
void page_members(struct page *p, const json_t *object, const char *format);
void page_indent(struct page *p); /* starts a line, which has no part yet */
void page_end(struct page *p);    /* ends the line; prints nothing if the line has no part */

#endif
