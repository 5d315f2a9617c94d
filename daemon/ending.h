/*
 * ending.h: how gpt2d ends in good order: the run in progress has its time, the engines go, what
 * became of runs is written, the last requests are answered.
 */
#ifndef GPT2D_DAEMON_ENDING_H
#define GPT2D_DAEMON_ENDING_H

#include <stdbool.h>

struct daemon;
struct event;

/* The event of struct daemon's turn: a step of the end, whenever it is active. NULL: no memory. */
struct event *ending_event(struct daemon *d);
/* End in good order; now: interrupt the run in progress, else wait for it. May be called again. */
void ending_begin(struct daemon *d, bool now);
/* Something that the end waits for may have happened; nothing when gpt2d goes on. */
void ending_turn(struct daemon *d);
/* Who waits for a check is told, while it can still be told. */
void ending_checks(struct daemon *d);

#endif
