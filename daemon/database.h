/*
 * database.h: the SQLite file of the store: opening it, its schema, and whether it is still where
 * it was. WAL, synchronous full.
 */
#ifndef GPT2D_DATABASE_H
#define GPT2D_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sqlite3;

/* The database and its write-ahead log: what is committed to files without a name is lost. */
enum { DATABASE_FILES = 2 };

struct database {
	struct sqlite3 *handle;
	char *path;
	/* private to database.c: which files the names stood for */
	struct database_mark {
		bool known;
		dev_t device;
		ino_t inode;
	} marks[DATABASE_FILES];
};

/*
 * d is zero. Makes the file when there is none, and brings its schema up to date. 0, or a negative
 * errno with error (store.h names them); database_close is due either way.
 */
int database_open(struct database *d, const char *path, char *error, size_t error_bytes);
void database_close(struct database *d);

/*
 * Whether the name of a file that is open stands for another file or for none. What is seen for the
 * first time is remembered.
 */
bool database_gone(struct database *d);

#endif
