/*
 * table.h: a table that is aligned when all cells are known. Cells are added row by row and copied.
 */
#ifndef GPT2D_CTL_PRINT_TABLE_H
#define GPT2D_CTL_PRINT_TABLE_H

#include <stddef.h>

#include "ctl/print/term.h"

enum { TABLE_COLUMNS_MAX = 16 };

struct table {
	size_t n_columns;
	char *headers[TABLE_COLUMNS_MAX];
	bool right[TABLE_COLUMNS_MAX];
	bool whole;   /* nothing is cut, because a cut hash would look complete */
	char **cells; /* row after row */
	size_t n_cells, size;
};

void table_init(struct table *t);
void table_finish(struct table *t);

/* Before the first cell: names between tabs; ">NAME" is right-aligned; "" has no header. */
void table_columns(struct table *t, const char *names);
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Prints each line after indent, with two spaces between columns and no trailing blanks. The last
 * column is cut at the terminal's width with an ellipsis ("..." without UTF-8), except a
 * right-aligned one, of numbers, and in a table that is whole.
 */
void table_print(const struct table *t, const struct term *term, const char *indent);

#endif
