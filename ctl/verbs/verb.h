/*
 * verb.h: a verb of gpt2ctl as a row: its name, options, arguments and function. The option parser,
 * `help`, the manual page, completion and the suggestion for a mistyped name all use it. Each verb
 * has a file, with the text that it prints; ctl/verb_table.c lists them.
 */
#ifndef GPT2D_CTL_VERBS_VERB_H
#define GPT2D_CTL_VERBS_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/link/client.h"
#include "ctl/print/output.h"
#include "proto/options.h"

/* The context of each verb besides its options. */
struct ctl {
	struct output output;
	struct client_options link;
};

struct verb {
	const char *name;                 /* one or two words */
	const char *args;                 /* as in the synopsis; "" if there are none */
	int min_args, max_args;           /* max_args -1: any number */
	const char *summary;              /* one line */
	const char *text;                 /* paragraphs, for help VERB and the manual page */
	const struct option_row *options; /* NULL: none of its own */
	/* Returns the exit status, enum ctl_exit; unless it is 0, main prints the error in e. */
	int (*run)(struct ctl *ctl, const struct options *args, struct ctl_error *e);
	bool unended; /* useless for ended runs: completion omits them */
};

/*
 * The name of an argument, or of an option's value, defines what shells complete: see the kinds in
 * ctl/completion.c (ID, FILE, DIR, ...). Words in lower case with | between them ("raw|headed") are
 * the choices. [...] is optional; the last may end in "...".
 */

extern const struct verb verb_submit, verb_status, verb_top, verb_list, verb_show, verb_follow,
	verb_wait, verb_cancel, verb_priority, verb_rerun, verb_artifacts, verb_export,
	verb_generate, verb_logs, verb_prune, verb_keep, verb_metrics, verb_compare, verb_judge,
	verb_tune, verb_data_prepare, verb_data_show, verb_data_verify, verb_import_deepspeed,
	verb_drain, verb_resume, verb_release, verb_warm, verb_shutdown, verb_version, verb_topo,
	verb_plan;

/* A run ID, 1 or more, from a word: 0, or CTL_USAGE with e. */
int verb_parse_id(const char *word, int64_t *id, struct ctl_error *e);

/* "30d", as the value of an option, to seconds: 0, or CTL_USAGE with e. */
int verb_parse_time(const char *option, const char *text, int64_t *seconds, struct ctl_error *e);

/* An error as in --json: {exit, message, data?, code?}. */
json_t *verb_error_json(const struct ctl_error *e);
/* Print e, and release it. main does so for the error of a verb. */
void verb_print_error(struct ctl *ctl, struct ctl_error *e);
/* The exit status of the two that says more about the cause. */
int verb_worse(int a, int b);
/* Asks on the terminal: whether the answer is "y" or "yes". A signal or the end of input is no. */
bool verb_confirm(struct ctl *ctl, const char *question, ...) __attribute__((format(printf, 2, 3)));

#endif
