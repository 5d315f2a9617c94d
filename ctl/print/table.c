#include "ctl/print/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

void table_init(struct table *t)
{
	*t = (struct table){0};
}

void table_finish(struct table *t)
{
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	for (size_t i = 0; i < t->n_columns; i++)
		free(t->headers[i]);
	*t = (struct table){0};
}

static void add_column(struct table *t, const char *header, bool right)
{
	if (t->n_columns == TABLE_COLUMNS_MAX)
		return;
	t->headers[t->n_columns] = memory_text(header);
	t->right[t->n_columns++] = right;
}

void table_columns(struct table *t, const char *names)
{
	size_t n;

	do {
		const bool right = *names == '>';
		char *name;

		n = strcspn(names, "\t");
		name = memory_printed("%.*s", (int)(n - right), names + right);
		add_column(t, name, right);
		free(name);
		names += n + 1;
	} while (names[-1]);
}

void table_cell(struct table *t, const char *format, ...)
{
	va_list ap;
	char *text;

	if (t->n_cells == t->size) {
		t->size = t->size ? t->size * 2 : 64;
		t->cells = memory_resized(t->cells, t->size * sizeof(*t->cells));
	}
	va_start(ap, format);
	text = memory_vprinted(format, ap);
	va_end(ap);
	t->cells[t->n_cells++] = text;
}

static const char *cell_at(const struct table *t, size_t row, size_t column)
{
	const size_t i = row * t->n_columns + column;

	return i < t->n_cells ? t->cells[i] : "";
}

static void print_row(const struct table *t, const struct term *term, const char *indent,
	const size_t *widths, const char *const *cells)
{
	size_t used = term_columns(indent), last = 0;

	for (size_t c = 0; c < t->n_columns; c++) {
		if (*cells[c])
			last = c + 1;
	}
	fputs(indent, term->file);
	for (size_t c = 0; c < last; c++) {
		const size_t columns = term_columns(cells[c]);
		const size_t pad = widths[c] > columns ? widths[c] - columns : 0;
		const size_t room = (size_t)term->width > used ? (size_t)term->width - used : 1;

		if (t->right[c])
			fprintf(term->file, "%*s", (int)pad, "");
		if (term->tty && c + 1 == last && columns > room && !t->whole && !t->right[c])
			term_put_cut(term, cells[c], strlen(cells[c]), room);
		else
			fputs(cells[c], term->file);
		if (c + 1 < last)
			fprintf(term->file, "%*s", (int)(t->right[c] ? 0 : pad) + 2, "");
		used += widths[c] + 2;
	}
	fputc('\n', term->file);
}

void table_print(const struct table *t, const struct term *term, const char *indent)
{
	const size_t n_rows = t->n_columns ? t->n_cells / t->n_columns : 0;
	const char *row[TABLE_COLUMNS_MAX] = {0};
	size_t widths[TABLE_COLUMNS_MAX];
	bool headers = false;

	if (t->n_columns == 0)
		return;
	for (size_t c = 0; c < t->n_columns; c++) {
		widths[c] = term_columns(t->headers[c]);
		headers = headers || *t->headers[c];
		for (size_t r = 0; r < n_rows; r++) {
			const size_t columns = term_columns(cell_at(t, r, c));

			if (columns > widths[c])
				widths[c] = columns;
		}
	}
	if (headers)
		print_row(t, term, indent, widths, (const char *const *)t->headers);
	for (size_t r = 0; r < n_rows; r++) {
		for (size_t c = 0; c < t->n_columns; c++)
			row[c] = cell_at(t, r, c);
		print_row(t, term, indent, widths, row);
	}
}
