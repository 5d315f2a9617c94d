#include "ctl/print/page.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"

enum { PAGE_COLUMNS = 80, PAGE_GAP = 3, PAGE_INDENT = 2 };

static size_t page_width(const struct page *p)
{
	const int width = term_width(p->term);

	return width > 20 && width < PAGE_COLUMNS ? (size_t)width : PAGE_COLUMNS;
}

static void page_break(struct page *p)
{
	p->column = p->flush ? 0 : PAGE_INDENT;
	fprintf(p->term->file, "\n%*s", (int)p->column, "");
}

void page_part(struct page *p, const char *format, ...)
{
	const size_t width = page_width(p);
	char text[1024], *save = NULL;
	bool begun = p->column == 0 || p->fresh;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!begun && p->column + PAGE_GAP + term_columns(text) <= width) {
		p->column += (size_t)fprintf(p->term->file, "%*s", PAGE_GAP, "");
		begun = true;
	} else if (!begun) {
		page_break(p);
		begun = true;
	}
	for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		const size_t columns = term_columns(word);

		if (!begun && p->column + 1 + columns > width) {
			page_break(p);
		} else if (!begun) {
			fputc(' ', p->term->file);
			p->column++;
		}
		fputs(word, p->term->file);
		p->column += columns;
		begun = false;
	}
	p->fresh = false;
}

void page_members(struct page *p, const json_t *object, const char *format)
{
	char *text = members_text(object, format);

	page_part(p, "%s", text);
	free(text);
}

void page_indent(struct page *p)
{
	fprintf(p->term->file, "%*s", PAGE_INDENT, "");
	p->column = PAGE_INDENT;
	p->fresh = true;
}

void page_end(struct page *p)
{
	if (p->column > 0)
		fputc('\n', p->term->file);
	p->column = 0;
}
