/* term.h: what a stream can show: a terminal or not, colours, UTF-8, columns. */
#ifndef GPT2D_CTL_PRINT_TERM_H
#define GPT2D_CTL_PRINT_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct term {
	FILE *file;
	bool tty;    /* a terminal that can move its cursor */
	bool colour; /* a terminal, and neither NO_COLOR nor TERM=dumb */
	bool utf8;   /* by the locale */
	bool bars;   /* not with TERM=dumb, be it a terminal or not */
	int width;   /* columns; 80 where it is not a terminal */
	bool fixed;  /* width is as it is, file is no terminal itself */
};

enum term_colour { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_RED, TERM_GREEN, TERM_YELLOW, TERM_CYAN };

/* Needs setlocale(LC_CTYPE, "") before. */
struct term term_detect(FILE *file);
/* What is printed there is not seen. */
struct term term_nowhere(void);
/* Columns now (a terminal may have been resized). */
int term_width(const struct term *t);

/* Escape sequence, or "" where colours are off. TERM_PLAIN ends a colour. */
const char *term_colour(const struct term *t, enum term_colour colour);

/* Columns that s takes: one for each code point (no wide characters are printed by us). */
size_t term_columns(const char *s);
/* Of the n bytes of s, how many fit into columns. Escape sequences of colours take none. */
size_t term_fit(const char *s, size_t n, size_t columns);
/* n bytes of s in columns, with an ellipsis for what is left out ("..." not in UTF-8). */
void term_put_cut(const struct term *t, const char *s, size_t n, size_t columns);

/*
 * A bar of cells columns for fraction 0..1, in eighths of a column with UTF-8, '#' and '-' without.
 * "" where there are none.
 */
void term_bar(const struct term *t, double fraction, size_t cells, char *out, size_t out_bytes);

/* Copy with control characters replaced by '?': what came from elsewhere must not drive the
 * terminal. */
void term_clean(const char *s, char *out, size_t out_bytes);
/* The same, but newlines stay. */
void term_clean_lines(const char *s, char *out, size_t out_bytes);

#endif
