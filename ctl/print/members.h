/*
 * members.h: the members of a JSON object in a text. In a template,
 *
 *   {KEY}     stands for the member, a text or a whole number, without control characters. KEY may
 *             be dotted: {run.id}. Without such a member it is "?"
 *   {KEY|-}   the same with "-" instead of "?", and {KEY|} with nothing
 *   {KEY:AS}  the member as size (bytes), count, si, duration, loss or time (format.h); as s: the
 *             plural's "s", unless it is 1; as a number N: its first N bytes
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
