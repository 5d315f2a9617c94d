/* man_page.h: manual pages made of a frame of mdoc and of what tables say, for the build. */
#ifndef GPT2D_PROTO_SCHEMA_MAN_PAGE_H
#define GPT2D_PROTO_SCHEMA_MAN_PAGE_H

#include <stdio.h>

#include "proto/schema/schema.h"

/* What takes the place of the line @NAME@. A table of them ends with a name that is NULL. */
struct man_page_part {
	const char *name;
	void (*print)(FILE *out);
	int (*print_of)(FILE *out, const char *word); /* instead, of @NAME WORD@: 0 or -EINVAL */
};

/*
 * The file frame with its parts to out: 0, or a negative errno that stderr has been told, -EINVAL
 * for a line that begins with @ and is no part.
 */
int man_page_print(const char *frame, const struct man_page_part *parts, FILE *out);

/*
 * mdoc: text, a sentence per line, and a paragraph for an empty line. What mdoc would take for a
 * request, an escape or a hyphen is escaped.
 */
void man_page_text(FILE *out, const char *text);
/* mdoc: a subsection for each object of the document, in the order of its tables. */
void man_page_objects(const struct schema_document *document, FILE *out);
/* mdoc: the members of the message of that name; -EINVAL when there is none. */
int man_page_message(const struct schema_document *document, const char *name, FILE *out);

#endif
