/*
 * verb.h: a verb of gpt2ctl as a row: what it is called, takes and does. Parsing, `help`, the
 * manual page and the suggestion for a mistyped name all come from it. One verb per file; verbs.c
 * lists them.
 */
#ifndef GPT2D_CTL_VERBS_VERB_H
#define GPT2D_CTL_VERBS_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ctl;
struct ctl_error;
struct arguments;

enum option_kind { OPTION_FLAG, OPTION_STRING, OPTION_CHOICE, OPTION_INT, OPTION_REAL };

struct option_row {
	const char *name; /* without dashes; NULL ends a table */
	char letter;      /* 0: none */
	enum option_kind kind;
	const char *arg; /* what the value is called; NULL for a flag */
	double min, max; /* OPTION_INT, OPTION_REAL */
	const char *help;
	bool many;           /* it has a value and may be given more than once */
	const char *choices; /* OPTION_CHOICE: "raw|headed"; NULL: arg is that itself */
};

struct verb {
	const char *name;                 /* one or two words */
	const char *args;                 /* as the synopsis shows them, "" when there are none */
	int min_args, max_args;           /* max_args -1: any number */
	const char *summary;              /* one line */
	const char *text;                 /* paragraphs, for help VERB and the manual page */
	const struct option_row *options; /* NULL: none of its own */
	int (*run)(struct ctl *ctl, const struct arguments *args);
	const char *no_more; /* why a word more than max_args is none; NULL: nothing to say */
	bool unended;        /* it is of no use for runs that have ended: they are not completed */
};

extern const struct verb *const verbs[];
extern const size_t n_verbs;

/*
 * What a verb's args and an option's arg are called says what may stand there, and shells complete
 * by it: see the kinds in complete.c (ID, FILE, DIR, ...); words in lower case with | between
 * ("raw|headed") are themselves the choices. [...] may be left out, the last may end in "...".
 */

/* Options that every verb takes, before or after its name. */
extern const struct option_row global_options[];

extern const struct verb verb_top;
extern const struct verb verb_submit, verb_status, verb_list, verb_show, verb_follow, verb_wait,
	verb_cancel, verb_priority, verb_rerun, verb_artifacts, verb_logs, verb_prune, verb_keep,
	verb_metrics, verb_compare, verb_data_prepare, verb_drain, verb_resume, verb_release,
	verb_warm, verb_shutdown, verb_completion, verb_version, verb_help;

/* The verb called by words[0] or words[0] words[1]; *used is how many words it took. NULL: no such
 * verb. */
const struct verb *verb_find(char *const *words, size_t n, size_t *used);
/* The verb of two words of which this is one, or NULL. */
const struct verb *verb_find_half(const char *word);
/* CTL_USAGE, with e: words, of which there is one at least, call no verb; which one is near. */
int verb_unknown(char *const *words, size_t n, struct ctl_error *e);

#endif
