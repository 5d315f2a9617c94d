/* man_page.h: manual pages made of a frame of mdoc and of what tables say, for the build. */
#ifndef GPT2D_PROTO_SCHEMA_MAN_PAGE_H
#define GPT2D_PROTO_SCHEMA_MAN_PAGE_H

#include <stdio.h>

/* What takes the place of the line @NAME@. A table of them ends with a name that is NULL. */
struct man_page_part {
	const char *name;
	void (*print)(FILE *out);
};

/*
 * The file frame with its parts to out: 0, or a negative errno that stderr has been told, -EINVAL
 * for a line that begins with @ and is no part.
 */
int man_page_print(const char *frame, const struct man_page_part *parts, FILE *out);

#endif
