/*
 * database_look.h: whether a database can be opened by this gpt2d and is whole, without changing
 * any of its files: of one that no gpt2d has open without a lock, of another as one who reads it.
 */
#ifndef GPT2D_DAEMON_STORE_DATABASE_LOOK_H
#define GPT2D_DAEMON_STORE_DATABASE_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct database_look {
	int64_t runs;
	int schema;    /* 0: it is empty as yet */
	bool complete; /* it was looked at to the end within the time */
};

/*
 * 0, or a negative errno with error: -ENOENT for none, -EBADMSG for a damaged one, -EPROTO for one
 * that another program or a newer gpt2d made. in_use: a gpt2d has it open. path is absolute.
 */
int database_look(const char *path, bool in_use, int64_t within_ms, struct database_look *out,
	char *error, size_t error_bytes);

#endif
