/*
 * gpt2d.conf: lines of NAME = VALUE. A value is one word or several, "quoted" where it has a blank
 * or a # in it; # begins a comment. All that is wrong is told, not the first only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/config/settings_table.h"

enum {
	FILE_BYTES_MAX = 1 << 20,
	ERRORS_MAX = 100,
	NULL_MAJOR = 1, /* of /dev/null: a file with nothing in it */
	NULL_MINOR = 3,
};

struct reading {
	struct settings *s;
	const char *path;
	FILE *errors;
	int line, n_errors;
};

static void wrong(struct reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void wrong(struct reading *r, const char *format, ...)
{
	va_list args;

	if (++r->n_errors > ERRORS_MAX)
		return;
	if (r->line > 0)
		fprintf(r->errors, "%s:%d: ", r->path, r->line);
	else
		fprintf(r->errors, "%s: ", r->path);
	va_start(args, format);
	vfprintf(r->errors, format, args);
	va_end(args);
	fputc('\n', r->errors);
}

/* ---- a line ---- */

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/*
 * The next word at *at, taken out of its quotes in place. NULL at the end of the line; *error is
 * set when a quote is not closed.
 */
static char *next_word(char **at, const char **error)
{
	char *from = *at, *to, *word;
	bool quoted;

	while (blank(*from))
		from++;
	if (*from == '\0' || *from == '#') {
		*at = from;
		return NULL;
	}
	quoted = *from == '"';
	word = to = from += quoted;
	while (*from != '\0' && (quoted ? *from != '"' : !blank(*from) && *from != '#')) {
		if (quoted && *from == '\\' && (from[1] == '"' || from[1] == '\\'))
			from++;
		*to++ = *from++;
	}
	if (quoted && *from != '"')
		*error = "a quote is not closed";
	else if (quoted && from[1] != '\0' && from[1] != '#' && !blank(from[1]))
		*error = "a blank is expected after a quote";
	/* a word may end right before a #: that is looked at before it is overwritten */
	*at = *from == '\0' ? from : *from == '#' ? NULL : from + 1;
	*to = '\0';
	return word;
}

static bool is_log(const struct settings_row *row)
{
	return row->offset == offsetof(struct settings, log_file);
}

/* Not by the folder from which gpt2d was started, which nobody can tell from the file. */
static bool stands_alone(const struct settings_row *row, const char *word)
{
	return row->type != SETTING_PATH || word[0] == '/' || word[0] == '\0' ||
		(is_log(row) && (strcmp(word, "stderr") == 0 || strcmp(word, "journal") == 0));
}

/* More than one word where there is to be one: told before the first is looked at, 1 MiB say. */
static bool has_second(
	struct reading *r, const struct settings_row *row, char **at, const char **broken)
{
	const char *word = *at != NULL ? next_word(at, broken) : NULL;
	char units[64];

	if (word == NULL || *broken != NULL)
		return false;
	settings_format_units(row, units, sizeof(units));
	wrong(r, "%s: one value is expected, \"%.64s\" is a second one%s%s%s", row->name, word,
		units[0] != '\0' ? "; a unit (" : "", units,
		units[0] != '\0' ? ") follows its number without a blank" : "");
	return true;
}

static void read_value(struct reading *r, const struct settings_row *row, char *at)
{
	const char *broken = NULL;
	char error[512], *word;
	int words = 0, rc = 0;

	while (broken == NULL && rc == 0 && at != NULL && (word = next_word(&at, &broken))) {
		if (broken == NULL && row->type != SETTING_LIST && has_second(r, row, &at, &broken))
			return;
		if (broken == NULL && !stands_alone(row, word)) {
			wrong(r, "%s: \"%.64s\": an absolute path%s is expected%s", row->name, word,
				is_log(row) ? ", stderr or journal" : "",
				word[0] == '~' ? "; a ~ stands for nothing here" : "");
			return;
		}
		if (broken == NULL)
			rc = settings_set_row(r->s, row, word, error, sizeof(error));
		words++;
	}
	if (broken != NULL)
		wrong(r, "%s: %s", row->name, broken);
	else if (rc < 0)
		wrong(r, "%s", error);
	else if (words == 0)
		wrong(r, "%s: a value is missing", row->name);
}

static void read_line(struct reading *r, char *line)
{
	char *at = line, *name, *end, *equals;
	const struct settings_row *row;
	char error[256];
	size_t i;

	while (blank(*at))
		at++;
	if (*at == '\0' || *at == '#')
		return;
	name = at;
	end = at + strcspn(at, "=#");
	equals = *end == '=' ? end : NULL;
	while (end > name && blank(end[-1]))
		end--;
	*end = '\0';
	if (equals == NULL || end == name) {
		wrong(r, "\"%.64s\": NAME = VALUE is expected", equals == NULL ? name : "=");
		return;
	}
	row = settings_find(name);
	if (row == NULL) {
		settings_unknown(name, false, error, sizeof(error));
		wrong(r, "%s", error);
		return;
	}
	i = (size_t)(row - settings_rows);
	if (r->s->line[i] != 0) {
		wrong(r, "%s: given twice, first in line %d", row->name, r->s->line[i]);
		return;
	}
	r->s->line[i] = r->line;
	r->s->source[i] = BY_FILE;
	read_value(r, row, equals + 1);
}

/* ---- the file ---- */

/* Whose it is decides what gpt2d does: root's or one's own, and nobody else's to write. */
static bool trusted(struct reading *r, int fd, off_t *bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		wrong(r, "%s", strerror(errno));
		return false;
	}
	*bytes = S_ISREG(st.st_mode) ? st.st_size : 0;
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(NULL_MAJOR, NULL_MINOR))
		return true;
	if (!S_ISREG(st.st_mode))
		wrong(r, "is not a regular file");
	else if (st.st_uid != 0 && st.st_uid != geteuid())
		wrong(r, "belongs to uid %u, it has to be root's or one's own (uid %u)",
			(unsigned)st.st_uid, (unsigned)geteuid());
	else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		wrong(r, "others can write to it (mode %04o): chmod go-w %s",
			(unsigned)st.st_mode & 07777, r->path);
	else if (st.st_size > FILE_BYTES_MAX)
		wrong(r, "%lld bytes, at most %d are read", (long long)st.st_size, FILE_BYTES_MAX);
	return r->n_errors == 0;
}

static void read_lines(struct reading *r, char *text, size_t n)
{
	static const char mark[] = "\xef\xbb\xbf";
	char *line = text, *end;

	r->line = 1;
	if (n >= sizeof(mark) - 1 && memcmp(text, mark, sizeof(mark) - 1) == 0) {
		wrong(r, "begins with a byte order mark (EF BB BF): save the file without one");
		line += sizeof(mark) - 1;
	}
	for (; line < text + n; line = end + 1, r->line++) {
		end = memchr(line, '\n', (size_t)(text + n - line));
		if (end == NULL)
			end = text + n;
		*end = '\0';
		if (strlen(line) != (size_t)(end - line))
			wrong(r, "a NUL byte");
		else
			read_line(r, line);
	}
	r->line = 0;
}

int settings_read_file(struct settings *s, const char *path, FILE *errors)
{
	struct reading r = {.s = s, .path = path, .errors = errors};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = 0;
	char *text = NULL;
	size_t n = 0;
	ssize_t got;
	off_t bytes;

	if (fd < 0) {
		rc = -errno;
		if (rc != -ENOENT)
			wrong(&r, "%s", strerror(-rc));
		return rc;
	}
	if (!trusted(&r, fd, &bytes))
		goto out;
	text = malloc((size_t)bytes + 1);
	if (text == NULL) {
		rc = -ENOMEM;
		wrong(&r, "out of memory");
		goto out;
	}
	while (n < (size_t)bytes && (got = read(fd, text + n, (size_t)bytes - n)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			wrong(&r, "%s", strerror(errno));
			goto out;
		}
		n += (size_t)got;
	}
	read_lines(&r, text, n);
	if (r.n_errors > ERRORS_MAX)
		fprintf(errors, "%s: %d more errors\n", path, r.n_errors - ERRORS_MAX);
out:
	free(text);
	close(fd);
	return rc < 0 ? rc : r.n_errors > 0 ? -EINVAL : 0;
}
