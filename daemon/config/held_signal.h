/*
 * held_signal.h: signals that must not end the process while there is no event for them: before it
 * is made, and after it is freed, when libevent puts back what was there.
 */
#ifndef GPT2D_DAEMON_CONFIG_HELD_SIGNAL_H
#define GPT2D_DAEMON_CONFIG_HELD_SIGNAL_H

#include <stdbool.h>

/* From here on this signal is remembered, and does nothing else. */
void held_signal_hold(int number);
/* Whether it came while it was held. */
bool held_signal_came(int number);

#endif
