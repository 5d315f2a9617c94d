/*
 * members.h: the members of a JSON object in a text. In a template,
 *
 *   {KEY}     stands for the member, a text or a whole number, without control characters. KEY may
 *             be dotted: {run.id}. Without such a member it is "?"
 *   {KEY|-}   the same with "-" instead of "?", and {KEY|} with nothing
 *   {KEY:AS}  a text as time (format.h), or as a number N: its first N bytes. A number as size
 *             (bytes), count, si, duration, ns (a duration), loss, signed or p (format.h); as
 *             share: a fraction in percent; as .N: with N decimals; as Ng: N digits; as s: the
 *             plural's "s", unless it is 1
 *   [...]     nothing if one of the members in it is absent or ""
 *
 * gpt2d is not trusted to send a member, nor its type.
 */
#ifndef GPT2D_CTL_PRINT_MEMBERS_H
#define GPT2D_CTL_PRINT_MEMBERS_H

#include <jansson.h>
#include <stdio.h>

#include "ctl/print/table.h"

void members_print(FILE *to, const json_t *object, const char *format);
/* The text, the caller's. */
char *members_text(const json_t *object, const char *format);
/* A cell for each part of format between tabs. */
void members_cells(struct table *table, const json_t *object, const char *format);
/* A table with these columns (table_columns), and cells for each of rows. */
void members_table(const struct term *term, const char *indent, const json_t *rows,
	const char *columns, const char *cells);

#endif
