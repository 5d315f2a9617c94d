/* signals.h: the signals that a program inherits or receives from other processes. */
#ifndef GPT2D_PROTO_HOST_SIGNALS_H
#define GPT2D_PROTO_HOST_SIGNALS_H

#include <stdbool.h>

/*
 * Unblocks all signals. Call it at the start, before there is a second thread. exec keeps the mask
 * of a launcher that blocked signals for itself.
 */
void signals_unblock(void);

/*
 * Ignores each signal that another process may send and whose default action ends the process,
 * except SIGKILL, those that report a fault of this process (SIGSEGV, SIGABRT, ...), and those that
 * ask it to end: SIGTERM, SIGINT and SIGUSR1. A signal that has a handler keeps the handler. An
 * ignored SIGPIPE or SIGXFSZ becomes an error of a write.
 */
void signals_ignore(void);

/*
 * From here on the process remembers this signal and does nothing else: before there is an event
 * for it, and after libevent has put the handler back.
 */
void signals_hold(int number);
bool signals_came(int number); /* while it was held */

#endif
