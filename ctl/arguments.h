/* arguments.h: a command line taken apart by the option tables of verb.h. */
#ifndef GPT2D_CTL_ARGUMENTS_H
#define GPT2D_CTL_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/ctl.h"
#include "ctl/verbs/verb.h"

struct argument_value {
	const struct option_row *row;
	const char *text; /* "" for a flag */
};

struct arguments {
	const struct verb *verb;
	char **words; /* what is not an option, the verb's name taken off; points into argv */
	size_t n_words;
	struct argument_value *values; /* in the order given */
	size_t n_values;
};

/*
 * argv without the program's name. Finds the verb, checks options, values and counts: 0, or
 * CTL_USAGE with e. A command line without a verb gives verb NULL. Finish in both cases.
 */
int arguments_parse(struct arguments *a, int argc, char **argv, struct ctl_error *e);
void arguments_finish(struct arguments *a);

bool arguments_has(const struct arguments *a, const char *option);
/* The last value given, or otherwise. Integers and reals were checked against their rows. */
const char *arguments_string(const struct arguments *a, const char *option, const char *otherwise);
int64_t arguments_int(const struct arguments *a, const char *option, int64_t otherwise);
double arguments_real(const struct arguments *a, const char *option, double otherwise);

/* Is the word one of options, or letters of them? */
bool arguments_is_option(const char *word);
/* The row of an option, by its name or its letter (n 1), the verb's or a global one; NULL: none. */
const struct option_row *arguments_row(const struct verb *verb, const char *name, size_t n);

/* A run's id, 1 or more, from a word: 0, or CTL_USAGE with e. */
int arguments_id(const char *word, int64_t *id, struct ctl_error *e);

#endif
