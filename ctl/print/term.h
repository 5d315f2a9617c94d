/* term.h: the abilities of a stream: terminal or not, colours, UTF-8, columns. */
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
	bool bars;   /* not with TERM=dumb, terminal or not */
	int width;   /* columns; 80 if it is not a terminal */
	bool fixed;  /* width is fixed, file is not a terminal */
};

enum term_colour { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_RED, TERM_GREEN, TERM_YELLOW, TERM_CYAN };

/* Needs setlocale(LC_CTYPE, "") before. */
struct term term_detect(FILE *file);
/* A terminal whose output is discarded. */
struct term term_nowhere(void);
/* The present number of columns (a terminal may have been resized). */
int term_width(const struct term *t);

/* Escape sequence, or "" if colours are off. TERM_PLAIN ends a colour. */
const char *term_colour(const struct term *t, enum term_colour colour);

/* Columns of s: one for each code point (gpt2ctl prints no wide characters). */
size_t term_columns(const char *s);
/* Of the n bytes of s, how many fit into columns. Escape sequences of colours take none. */
size_t term_fit(const char *s, size_t n, size_t columns);
/* n bytes of s in columns, with an ellipsis for what is left out ("..." not in UTF-8). */
void term_put_cut(const struct term *t, const char *s, size_t n, size_t columns);

/*
 * A bar of cells columns for fraction 0..1, in eighths of a column with UTF-8, else with '#' and
 * '-'. "" if cells is 0.
 */
void term_bar(const struct term *t, double fraction, size_t cells, char *out, size_t out_bytes);

/* Copy with control characters replaced by '?': foreign text must not control the terminal. */
void term_clean(const char *s, char *out, size_t out_bytes);
/* The same, but newlines stay. */
void term_clean_lines(const char *s, char *out, size_t out_bytes);

#endif
