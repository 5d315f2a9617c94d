/* spec_source.h: a spec as a file or a run has it: loading, and its errors at their lines. */
#ifndef GPT2D_CTL_VERBS_SPEC_SOURCE_H
#define GPT2D_CTL_VERBS_SPEC_SOURCE_H

#include "ctl/import/spec_draft.h"
#include "ctl/verbs/verb.h"
#include "proto/spec/spec.h"

struct spec_source {
	const char *name; /* for messages: a file, "stdin", "run 7" */
	const char *text; /* of the spec */
	size_t n;         /* its bytes */
	/* relative paths start from it; NULL: relative paths are errors */
	const char *folder;
	int64_t rerun_of;               /* ID of a run whose spec it is, without a file; 0: none */
	int world;                      /* its number of ranks; 0: not known */
	const struct options *args;     /* --set and --name */
	const struct spec_draft *draft; /* the DeepSpeed file of the text; NULL: none */
};

/*
 * The spec named by the first word, a file or "-": 0, then spec_source_unload(source), or CTL_USAGE
 * with e.
 */
int spec_source_load(const struct options *args, struct spec_source *source, struct ctl_error *e);
void spec_source_unload(struct spec_source *source);

/* Prints the errors of spec_parse. */
void spec_source_report(
	struct output *o, const struct spec_source *source, const struct spec_errors *errors);
/*
 * Prints gpt2d's rows {line, key, message}. Their lines refer to the text that gpt2d received, so
 * the keys are looked up in the options and in the file. arms: the spec's, or NULL. An error that
 * arms share is printed once, with the names of the arms unless all have it.
 */
void spec_source_report_rows(
	struct output *o, const struct spec_source *source, const json_t *arms, const json_t *rows);

#endif
