/*
 * address.h: the name under which clients find gpt2d. The socket is bound there at the start, and
 * again when somebody has removed or replaced it while gpt2d lives: that is noticed within 2 s.
 * Whose the name is, the lock beside it tells (place.h); a socket at which somebody else listens is
 * never taken away.
 */
#ifndef GPT2D_DAEMON_CONTROL_ADDRESS_H
#define GPT2D_DAEMON_CONTROL_ADDRESS_H

#include <stddef.h>

#include "daemon/config/place.h"

struct address;
struct daemon;
struct settings;

/* Who may connect, by settings. */
struct place_access address_access(const struct settings *s);

/* d->socket, the lock of which d holds: 0 with *fd, which is not listening yet, or a negative
 * errno with error. */
int address_create(
	struct daemon *d, int *fd, struct address **out, char *error, size_t error_bytes);
void address_destroy(struct address *a); /* takes NULL */

/* Look now, and say again what is in the way, if anything is. */
void address_check(struct address *a);
/* The socket's name goes, if it still stands for it, and is not looked at any more. */
void address_withdraw(struct address *a);

#endif
