/* signals.h: what of signals a program gets from who started it. */
#ifndef GPT2D_PROTO_HOST_SIGNALS_H
#define GPT2D_PROTO_HOST_SIGNALS_H

/*
 * At the start, while there is one thread: none is blocked. A mask stays over exec, and a launcher
 * that has blocked signals for itself does not mean that the programs it starts hear none.
 */
void signals_unblock(void);

#endif
