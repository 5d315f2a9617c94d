/* database_lock.h: whether another process keeps gpt2d from opening or writing a database. */
#ifndef GPT2D_DAEMON_STORE_DATABASE_LOCK_H
#define GPT2D_DAEMON_STORE_DATABASE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether it does so all the time until within_ms are over, which is asked again and again. Nothing
 * is locked or changed. Not for a process that has the database open: to close one of its files
 * gives up the locks that SQLite has for it.
 */
bool database_lock_stays(const char *path, int64_t within_ms);

#endif
