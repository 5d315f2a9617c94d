#include "ctl/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/suggest.h"

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

const struct option_row *arguments_row(const struct verb *verb, const char *name, size_t n)
{
	const struct option_row *row = find_in(global_options, name, n);

	if (!row && verb)
		row = find_in(verb->options, name, n);
	return row;
}

static const char *suggest_option(const struct verb *verb, const char *name)
{
	const char *names[64];
	size_t n = 0;

	for (const struct option_row *row = global_options; row->name && n < 64; row++)
		names[n++] = row->name;
	for (const struct option_row *row = verb ? verb->options : NULL; row && row->name && n < 64;
		row++)
		names[n++] = row->name;
	/* the beginning of one may be too short to be near it */
	for (size_t i = 0; i < n; i++) {
		if (*name && strncmp(names[i], name, strlen(name)) == 0)
			return names[i];
	}
	return suggest_nearest(name, names, n);
}

static int unknown_option(
	const struct verb *verb, const char *given, const char *name, struct ctl_error *e)
{
	char clean[128];
	const char *near;

	snprintf(clean, sizeof(clean), "%s", name);
	clean[strcspn(clean, "=")] = '\0';
	near = suggest_option(verb, clean);
	if (near)
		return ctl_error_set(
			e, CTL_USAGE, "%.80s: no such option; did you mean --%s?", given, near);
	return ctl_error_set(e, CTL_USAGE, "%.80s: no such option; see: gpt2ctl help%s%s", given,
		verb ? " " : "", verb ? verb->name : "");
}

/* 0; -ERANGE: a number beyond what is counted in; -EINVAL: none. */
static int parse_int(const char *text, int64_t *out)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end || !isdigit((unsigned char)text[*text == '-']))
		return -EINVAL; /* also " 1" and "+1", which strtoll takes */
	if (errno)
		return -errno;
	*out = value;
	return 0;
}

static int parse_real(const char *text, double *out)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno == ERANGE && !*end && isinf(value))
		return -ERANGE;
	if (errno || end == text || *end || !isfinite(value))
		return -EINVAL;
	*out = value;
	return 0;
}

static int check_choice(const struct option_row *row, const char *text, struct ctl_error *e)
{
	const char *one = row->choices ? row->choices : row->arg, *before = "";
	const size_t n = strlen(text);
	char all[128] = "";
	size_t used = 0, len;

	for (; *one && used < sizeof(all); one += len + (one[len] == '|')) {
		len = strcspn(one, "|");
		if (len == n && strncmp(one, text, n) == 0)
			return 0;
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%.*s",
			one[len] || !used ? before : " or ", (int)len, one);
		before = ", ";
	}
	return ctl_error_set(e, CTL_USAGE, "--%s: %.80s: %s is needed", row->name,
		n > 0 ? text : "\"\"", all);
}

static int check_value(const struct option_row *row, const char *text, struct ctl_error *e)
{
	int64_t i;
	double real;
	int rc = 0;

	switch (row->kind) {
	case OPTION_FLAG:
	case OPTION_STRING:
		return 0;
	case OPTION_CHOICE:
		return check_choice(row, text, e);
	case OPTION_INT:
		rc = parse_int(text, &i);
		if (rc == -EINVAL)
			return ctl_error_set(e, CTL_USAGE, "--%s: %.80s: a whole number is needed",
				row->name, *text ? text : "\"\"");
		real = rc ? 0 : (double)i;
		break;
	case OPTION_REAL:
		rc = parse_real(text, &real);
		if (rc == -EINVAL)
			return ctl_error_set(
				e, CTL_USAGE, "--%s: %.80s: a number is needed", row->name,
				*text ? text : "\"\"");
		break;
	default:
		return ctl_error_set(e, CTL_USAGE, "--%s: bad option table", row->name);
	}
	if (rc || real < row->min || real > row->max)
		return ctl_error_set(e, CTL_USAGE,
			"--%s: %.80s is not allowed, from %.15g to %.15g", row->name, text,
			row->min, row->max);
	return 0;
}

/* The value of an option: what stands in its own word, or else the next word. */
static int take_value(struct arguments *a, const struct option_row *row, const char *value,
	char **argv, int argc, int *i, struct ctl_error *e)
{
	const char *given = argv[*i];

	if (!value) {
		if (*i + 1 >= argc)
			return ctl_error_set(e, CTL_USAGE, "%s: %s is needed", given, row->arg);
		value = argv[++*i];
	}
	if (check_value(row, value, e) != 0)
		return CTL_USAGE;
	if (!row->many && arguments_has(a, row->name))
		return ctl_error_set(e, CTL_USAGE, "--%s: given twice: %s and %s", row->name,
			arguments_string(a, row->name, ""), value);
	a->values[a->n_values++] = (struct argument_value){row, value};
	return 0;
}

/* Letters that stand together: the last of them may take a value. */
static int take_letters(struct arguments *a, char **argv, int argc, int *i, struct ctl_error *e)
{
	for (const char *letter = argv[*i] + 1; *letter; letter++) {
		const struct option_row *row = arguments_row(a->verb, letter, 1);

		if (!row)
			return unknown_option(a->verb, argv[*i], argv[*i] + 1, e);
		if (row->kind != OPTION_FLAG)
			return take_value(
				a, row, letter[1] ? letter + 1 : NULL, argv, argc, i, e);
		a->values[a->n_values++] = (struct argument_value){row, ""};
	}
	return 0;
}

/* Option argv[*i]; takes the next word too when the value stands there. */
static int take_option(struct arguments *a, char **argv, int argc, int *i, struct ctl_error *e)
{
	const char *given = argv[*i], *name = given + 2;
	const size_t n = strcspn(name, "=");
	const struct option_row *row;

	if (given[1] != '-')
		return take_letters(a, argv, argc, i, e);
	row = n > 1 ? arguments_row(a->verb, name, n) : NULL;
	if (!row)
		return unknown_option(a->verb, given, name, e);
	if (row->kind != OPTION_FLAG)
		return take_value(a, row, name[n] ? name + n + 1 : NULL, argv, argc, i, e);
	if (name[n])
		return ctl_error_set(e, CTL_USAGE, "%s: takes no value", given);
	a->values[a->n_values++] = (struct argument_value){row, ""};
	return 0;
}

bool arguments_is_option(const char *word)
{
	/* "-" alone is standard input, "-5" a number */
	return word[0] == '-' && word[1] != '\0' && (word[1] < '0' || word[1] > '9');
}

/*
 * The verb is the first word that is no option nor the value of one. *first: what comes after it;
 * *options: some may be there, as no "--" stood before it.
 */
static int find_verb(struct arguments *a, int argc, char **argv, int *first, bool *options,
	struct ctl_error *e)
{
	char *words[2];
	size_t n = 0, used = 0;

	int i = 0;
	*options = true;
	while (i < argc && *options && arguments_is_option(argv[i])) {
		if (strcmp(argv[i], "--") == 0)
			*options = false;
		else if (take_option(a, argv, argc, &i, e) != 0)
			return CTL_USAGE;
		i++;
	}
	for (int k = i; k < argc && n < 2; k++)
		words[n++] = argv[k];
	*first = i;
	if (n == 0)
		return 0;
	a->verb = verb_find(words, n, &used);
	if (!a->verb)
		return verb_unknown(words, n, e);
	*first = i + (int)used;
	return 0;
}

static int check_count(const struct arguments *a, struct ctl_error *e)
{
	const struct verb *v = a->verb;

	if (a->n_words < (size_t)v->min_args)
		return ctl_error_set(e, CTL_USAGE, "%s: %zu given, %s needed; see: gpt2ctl help %s",
			v->name, a->n_words, v->args, v->name);
	if (v->max_args >= 0 && a->n_words > (size_t)v->max_args)
		return ctl_error_set(e, CTL_USAGE,
			"%s: %s: one argument too many%s%s; see: gpt2ctl help %s", v->name,
			a->words[v->max_args], v->no_more ? ": " : "", v->no_more ? v->no_more : "",
			v->name);
	return 0;
}

/* Each letter of a word may be one. */
static size_t options_at_most(int argc, char **argv)
{
	size_t n = 1;

	for (int i = 0; i < argc; i++)
		n += argv[i][0] == '-' ? strlen(argv[i]) : 0;
	return n;
}

static int parse(struct arguments *a, int argc, char **argv, struct ctl_error *e)
{
	bool options;
	int first = 0;

	if (find_verb(a, argc, argv, &first, &options, e) != 0)
		return CTL_USAGE;
	if (!a->verb)
		return 0;
	for (int i = first; i < argc; i++) {
		if (options && strcmp(argv[i], "--") == 0) {
			options = false;
		} else if (options && arguments_is_option(argv[i])) {
			if (take_option(a, argv, argc, &i, e) != 0)
				return CTL_USAGE;
		} else {
			a->words[a->n_words++] = argv[i];
		}
	}
	if (arguments_has(a, "help") || arguments_has(a, "version"))
		return 0;
	return check_count(a, e);
}

/* An error before it is told as it asks for, too. */
static void find_json(struct arguments *a, int argc, char **argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0 && !arguments_has(a, "json"); i++)
		if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0)
			a->values[a->n_values++] =
				(struct argument_value){arguments_row(NULL, "json", 4), ""};
}

int arguments_parse(struct arguments *a, int argc, char **argv, struct ctl_error *e)
{
	int exit;

	*a = (struct arguments){0};
	a->words = calloc((size_t)argc + 1, sizeof(*a->words));
	a->values = calloc(options_at_most(argc, argv), sizeof(*a->values));
	if (!a->words || !a->values)
		return ctl_error_set(e, CTL_TRANSPORT, "out of memory");
	exit = parse(a, argc, argv, e);
	if (exit)
		find_json(a, argc, argv);
	return exit;
}

void arguments_finish(struct arguments *a)
{
	free(a->words);
	free(a->values);
	*a = (struct arguments){0};
}

bool arguments_has(const struct arguments *a, const char *option)
{
	return arguments_string(a, option, NULL) != NULL;
}

const char *arguments_string(const struct arguments *a, const char *option, const char *otherwise)
{
	for (size_t i = a->n_values; i > 0; i--) {
		if (strcmp(a->values[i - 1].row->name, option) == 0)
			return a->values[i - 1].text;
	}
	return otherwise;
}

int64_t arguments_int(const struct arguments *a, const char *option, int64_t otherwise)
{
	const char *text = arguments_string(a, option, NULL);
	int64_t value;

	return text && parse_int(text, &value) == 0 ? value : otherwise;
}

double arguments_real(const struct arguments *a, const char *option, double otherwise)
{
	const char *text = arguments_string(a, option, NULL);
	double value;

	return text && parse_real(text, &value) == 0 ? value : otherwise;
}

int arguments_id(const char *word, int64_t *id, struct ctl_error *e)
{
	int64_t value = 0;
	const int rc = parse_int(word, &value);

	if (rc == -ERANGE && word[0] != '-')
		return ctl_error_set(e, CTL_USAGE,
			"%.80s: no run has such an id, %" PRId64 " at most; see: gpt2ctl list",
			word, INT64_MAX);
	if (rc != 0 || value < 1 || word[0] == '0')
		return ctl_error_set(e, CTL_USAGE,
			"%.80s: not a run's id (a whole number from 1); see: gpt2ctl list",
			*word ? word : "\"\"");
	*id = value;
	return 0;
}
