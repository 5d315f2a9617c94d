/* verb_table.h: all verbs of gpt2ctl, the options that each of them takes, and command lines. */
#ifndef GPT2D_CTL_VERB_TABLE_H
#define GPT2D_CTL_VERB_TABLE_H

#include "ctl/verbs/verb.h"

extern const struct verb verb_completion, verb_help;

extern const struct verb *const verbs[];
extern const size_t n_verbs;

/* Options that every verb takes, before or after its name. */
extern const struct option_row global_options[];

/*
 * The verb named by words[0], or by words[0] and words[1]; *used is the number of words. NULL: no
 * such verb.
 */
const struct verb *verb_table_find(const char *const *words, size_t n, size_t *used);
/* The verb of two words of which this is one, or NULL; the first of several. */
const struct verb *verb_table_find_half(const char *word);
/* The verb has two words, of which this is the first. */
bool verb_table_begins(const struct verb *verb, const char *word);
/* CTL_USAGE with e, which names the nearest verb. n is 1 or more. */
int verb_table_unknown(const char *const *words, size_t n, struct ctl_error *e);

/*
 * Read a command line, argv without the program's name: the verb (NULL: none was given), its
 * options and words. 0, or CTL_USAGE with e; options_finish(args) in both cases. With --help half a
 * verb is accepted: verb is NULL, and that half the only word.
 */
int verb_table_parse(
	int argc, char **argv, const struct verb **verb, struct options *args, struct ctl_error *e);

#endif
