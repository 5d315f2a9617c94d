/* man_page.h: fills the frame of a manual page, in mdoc, with text from tables; for the build. */
#ifndef GPT2D_PROTO_SCHEMA_MAN_PAGE_H
#define GPT2D_PROTO_SCHEMA_MAN_PAGE_H

#include <stdio.h>

#include "proto/schema/schema.h"

/* The text for the line @NAME@. NULL as name ends a table. */
struct man_page_part {
	const char *name;
	void (*print)(FILE *out);
	int (*print_of)(FILE *out, const char *word); /* instead, for @NAME WORD@: 0 or -EINVAL */
};

/*
 * Writes the file frame with its parts to out: 0, or a negative errno after a message on stderr;
 * -EINVAL for an unknown part.
 */
int man_page_print(const char *frame, const struct man_page_part *parts, FILE *out);

/*
 * mdoc: text, a sentence per line, and a paragraph for an empty line. What mdoc would take for a
 * request, an escape or a hyphen is escaped.
 */
void man_page_text(FILE *out, const char *text);
/* mdoc: a subsection for each object of the document, in the order of its tables. */
void man_page_objects(const struct schema_document *document, FILE *out);
/* mdoc: the members of the message of that name; -EINVAL if it is unknown. */
int man_page_message(const struct schema_document *document, const char *name, FILE *out);

#endif
