#include "proto/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/suggest.h"

enum { NAMES_MAX = 128, NAME_BYTES = 128, CHOICES_BYTES = 128 };

/* The arguments during parsing. */
struct reading {
	struct options *o;
	int argc, at; /* at: the next argument */
	char **argv;
	char *error;
	size_t error_bytes;
};

static int refuse(struct reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(struct reading *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->error, r->error_bytes, format, args);
	va_end(args);
	return -EINVAL;
}

static const struct option_row *find_in(const struct option_row *table, const char *name, size_t n)
{
	for (const struct option_row *row = table; row && row->name; row++) {
		if (strlen(row->name) == n && strncmp(row->name, name, n) == 0)
			return row;
		if (n == 1 && row->letter == *name)
			return row;
	}
	return NULL;
}

const struct option_row *options_find(const struct options *o, const char *name, size_t n)
{
	const struct option_row *row = find_in(o->tables[0], name, n);

	return row ? row : find_in(o->tables[1], name, n);
}

static const char *nearest(const struct options *o, const char *name)
{
	const char *names[NAMES_MAX];
	size_t n = 0;

	for (int i = 0; i < 2; i++)
		for (const struct option_row *row = o->tables[i]; row && row->name && n < NAMES_MAX;
			row++)
			names[n++] = row->name;
	/* suggest_nearest() ignores prefixes of one or two letters */
	for (size_t i = 0; i < n; i++)
		if (*name && strncmp(names[i], name, strlen(name)) == 0)
			return names[i];
	return suggest_nearest(name, names, n);
}

static int refuse_unknown(struct reading *r, const char *given, const char *name)
{
	char clean[NAME_BYTES];
	const char *near;

	snprintf(clean, sizeof(clean), "%.*s", (int)strcspn(name, "="), name);
	near = nearest(r->o, clean);
	if (near)
		return refuse(r, "%.80s: no such option; did you mean --%s?", given, near);
	return refuse(r, "%.80s: no such option; see: %s", given, r->o->help);
}

int options_parse_int(const char *text, int64_t *value)
{
	long long number;
	char *end;

	errno = 0;
	number = strtoll(text, &end, 10);
	/* strtoll() also accepts " 1" and "+1" */
	if (end == text || *end || !isdigit((unsigned char)text[*text == '-']))
		return -EINVAL;
	if (errno)
		return -errno;
	*value = number;
	return 0;
}

static int parse_real(const char *text, double *value)
{
	double number;
	char *end;

	errno = 0;
	number = strtod(text, &end);
	if (errno == ERANGE && !*end && isinf(number))
		return -ERANGE;
	if (errno || end == text || *end || !isfinite(number))
		return -EINVAL;
	*value = number;
	return 0;
}

static int check_choice(struct reading *r, const struct option_row *row, const char *text)
{
	const char *one = row->choices ? row->choices : row->arg, *before = "";
	char all[CHOICES_BYTES] = "";
	size_t used = 0, n;

	for (; *one && used < sizeof(all); one += n + (one[n] == '|')) {
		n = strcspn(one, "|");
		if (n == strlen(text) && strncmp(one, text, n) == 0)
			return 0;
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%.*s",
			one[n] || !used ? before : " or ", (int)n, one);
		before = ", ";
	}
	return refuse(r, "--%s: %.80s: %s is needed", row->name, *text ? text : "\"\"", all);
}

static int check_value(struct reading *r, const struct option_row *row, const char *text)
{
	const char *shown = *text ? text : "\"\"";
	double real = 0;
	int64_t number = 0;
	int rc;

	if (row->kind == OPTION_CHOICE)
		return check_choice(r, row, text);
	if (row->kind != OPTION_INT && row->kind != OPTION_REAL)
		return 0;
	if (row->kind == OPTION_INT) {
		rc = options_parse_int(text, &number);
		real = (double)number;
	} else {
		rc = parse_real(text, &real);
	}
	if (rc == -EINVAL)
		return refuse(r, "--%s: %.80s: a %snumber is needed", row->name, shown,
			row->kind == OPTION_INT ? "whole " : "");
	if (rc < 0 || real < row->min || real > row->max)
		return refuse(r, "--%s: %.80s is not allowed, from %.16g to %.16g", row->name, text,
			row->min, row->max);
	return 0;
}

static void keep(struct options *o, const struct option_row *row, const char *text)
{
	o->values = memory_resized(o->values, (o->n_values + 1) * sizeof(*o->values));
	o->values[o->n_values++] = (struct option_value){row, text};
}

/* value: from the option's own argument; NULL: the next argument is the value. */
static int take_value(
	struct reading *r, const struct option_row *row, const char *given, const char *value)
{
	int rc;

	if (!value) {
		if (r->at >= r->argc)
			return refuse(r, "%.80s: %s is needed", given, row->arg);
		value = r->argv[r->at++];
	}
	rc = check_value(r, row, value);
	if (rc < 0)
		return rc;
	if (!row->many && options_has(r->o, row->name))
		return refuse(r, "--%s: given twice: %.80s and %.80s", row->name,
			options_string(r->o, row->name, ""), value);
	keep(r->o, row, value);
	return 0;
}

/* Joined letters: only the last one may have a value. */
static int take_letters(struct reading *r, const char *given)
{
	for (const char *letter = given + 1; *letter; letter++) {
		const struct option_row *row = options_find(r->o, letter, 1);

		if (!row)
			return refuse_unknown(r, given, given + 1);
		if (row->kind != OPTION_FLAG)
			return take_value(r, row, given, letter[1] ? letter + 1 : NULL);
		keep(r->o, row, "");
	}
	return 0;
}

static int take_option(struct reading *r, const char *given)
{
	const char *name = given + 2;
	const size_t n = strcspn(name, "=");
	const struct option_row *row;

	if (given[1] != '-')
		return take_letters(r, given);
	row = n > 1 ? options_find(r->o, name, n) : NULL;
	if (!row)
		return refuse_unknown(r, given, name);
	if (row->kind != OPTION_FLAG)
		return take_value(r, row, given, name[n] ? name + n + 1 : NULL);
	if (name[n])
		return refuse(r, "%.80s: takes no value", given);
	keep(r->o, row, "");
	return 0;
}

bool options_is_option(const char *word)
{
	return word[0] == '-' && word[1] != '\0' && !isdigit((unsigned char)word[1]);
}

int options_read(struct options *o, int argc, char **argv, int first, bool until_word, char *error,
	size_t error_bytes)
{
	struct reading r = {o, argc, first, argv, error, error_bytes};
	int rc = 0;

	while (rc == 0 && r.at < argc) {
		const char *word = argv[r.at];
		const bool option = !o->ended && options_is_option(word);

		if (until_word && !option)
			break;
		r.at++;
		if (option && strcmp(word, "--") == 0) {
			o->ended = true;
		} else if (option) {
			rc = take_option(&r, word);
		} else {
			o->words = memory_resized(o->words, (o->n_words + 1) * sizeof(*o->words));
			o->words[o->n_words++] = word;
		}
	}
	return rc < 0 ? rc : r.at;
}

void options_finish(struct options *o)
{
	free(o->words);
	free(o->values);
	*o = (struct options){0};
}

bool options_has(const struct options *o, const char *name)
{
	return options_string(o, name, NULL) != NULL;
}

const char *options_string(const struct options *o, const char *name, const char *otherwise)
{
	for (size_t i = o->n_values; i > 0; i--)
		if (strcmp(o->values[i - 1].row->name, name) == 0)
			return o->values[i - 1].text;
	return otherwise;
}

const char **options_all(const struct options *o, const char *name, size_t *n)
{
	const char **values = memory_zeroed(o->n_values + 1, sizeof(*values));

	*n = 0;
	for (size_t i = 0; i < o->n_values; i++)
		if (strcmp(o->values[i].row->name, name) == 0)
			values[(*n)++] = o->values[i].text;
	return values;
}

int64_t options_int(const struct options *o, const char *name, int64_t otherwise)
{
	const char *text = options_string(o, name, NULL);
	int64_t value;

	return text && options_parse_int(text, &value) == 0 ? value : otherwise;
}

double options_real(const struct options *o, const char *name, double otherwise)
{
	const char *text = options_string(o, name, NULL);
	double value;

	return text && parse_real(text, &value) == 0 ? value : otherwise;
}

char *options_format(const struct option_row *row, char *out, size_t out_bytes)
{
	const char letter[] = {'-', row->letter, ',', ' ', '\0'};

	snprintf(out, out_bytes, "%s--%s%s%s", row->letter ? letter : "", row->name,
		row->arg ? " " : "", row->arg ? row->arg : "");
	return out;
}
