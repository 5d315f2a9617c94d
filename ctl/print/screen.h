/*
 * screen.h: a whole terminal that is drawn again and again: the alternate screen, keys one by one,
 * only the lines that changed written. It takes stdin and stdout.
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
	int rows, columns;            /* as drawn last */
	char *lines[SCREEN_ROWS_MAX]; /* that stand there; NULL: not known */
};

/* The size is in rows and columns after screen_begin and screen_resize, 24 and 80 if unknown. */
void screen_begin(struct screen *s, bool utf8);
/* Leave the terminal as it was. */
void screen_end(struct screen *s);

/* Ctrl-Z: leave the terminal, stop, and take it again when the process goes on; draws nothing. */
void screen_suspend(struct screen *s);

/* Has the size changed since it was drawn? Then everything is drawn anew. */
void screen_resize(struct screen *s);
/*
 * Lines of text, cut at the screen's right edge with an ellipsis for what is left out ("..." not in
 * UTF-8), as many as there are rows, and in the last row, if there are two, the footer: 0, or a
 * negative errno when it cannot be written.
 */
int screen_draw(struct screen *s, const char *text, const char *footer);

/* A key, -EAGAIN when there is none; -EIO when no more will come. */
int screen_key(struct screen *s);

#endif
