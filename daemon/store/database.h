/*
 * database.h: the SQLite file of the store: opening it, its schema, its write-ahead log, whether
 * its name still leads to it, and a check that changes nothing. A commit never checkpoints.
 */
#ifndef GPT2D_DAEMON_STORE_DATABASE_H
#define GPT2D_DAEMON_STORE_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sqlite3;

enum { DATABASE_SCHEMA = 4 };
/* The database and its write-ahead log: commits are lost when these files lose their names. */
enum { DATABASE_FILES = 2 };

enum { DATABASE_CHECK_MS = 500, DATABASE_BUSY_MS = 5000 };

struct database {
	struct sqlite3 *handle;
	char *path;
	int log_pages; /* after the last commit; 0 since a checkpoint */
	/* private to database.c: the identities of the files */
	struct database_mark {
		bool known;
		dev_t device;
		ino_t inode;
	} marks[DATABASE_FILES];
};

/*
 * d is zero. Creates the file if it does not exist, and upgrades its schema. A database that was
 * not closed is checked for at most DATABASE_CHECK_MS, because its log may belong to another
 * database, which SQLite does not notice. Every statement waits up to DATABASE_BUSY_MS for a lock
 * of another process. 0, or a negative errno with error (store_open names them); call
 * database_close in any case.
 */
int database_open(struct database *d, const char *path, char *error, size_t error_bytes);
void database_close(struct database *d);

/*
 * Copies the write-ahead log into the database, so that the next commit writes from the log's
 * start. Waits for no reader. Outside a transaction. 0 or a negative errno; an error loses nothing.
 */
int database_checkpoint(struct database *d);
bool database_log_is_long(const struct database *d); /* a checkpoint is due */
/* If the database is damaged, the write-ahead log stays when it is closed. */
void database_keep_log(struct database *d);

/*
 * Whether the name of an open file leads to another file or to none. The first call for a file
 * remembers it.
 */
bool database_gone(struct database *d);

struct database_contents {
	int64_t runs;
	int schema;    /* 0: it is empty */
	bool complete; /* the check completed in time */
};
/*
 * Checks a database without changing its files: without a lock, or as a reader if a gpt2d has it
 * open (in_use). 0, or a negative errno with error: -ENOENT: none, -EBADMSG: damaged, -EPROTO: from
 * another program or a newer gpt2d. path is absolute.
 */
int database_inspect(const char *path, bool in_use, int64_t within_ms,
	struct database_contents *out, char *error, size_t error_bytes);

#endif
