/*
 * progress.h: how far a followed run is, or work of gpt2ctl's own. On a terminal one line that is
 * drawn again and again at the bottom, with less beside the bar where it is narrow; elsewhere a
 * plain line at each tenth of a single run, and every PROGRESS_QUIET_S seconds.
 */
#ifndef GPT2D_CTL_PRINT_PROGRESS_H
#define GPT2D_CTL_PRINT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "ctl/print/term.h"

enum { PROGRESS_QUIET_S = 10, PROGRESS_DRAWS_PER_S = 20 };

struct progress {
	const struct term *term;
	size_t widest[2]; /* text beside the bar so far, long and brief: the bar keeps its width */
	bool drawn;       /* the bar stands on the terminal's last line */
	int64_t drawn_ns, printed_ns; /* monotonic; printed: -1: no step was seen yet */
	int64_t printed_segment, printed_tenth;
};

struct progress_step {
	const char *name; /* of the run */
	int64_t id;
	const char *arm;           /* "" when there is one only */
	int64_t segment, segments; /* from 1; how many */
	int64_t step, steps;       /* done and planned in the segment */
	double loss, tokens_per_s; /* NaN: not known */
	double eta_s;              /* until the run is trained, as gpt2d has it; NaN likewise */
};

void progress_init(struct progress *p, const struct term *term);
/* now_ns: the monotonic clock. */
void progress_show(struct progress *p, const struct progress_step *s, int64_t now_ns);

/* Work that gpt2ctl does itself. */
struct progress_work {
	const char *name; /* what is made */
	const char *unit; /* of items: "tok"; NULL: bytes */
	int64_t items;    /* made so far */
	double fraction;  /* of the work that is done; below 0: not known */
	double seconds;   /* since the begin */
};
/* As progress_show; elsewhere than on a terminal a line every PROGRESS_QUIET_S seconds. */
void progress_show_work(struct progress *p, const struct progress_work *w, int64_t now_ns);

/* Take the bar away before something else is printed, or at the end. */
void progress_clear(struct progress *p);

#endif
