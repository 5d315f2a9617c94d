/*
 * failure.h: a store that is failing, for people: which file, the error, since when, and what to do
 * about it.
 */
#ifndef GPT2D_DAEMON_STORE_FAILURE_H
#define GPT2D_DAEMON_STORE_FAILURE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/store/store.h"

enum { FAILURE_TEXT_BYTES = 1024 }; /* fits a refusal */

/* A negative errno of a disk, a quota or a limit that lets nothing more be written. */
bool failure_is_full(int rc);

/* What to do where files may not be that large. */
extern const char failure_too_large[];

/* rc, path and advice of *out. It asks the file system: not for the loop. */
void failure_describe(const char *path, int rc, struct store_failure *out);

/* {path, errno, error, since, advice}, as protocol.h has it; JSON null: it is not failing. */
json_t *failure_json(struct store *s);

/*
 * Why the store refused with rc, a negative errno: "FILE: ERROR; WHAT TO DO". Without the last part
 * where the store fails no more, or for another reason.
 */
void failure_text(struct store *s, int rc, char out[FAILURE_TEXT_BYTES]);

#endif
