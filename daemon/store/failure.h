/*
 * failure.h: a store that is failing, for people: which file, the error, since when, and what to do
 * about it.
 */
#ifndef GPT2D_DAEMON_STORE_FAILURE_H
#define GPT2D_DAEMON_STORE_FAILURE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { FAILURE_TEXT_BYTES = 1024 }; /* fits a refusal */

enum { STORE_SILENT_S = 7, STORE_ADVICE_BYTES = 640 };
struct store_failure {
	/* A negative errno: -ESTALE: the files were removed or replaced; -EBADMSG: the database is
	 * damaged; -ETIMEDOUT: the thread has been busy with one thing for STORE_SILENT_S. */
	int rc;
	int64_t since_ns; /* UTC */
	char path[PATH_MAX];
	char advice[STORE_ADVICE_BYTES]; /* what to do about it */
};

/* A negative errno of a disk, a quota or a limit that lets nothing more be written. */
bool failure_is_full(int rc);

/* What to do where files may not be that large. */
extern const char failure_too_large[];

/* rc, path and advice of *out. It asks the file system: not for the loop. */
void failure_describe(const char *path, int rc, struct store_failure *out);

#endif
