/*
 * fate.h: what became of a request whose connection was lost, or that was not answered in time:
 * what to say, and where to look.
 */
#ifndef GPT2D_CTL_LINK_FATE_H
#define GPT2D_CTL_LINK_FATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/ctl.h"

struct fate_row;

struct fate {
	const struct fate_row *row; /* NULL: the request only looks */
	int64_t id;                 /* of the run it is about, or 0 */
	bool known;                 /* its verb says itself what became of it */
	bool submits;               /* a spec, at least to look at it */
};

/* Of a request before it is sent; params is borrowed for the call. */
void fate_of(const char *method, const json_t *params, struct fate *out);
/* Whether it changes something once it is taken. */
bool fate_changes(const struct fate *f);

/*
 * It could not be sent whole: CTL_NOT_NOW with e. before: another one changed something before it.
 * Or, of one that follows, the exit code that e has.
 */
int fate_untaken(const struct fate *f, bool before, struct ctl_error *e);
/* It was sent whole: where to look is added to e; its exit code. */
int fate_unknown(const struct fate *f, struct ctl_error *e);
/*
 * It was not answered in time, and e says so: gpt2d may still do it, and where to look is added.
 * unsent: it could not be sent whole, and so is not done; before as for fate_untaken. The exit
 * code.
 */
int fate_late(const struct fate *f, bool unsent, bool before, struct ctl_error *e);

#endif
