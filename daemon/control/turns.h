/*
 * turns.h: who has something to be done takes turns with all others who have, in the order in which
 * they came, a few milliseconds at a time. Between two of these the loop looks at everything else:
 * engines, timers, signals. Nobody waits for more than one turn of each of the others.
 */
#ifndef GPT2D_DAEMON_CONTROL_TURNS_H
#define GPT2D_DAEMON_CONTROL_TURNS_H

#include <stdbool.h>
#include <sys/queue.h>

struct event_base;
struct turns;

/* Lies in what takes the turn; all zero but for taken. */
struct turn {
	TAILQ_ENTRY(turn) link;
	bool waiting;
	void (*taken)(struct turn *turn); /* may end what it lies in, and want another one */
};

/* NULL without memory. */
struct turns *turns_create(struct event_base *base);
void turns_destroy(struct turns *turns); /* when nobody waits; takes NULL */

/* In a later round of the loop; once, however often it is asked for. */
void turns_want(struct turns *turns, struct turn *turn);
void turns_forget(struct turns *turns, struct turn *turn);

#endif
