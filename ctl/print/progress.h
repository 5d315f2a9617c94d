/*
 * progress.h: the progress of a followed run, or of gpt2ctl's own work. On a terminal one line at
 * the bottom that is redrawn, with less text beside the bar if the terminal is narrow. Elsewhere a
 * plain line at each tenth of a single run, and every PROGRESS_QUIET_S seconds.
 */
#ifndef GPT2D_CTL_PRINT_PROGRESS_H
#define GPT2D_CTL_PRINT_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/print/term.h"

enum { PROGRESS_QUIET_S = 10, PROGRESS_DRAWS_PER_S = 20 };

struct progress {
	const struct term *term;
	/* longest text beside the bar so far, long and brief: the bar keeps its width */
	size_t widest[2];
	bool drawn;                   /* the bar is on the terminal's last line */
	int64_t drawn_ns, printed_ns; /* monotonic; printed: -1: no step was seen yet */
	int64_t printed_segment, printed_tenth;
};

void progress_init(struct progress *p, const struct term *term);
/*
 * step: the object of an EVENT_STEP, with the run's "id" and "name". now_ns: the monotonic clock.
 */
void progress_show(struct progress *p, const json_t *step, int64_t now_ns);
/* The fraction of a run that is trained, from the same object. */
double progress_fraction(const json_t *step);

/* Work of gpt2ctl itself. */
struct progress_work {
	const char *name; /* what is made */
	const char *unit; /* of items: "tok"; NULL: bytes */
	int64_t items;    /* made so far */
	double fraction;  /* fraction of the work; below 0: not known */
	double seconds;   /* since the start */
};
/* As progress_show; without a terminal a line every PROGRESS_QUIET_S seconds. */
void progress_show_work(struct progress *p, const struct progress_work *w, int64_t now_ns);

/* Remove the bar before other output, or at the end. */
void progress_clear(struct progress *p);

#endif
