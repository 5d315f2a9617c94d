/*
 * database.h: the SQLite file of the store: opening it, its schema, and whether it is still where
 * it was. WAL, synchronous full; a commit itself never checkpoints.
 */
#ifndef GPT2D_DAEMON_STORE_DATABASE_H
#define GPT2D_DAEMON_STORE_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sqlite3;
struct wal_index;

/* The database and its write-ahead log: what is committed to files without a name is lost. */
enum { DATABASE_FILES = 2 };

/*
 * Pages of the write-ahead log from which on it is checkpointed: when there is nothing else to do,
 * and at the latest. A submission writes about ten pages of 4 KiB: at 4,096 it is one of some 400
 * that may find the store busy with that.
 */
enum { DATABASE_WAL_IDLE = 1000, DATABASE_WAL_FULL = 4096 };
/* From so many on (64 MiB) it is looked at whether another process keeps it from beginning anew. */
enum { DATABASE_WAL_HELD = 4 * DATABASE_WAL_FULL };

enum { DATABASE_LOOK_MS = 500, DATABASE_BUSY_MS = 5000 };

struct database {
	struct sqlite3 *handle;
	char *path;
	int wal_pages;  /* after the last commit; 0 since a checkpoint */
	int held_pages; /* of a log that others keep from beginning anew, by then; or 0 */
	bool reserved;  /* database_reserve has no more to do */
	struct wal_index *index;
	/* private to database.c: which files the names stood for */
	struct database_mark {
		bool known;
		dev_t device;
		ino_t inode;
	} marks[DATABASE_FILES];
};

/*
 * d is zero. Makes the file when there is none, and brings its schema up to date. One that was not
 * closed is looked at for at most DATABASE_LOOK_MS: its log may be that of another database, which
 * SQLite does not notice. Whoever has it locked is waited for, DATABASE_BUSY_MS, here and with each
 * statement. 0, or a negative errno with error (store.h names them); database_close is due either
 * way.
 */
int database_open(struct database *d, const char *path, char *error, size_t error_bytes);
/* The schema that is in it, 0 for none as yet; an error as store_sql's, or -EPROTO with error when
 * it is not one that this gpt2d knows. */
int database_version(struct sqlite3 *db, int *out, char *error, size_t error_bytes);
/* Whether the tables of the present schema are there, whole: 0, or -EBADMSG with error. */
int database_tables(struct sqlite3 *db, char *error, size_t error_bytes);
void database_close(struct database *d);

/* Statements end with SQLITE_INTERRUPT once *until_ns of the monotonic clock has passed: it must
 * live until this is taken back with NULL. */
void database_deadline(struct sqlite3 *db, int64_t *until_ns);
enum { DATABASE_FOUND_BYTES = 256 };
/* The first thing in the whole file that is wrong, or "ok". An error as store_sql's. */
int database_first_fault(struct sqlite3 *db, char found[DATABASE_FOUND_BYTES]);

/*
 * Moves what the write-ahead log holds into the database, if it holds that many pages, so that the
 * next commit writes from its start. Outside a transaction. An error loses nothing: the log grows,
 * and it is tried again after another commit. One of DATABASE_WAL_HELD pages, or that was held,
 * whatever pages is, gives back its room, unless others read of it: then it is held.
 */
void database_checkpoint(struct database *d, int pages);

/*
 * Makes the file of the write-ahead log longer, by a piece a call, up to what DATABASE_WAL_FULL
 * pages take: a commit into a file that need not grow writes nothing but its pages, not the inode
 * too, and finds room on a disk that has become full. Only where the disk has much more room than
 * that; where it is not possible commits make the file longer, as they need it.
 */
void database_reserve(struct database *d);

/*
 * The disk, or a quota of it, was found full (full: which, a negative errno). What the write-ahead
 * log holds is moved into the database, whereupon the next commit writes from its start; its file
 * gives back its room where it has much, but on a large disk, for which database_reserve has made
 * it long. Outside a transaction. 0; -ENODATA: it has nothing to give; or a negative errno: one of
 * a full disk where the database finds no room to grow, and more than DATABASE_LOG_LONG bytes would
 * be given back if it did.
 */
enum { DATABASE_LOG_LONG = 2 << 20 };
int database_give_back(struct database *d, int full);

/* After a commit that failed: whether all of it may have got into the write-ahead log. */
bool database_unsure(const struct database *d);

/* Of a damaged one: what its write-ahead log holds stays there when it is closed. */
void database_leave(struct database *d);

/* Room, in bytes, that a probe asks for: a submission takes some ten pages. */
enum { DATABASE_PROBE = 64 << 10 };

/*
 * Writes a little that says nothing. 0, or what is in the way, a negative errno. Waits for nobody
 * who has the database locked.
 */
int database_probe(struct database *d);

/*
 * Whether the name of a file that is open stands for another file or for none. What is seen for the
 * first time is remembered.
 */
bool database_gone(struct database *d);
/* Whether the disk gives the file's beginning at all, or what is left of it. */
bool database_reads(const struct database *d);

#endif
