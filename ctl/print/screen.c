#include "ctl/print/screen.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/print/term.h"
#include "proto/host/memory.h"

/* A resize only has to end the wait. */
static void on_resize(int number)
{
}

static void forget(struct screen *s)
{
	for (int i = 0; i < SCREEN_ROWS_MAX; i++) {
		free(s->lines[i]);
		s->lines[i] = NULL;
	}
}

static void take_size(struct screen *s)
{
	struct winsize size;

	s->rows = 24;
	s->columns = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
		s->rows = size.ws_row < SCREEN_ROWS_MAX ? size.ws_row : SCREEN_ROWS_MAX;
		s->columns = size.ws_col;
	}
}

void screen_begin(struct screen *s, bool utf8)
{
	struct sigaction action = {.sa_handler = on_resize};
	struct termios mode;

	*s = (struct screen){.utf8 = utf8};
	sigemptyset(&action.sa_mask);
	sigaction(SIGWINCH, &action, NULL);
	if (tcgetattr(STDIN_FILENO, &s->before) == 0) {
		mode = s->before;
		mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		mode.c_cc[VMIN] = 0;
		mode.c_cc[VTIME] = 0;
		mode.c_cc[VSUSP] = _POSIX_VDISABLE; /* a key, see screen_suspend */
		s->keys = tcsetattr(STDIN_FILENO, TCSADRAIN, &mode) == 0;
	}
	take_size(s);
	fputs("\033[?1049h\033[?25l\033[2J", stdout);
	fflush(stdout);
}

void screen_end(struct screen *s)
{
	forget(s);
	fputs("\033[0m\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (s->keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
}

void screen_suspend(struct screen *s)
{
	const bool utf8 = s->utf8;

	screen_end(s);
	kill(0, SIGTSTP); /* the whole pipeline, as the terminal does it */
	screen_begin(s, utf8);
}

void screen_resize(struct screen *s)
{
	const int rows = s->rows, columns = s->columns;

	take_size(s);
	if (s->rows == rows && s->columns == columns)
		return;
	forget(s);
	fputs("\033[2J", stdout);
}

/* The last column of the last row stays free, because some terminals scroll. */
static void draw_line(struct screen *s, int row, const char *line, size_t n)
{
	const int columns = row + 1 == s->rows ? s->columns - 1 : s->columns;
	struct term t = {.utf8 = s->utf8};
	char *shown;
	size_t bytes;

	t.file = memory_stream(&shown, &bytes);
	term_put_cut(&t, line, n, columns > 0 ? (size_t)columns : 0);
	memory_stream_end(t.file);
	if (s->lines[row] && strcmp(s->lines[row], shown) == 0) {
		free(shown);
		return;
	}
	free(s->lines[row]);
	s->lines[row] = shown;
	printf("\033[%d;1H%s\033[0m\033[K", row + 1, shown);
}

int screen_draw(struct screen *s, const char *text, const char *footer)
{
	fputs("\033[?2026h", stdout); /* one update, if the terminal supports that */
	for (int row = 0; row < s->rows; row++) {
		const size_t n = strcspn(text, "\n");

		if (row > 0 && row + 1 == s->rows)
			break;
		draw_line(s, row, text, n);
		text += n;
		text += *text == '\n';
	}
	if (s->rows > 1)
		draw_line(s, s->rows - 1, footer, strlen(footer));
	fputs("\033[?2026l", stdout);
	errno = 0;
	if (fflush(stdout) != 0 || ferror(stdout))
		return errno ? -errno : -EIO;
	return 0;
}

int screen_key(struct screen *s)
{
	unsigned char key;
	ssize_t n;

	if (!s->keys)
		return -EAGAIN;
	n = read(STDIN_FILENO, &key, 1);
	if (n == 1)
		return key;
	return n < 0 && errno != EAGAIN && errno != EINTR ? -EIO : -EAGAIN;
}
