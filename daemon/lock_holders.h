/*
 * lock_holders.h: which other processes have an SQLite database locked, for people who want to go
 * on.
 */
#ifndef GPT2D_LOCK_HOLDERS_H
#define GPT2D_LOCK_HOLDERS_H

#include <stddef.h>

/*
 * What to do about it: the processes by id and name, those first that keep others from writing; how
 * to find them where the kernel does not tell us. SQLite's own rule holds here, too: none of its
 * files is opened, as closing one would give up the locks of this process.
 */
void lock_holders_advise(const char *database, char *out, size_t out_bytes);

#endif
