/*
 * interrupt.h: SIGINT, SIGTERM and SIGHUP while something is waited for, or a file is written: they
 * end the wait, not the process, so that the user can be told what goes on, and nothing is left
 * behind. A SIGHUP that nohup has it ignore stays ignored. A process that hangs elsewhere, at an
 * output that nobody reads, ends 10 s later by the signal itself.
 */
#ifndef GPT2D_CTL_LINK_INTERRUPT_H
#define GPT2D_CTL_LINK_INTERRUPT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTERRUPT_FDS = 2 };

void interrupt_begin(void);
void interrupt_end(void); /* they end the process again, so does one that nobody was told of */
bool interrupt_seen(void);

/*
 * A key that ends the wait as a signal does: when fd can be read meanwhile, is_key reads and tells
 * whether it was that one. A terminal that has gone counts too. fd -1: none.
 */
void interrupt_on_key(int fd, bool (*is_key)(void *of), void *of);

/*
 * poll of at most INTERRUPT_FDS that signals can end: as poll, with -1 and EINTR.
 * timeout_ns -1: for ever.
 */
int interrupt_poll(struct pollfd *fds, size_t n, int64_t timeout_ns);

#endif
