#include "ctl/print/screen.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/print/term.h"

/* A resize need only end the wait. */
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
	kill(0, SIGTSTP); /* all of a pipeline, as the terminal does it */
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

/* Bytes of the line that fit into columns; escape sequences take none. */
static size_t bytes_within(const char *line, size_t n, size_t columns)
{
	size_t used = 0, i = 0;

	while (i < n) {
		if (line[i] == '\033') {
			while (i < n && line[i] != 'm')
				i++;
			i += i < n;
			continue;
		}
		if (((unsigned char)line[i] & 0xc0) != 0x80 && used++ == columns)
			break;
		i++;
	}
	return i;
}

/* line within columns, a mark in place of what is left out; malloc'd, NULL without memory. */
static char *line_within(const struct screen *s, const char *line, size_t n, size_t columns)
{
	const char *mark = s->utf8 ? "\u2026" : "...";
	const size_t marked = term_columns(mark);
	size_t fit = bytes_within(line, n, columns);
	char *out;

	if (fit == n)
		return strndup(line, n);
	fit = bytes_within(line, n, columns > marked ? columns - marked : 0);
	n = bytes_within(mark, strlen(mark), columns);
	return asprintf(&out, "%.*s%.*s", (int)fit, line, (int)n, mark) < 0 ? NULL : out;
}

/* The last column of the last row is left free: some terminals scroll. */
static void draw_line(struct screen *s, int row, const char *line, size_t n)
{
	const int columns = row + 1 == s->rows ? s->columns - 1 : s->columns;
	char *shown = line_within(s, line, n, columns > 0 ? (size_t)columns : 0);

	if (shown && s->lines[row] && strcmp(s->lines[row], shown) == 0) {
		free(shown);
		return;
	}
	free(s->lines[row]);
	s->lines[row] = shown;
	printf("\033[%d;1H%s\033[0m\033[K", row + 1, shown ? shown : "");
}

int screen_draw(struct screen *s, const char *text, const char *footer)
{
	fputs("\033[?2026h", stdout); /* one picture, where the terminal knows that */
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
