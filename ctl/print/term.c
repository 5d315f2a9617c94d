#include "ctl/print/term.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *const codes[] = {
	[TERM_PLAIN] = "\033[0m",
	[TERM_BOLD] = "\033[1m",
	[TERM_DIM] = "\033[2m",
	[TERM_RED] = "\033[31m",
	[TERM_GREEN] = "\033[32m",
	[TERM_YELLOW] = "\033[33m",
	[TERM_CYAN] = "\033[36m",
};

struct term term_detect(FILE *file)
{
	const char *name = getenv("TERM"), *no_color = getenv("NO_COLOR");
	struct term t = {.file = file};

	t.bars = !name || strcmp(name, "dumb") != 0;
	t.tty = isatty(fileno(file)) && name && *name && t.bars;
	t.colour = t.tty && !(no_color && *no_color);
	t.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	t.width = 80;
	t.width = term_width(&t);
	return t;
}

struct term term_nowhere(void)
{
	FILE *file = fopen("/dev/null", "we");

	return file ? term_detect(file) : term_detect(stdout);
}

int term_width(const struct term *t)
{
	struct winsize size;

	if (!t->tty || t->fixed || ioctl(fileno(t->file), TIOCGWINSZ, &size) != 0 ||
		size.ws_col == 0)
		return t->width;
	return size.ws_col;
}

const char *term_colour(const struct term *t, enum term_colour colour)
{
	return t->colour ? codes[colour] : "";
}

size_t term_columns(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

size_t term_fit(const char *s, size_t n, size_t columns)
{
	size_t used = 0, i = 0;

	while (i < n) {
		if (s[i] == '\033') {
			while (i < n && s[i] != 'm')
				i++;
			i += i < n;
			continue;
		}
		if (((unsigned char)s[i] & 0xc0) != 0x80 && used++ == columns)
			break;
		i++;
	}
	return i;
}

void term_put_cut(const struct term *t, const char *s, size_t n, size_t columns)
{
	const char *mark = t->utf8 ? "\u2026" : "...";
	const size_t taken = term_columns(mark);
	size_t fit = term_fit(s, n, columns);

	if (fit < n)
		fit = term_fit(s, n, columns > taken ? columns - taken : 0);
	fprintf(t->file, "%.*s", (int)fit, s);
	if (fit < n)
		fprintf(t->file, "%.*s", (int)term_fit(mark, strlen(mark), columns), mark);
}

void term_bar(const struct term *t, double fraction, size_t cells, char *out, size_t out_bytes)
{
	/* U+258F (one eighth) down to U+2588 (full) differ in their last byte only */
	static const unsigned char last_byte[] = {
		0, 0x8f, 0x8e, 0x8d, 0x8c, 0x8b, 0x8a, 0x89, 0x88};
	const double clamped = fraction >= 1.0 ? 1.0 : fraction > 0.0 ? fraction : 0.0;
	const size_t eighths = (size_t)(clamped * (double)cells * 8.0 + 0.5);
	size_t used = 0;

	for (size_t i = 0; t->bars && i < cells && used + 4 < out_bytes; i++) {
		const size_t left = eighths > i * 8 ? eighths - i * 8 : 0;
		const size_t part = left < 8 ? left : 8;

		if (!t->utf8) {
			out[used++] = part >= 4 ? '#' : '-';
		} else if (part == 0) {
			out[used++] = ' ';
		} else {
			out[used++] = (char)0xe2;
			out[used++] = (char)0x96;
			out[used++] = (char)last_byte[part];
		}
	}
	if (out_bytes > 0)
		out[used] = '\0';
}

/* C0 and DEL, and C1 (U+0080 to U+009F), which also begin escape sequences in UTF-8. */
static bool is_control(const unsigned char *s)
{
	return *s < 0x20 || *s == 0x7f || (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0);
}

static void clean(const char *s, bool lines, char *out, size_t out_bytes)
{
	size_t n = 0;

	if (out_bytes == 0)
		return;
	for (; *s && n + 1 < out_bytes; s++) {
		if (is_control((const unsigned char *)s) && !(lines && *s == '\n')) {
			s += (unsigned char)*s == 0xc2;
			out[n++] = '?';
		} else {
			out[n++] = *s;
		}
	}
	/* cut within a code point: without its beginning */
	if (((unsigned char)*s & 0xc0) == 0x80) {
		while (n > 0 && ((unsigned char)out[n - 1] & 0xc0) == 0x80)
			n--;
		if (n > 0 && (unsigned char)out[n - 1] >= 0xc0)
			n--;
	}
	out[n] = '\0';
}

void term_clean(const char *s, char *out, size_t out_bytes)
{
	clean(s, false, out, out_bytes);
}

void term_clean_lines(const char *s, char *out, size_t out_bytes)
{
	clean(s, true, out, out_bytes);
}
