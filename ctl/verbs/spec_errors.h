/* spec_errors.h: the errors of a spec, found by gpt2ctl or by gpt2d, at their lines of the file. */
#ifndef GPT2D_CTL_VERBS_SPEC_ERRORS_H
#define GPT2D_CTL_VERBS_SPEC_ERRORS_H

#include "ctl/import/spec_draft.h"
#include "ctl/verbs/verb.h"
#include "proto/spec/spec.h"

struct spec_source {
	const char *name;           /* for messages: a file, "stdin", "run 7" */
	const char *text;           /* of the spec */
	size_t n;                   /* its bytes */
	const char *folder;         /* relative paths start from it; NULL: there are none */
	int64_t rerun_of;           /* the spec is that of a run, without a file; 0: it is not */
	int world;                  /* ranks it is for; 0: not known */
	const struct options *args; /* --set and --name */
	const struct spec_draft *draft; /* the text was made from it; NULL: from none */
};

/* Print the errors that spec_parse found. */
void spec_errors_report(
	struct output *o, const struct spec_source *source, const struct spec_errors *errors);
/*
 * Print gpt2d's rows {line, key, message}. Their lines are those of the text that gpt2d got, so the
 * keys are looked up in the options and in the file. arms: the spec's, or NULL. An error of a key
 * that arms share is printed once, with the arms unless it is in all of them.
 */
void spec_errors_report_rows(
	struct output *o, const struct spec_source *source, const json_t *arms, const json_t *rows);

#endif
