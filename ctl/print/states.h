/* states.h: the states of a run, for who waits for it, is shown it, or completes a command line. */
#ifndef GPT2D_CTL_PRINT_STATES_H
#define GPT2D_CTL_PRINT_STATES_H

#include <stdbool.h>

#include "ctl/print/term.h"

/* As choices of an option. */
#define STATES_ENDED "done|failed|cancelled|interrupted"
#define STATES_ALL   "queued|starting|running|finishing|" STATES_ENDED

struct states_row {
	const char *name; /* NULL: the last row */
	const char *what;
	enum term_colour colour;
	int exit; /* of who has waited for the run, enum ctl_exit; -1: it has not ended */
};
extern const struct states_row states_table[];

/* Also of a segment's state: those of them that a run cannot be in are plain. */
enum term_colour states_colour(const char *name);
int states_exit(const char *name); /* -1 also of what is no state of a run */
/* Whether a run or a segment has ended, and is not done. */
bool states_broke_off(const char *name);

#endif
