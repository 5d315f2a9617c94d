/*
 * screen.h: a full-screen view: the alternate screen, single keys, and only changed lines are
 * written. It takes stdin and stdout.
 */
#ifndef GPT2D_CTL_PRINT_SCREEN_H
#define GPT2D_CTL_PRINT_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

enum { SCREEN_ROWS_MAX = 1000 };

struct screen {
	struct termios before;
	bool keys;                    /* stdin is a terminal: its mode is changed */
	bool utf8;
	int rows, columns;            /* as last drawn */
	char *lines[SCREEN_ROWS_MAX]; /* the lines on the screen; NULL: not known */
};

/* The size is in rows and columns after screen_begin and screen_resize, 24 and 80 if unknown. */
void screen_begin(struct screen *s, bool utf8);
/* Restore the terminal. */
void screen_end(struct screen *s);

/*
 * Ctrl-Z: restore the terminal, stop, and take the terminal again when the process continues; draws
 * nothing.
 */
void screen_suspend(struct screen *s);

/* Whether the size has changed since the last draw. If so, everything is drawn again. */
void screen_resize(struct screen *s);
/*
 * Draws lines of text, as many as fit, cut at the right edge with an ellipsis ("..." without
 * UTF-8), and the footer in the last row if there are two rows: 0, or a negative errno if a write
 * fails.
 */
int screen_draw(struct screen *s, const char *text, const char *footer);

/* A key, -EAGAIN if there is none; -EIO if there will be no more. */
int screen_key(struct screen *s);

#endif
