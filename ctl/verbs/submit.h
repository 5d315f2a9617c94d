/* submit.h: what `submit` shares with `rerun`: its options, and what is done with a spec. */
#ifndef GPT2D_CTL_VERBS_SUBMIT_H
#define GPT2D_CTL_VERBS_SUBMIT_H

#include <stddef.h>

#include "ctl/arguments.h"

struct submit_source {
	const char *name;   /* for messages: a file, "stdin", "run 7" */
	const char *text;   /* of the spec */
	size_t n;           /* bytes of it */
	const char *folder; /* relative paths start from it; NULL: there are none */
	int64_t rerun_of;   /* 0: of none */
};

extern const struct option_row submit_options[];

/* Options that do not go together: 0, or CTL_USAGE, which has been told. */
int submit_check(struct ctl *ctl, const struct arguments *args);
/* Check it, with --set, and send it as the options say: the exit code; all is told. */
int submit_send(struct ctl *ctl, const struct arguments *args, const struct submit_source *source);

#endif
