/*
 * interrupt.h: SIGINT, SIGTERM and SIGHUP during a wait or while a file is written: they end the
 * wait, not the process, so that gpt2ctl can print the state and clean up. A SIGHUP that nohup
 * ignores stays ignored. If the process hangs elsewhere, such as at an output without a reader, the
 * signal itself ends it 10 s later.
 */
#ifndef GPT2D_CTL_LINK_INTERRUPT_H
#define GPT2D_CTL_LINK_INTERRUPT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTERRUPT_FDS = 2 };

void interrupt_begin(void);
void interrupt_end(void); /* signals end the process again, also one that was not reported yet */
bool interrupt_seen(void);

/*
 * A key that ends the wait as a signal does: when fd is readable, is_key reads and returns whether
 * it was that key. A closed terminal counts too. fd -1: none.
 */
void interrupt_on_key(int fd, bool (*is_key)(void *of), void *of);

/*
 * poll of at most INTERRUPT_FDS that signals can end: as poll, with -1 and EINTR. timeout_ns -1: no
 * time limit.
 */
int interrupt_poll(struct pollfd *fds, size_t n, int64_t timeout_ns);

#endif
