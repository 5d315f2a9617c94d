/*
 * options.h: parses command lines with a table of options. An option is --NAME VALUE, --NAME=VALUE,
 * -L VALUE or -LVALUE; letters without a value may be joined (-nv). "--" ends the options.
 */
#ifndef GPT2D_PROTO_OPTIONS_H
#define GPT2D_PROTO_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind { OPTION_FLAG, OPTION_STRING, OPTION_CHOICE, OPTION_INT, OPTION_REAL };

struct option_row {
	const char *name; /* without dashes; NULL ends a table */
	char letter;      /* 0: none */
	enum option_kind kind;
	const char *arg; /* the name of the value; NULL for a flag */
	double min, max; /* OPTION_INT, OPTION_REAL */
	const char *help;
	bool many;           /* it has a value and may be given more than once */
	const char *choices; /* OPTION_CHOICE: "raw|headed"; NULL: the choices are in arg */
};

struct option_value {
	const struct option_row *row;
	const char *text; /* "" for a flag */
};

/*
 * The result. The strings belong to argv, the arrays to options_finish. The caller first sets
 * tables and help; the rest is zero. It may set another table between two calls of options_read.
 */
struct options {
	const struct option_row *tables[2]; /* searched in this order; either may be NULL */
	const char *help;                   /* the command that lists them: "gpt2d --help" */
	const char **words;                 /* the words that are not options */
	size_t n_words;
	struct option_value *values; /* in the order given */
	size_t n_values;
	bool ended; /* "--" was read */
};

/*
 * Parses argv from index first: to its end, or with until_word to the first word that is not an
 * option. Returns the index of the first argument that was not read, or -EINVAL with error.
 */
int options_read(struct options *o, int argc, char **argv, int first, bool until_word, char *error,
	size_t error_bytes);
void options_finish(struct options *o);

/* Whether the word is an option, or joined letters of options. "-" and "-5" are not. */
bool options_is_option(const char *word);
/* The row of a name of n bytes, or of a letter (n 1). NULL: unknown. */
const struct option_row *options_find(const struct options *o, const char *name, size_t n);

bool options_has(const struct options *o, const char *name);
/*
 * The last value of the option, or otherwise. options_read has checked numbers against their rows.
 */
const char *options_string(const struct options *o, const char *name, const char *otherwise);
/* All *n values of the option, in the order given: an array for n_values + 1, the caller's. */
const char **options_all(const struct options *o, const char *name, size_t *n);
int64_t options_int(const struct options *o, const char *name, int64_t otherwise);
double options_real(const struct options *o, const char *name, double otherwise);

/* Parses a text that is a whole number: 0, -ERANGE if it needs more than 64 bits, or -EINVAL. */
int options_parse_int(const char *text, int64_t *value);

/* "-c, --config FILE". Returns out. */
char *options_format(const struct option_row *row, char *out, size_t out_bytes);

#endif
