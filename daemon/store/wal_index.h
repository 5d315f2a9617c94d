/*
 * wal_index.h: room for the index of SQLite's write-ahead log, the file -shm that it maps. SQLite
 * makes that file longer by a byte in each 4 KiB; where the file system's blocks are smaller, the
 * others are holes, and on a full disk a store into one of them is SIGBUS. With this, it has all of
 * its blocks before it is used, or the error is that of any write without room.
 */
#ifndef GPT2D_DAEMON_STORE_WAL_INDEX_H
#define GPT2D_DAEMON_STORE_WAL_INDEX_H

struct sqlite3;
struct wal_index;

/*
 * Of a database that is open and whose log was not looked at yet. 0, with *out for
 * wal_index_destroy (NULL: its index is in no file), or -ENOMEM.
 */
int wal_index_guard(struct sqlite3 *db, struct wal_index **out);
/* Once the database is closed, not before. Takes NULL. */
void wal_index_destroy(struct wal_index *w);

#endif
