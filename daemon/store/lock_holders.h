/*
 * lock_holders.h: which other processes have an SQLite database locked, for people who want to go
 * on.
 */
#ifndef GPT2D_DAEMON_STORE_LOCK_HOLDERS_H
#define GPT2D_DAEMON_STORE_LOCK_HOLDERS_H

#include <stddef.h>

/* A path that SQLite takes, which has 512 bytes at most, and the words around it. */
enum { LOCK_HOLDERS_BYTES = 640 };

/*
 * What to do about it: the processes by id and name, those first that keep others from writing; how
 * to find them where the kernel does not tell us. SQLite's own rule holds here, too: none of its
 * files is opened, as closing one would give up the locks of this process. out_bytes:
 * LOCK_HOLDERS_BYTES or more, lest it is cut.
 */
void lock_holders_advise(const char *database, char *out, size_t out_bytes);
/* The same of who is reading: not of who only has the database open. */
void lock_holders_advise_reading(const char *database, char *out, size_t out_bytes);

#endif
