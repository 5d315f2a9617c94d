#include "ctl/print/page.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

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

char *page_p(double p, char out[FORMAT_BYTES])
{
	char digits[FORMAT_BYTES];

	if (!isfinite(p)) {
		snprintf(out, FORMAT_BYTES, "-");
	} else if (p < 0.0001) {
		snprintf(out, FORMAT_BYTES, "<.0001");
	} else {
		snprintf(digits, sizeof(digits), "%.4f", p);
		snprintf(out, FORMAT_BYTES, "%s", digits + (p < 0.99995));
	}
	return out;
}

/* Avoids "-0.00". */
static double rounded(double percent)
{
	return fabs(percent) < 0.005 ? 0.0 : percent;
}

char *page_percent(double percent, char out[FORMAT_BYTES])
{
	if (isfinite(percent))
		snprintf(out, FORMAT_BYTES, "%+.2f%%", rounded(percent));
	else
		snprintf(out, FORMAT_BYTES, "-");
	return out;
}

char *page_interval(double low, double high, char out[FORMAT_BYTES])
{
	if (isfinite(low) && isfinite(high))
		snprintf(out, FORMAT_BYTES, "[%+.2f, %+.2f]", rounded(low), rounded(high));
	else
		snprintf(out, FORMAT_BYTES, "no interval");
	return out;
}
