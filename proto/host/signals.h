/* signals.h: the signals that a program inherits or receives from other processes. */
#ifndef GPT2D_PROTO_HOST_SIGNALS_H
#define GPT2D_PROTO_HOST_SIGNALS_H

#include <stdbool.h>

/*
 * Unblocks all signals, because a launcher may have blocked some and exec keeps the mask. Call it
 * at the start, before there is a second thread.
 */
void signals_unblock(void);

/*
 * Ignores each signal that another process may send and whose default action ends the process,
 * except SIGKILL, those that report a fault of this process (SIGSEGV, SIGABRT, ...), and those that
 * request its end: SIGTERM, SIGINT and SIGUSR1. A signal that has a handler keeps the handler. An
 * ignored SIGPIPE or SIGXFSZ becomes an error of a write.
 */
void signals_ignore(void);

/*
 * From here on this signal is only remembered: before there is an event for it, and after libevent
 * has restored the handler.
 */
void signals_hold(int number);
bool signals_came(int number); /* whether it came in that time */

#endif
