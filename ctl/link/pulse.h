/*
 * pulse.h: whether gpt2d lives, while one waits for what may rightly take for ever. Where nothing
 * has come for PULSE_QUIET_S it is asked something small. Where nothing has come PULSE_SILENT_S
 * later that is told, once, and once that it answers again; it is waited for all the while. A run
 * with long steps is no silence, nor is a queue that stands for hours.
 *
 * Time in which this process did not look hardly counts: it may have been stopped together with
 * gpt2d, as a container is.
 */
#ifndef GPT2D_CTL_LINK_PULSE_H
#define GPT2D_CTL_LINK_PULSE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl/link/endpoint.h"

enum { PULSE_QUIET_S = 4, PULSE_SILENT_S = 12 };

struct pulse {
	const struct endpoint *endpoint;
	FILE *to;                  /* who is told; NULL: nobody */
	void (*before)(void *arg); /* called before that; or NULL */
	void *arg;
	int fd;                    /* of the connection beside on which it was asked; -1: none */
	int64_t quiet_ns;          /* it need not be asked before this */
	bool wanted, asked;        /* an answer, as nothing has come since; it has been asked for */
	int64_t silent_ns, seen_ns; /* since it is wanted, as counted when it was seen to */
	bool told;
};

void pulse_begin(struct pulse *p, const struct endpoint *endpoint, FILE *to);
void pulse_end(struct pulse *p);

/* Something came from gpt2d. */
void pulse_heard(struct pulse *p);
/*
 * See to it, after what has come was read: when to do so again at the latest (clock_mono_ns; -1: no
 * need). While it is wanted and not asked the caller is to ask, and to set asked.
 */
int64_t pulse_see(struct pulse *p);
/*
 * Ask on a connection beside, for where the caller's own has a request to finish first; sets asked.
 * Where that cannot be reached for other reasons than that gpt2d lets nobody in, nothing is known.
 */
void pulse_ask_beside(struct pulse *p);
void pulse_read_beside(struct pulse *p); /* fd is readable */

#endif
