/* states.h: the states of a run, for waiting, printing and completion. */
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
	int exit; /* exit status of a wait for the run, enum ctl_exit; -1: it has not ended */
};
extern const struct states_row states_table[];

/* Also for a segment's state; states that only segments have are plain. */
enum term_colour states_colour(const char *name);
int states_exit(const char *name); /* also -1 for a state that runs do not have */
/* Whether a run or a segment has ended without being done. */
bool states_broke_off(const char *name);

#endif
