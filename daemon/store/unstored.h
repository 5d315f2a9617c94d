/*
 * unstored.h: while the store cannot be written it holds what was true before; what has happened to
 * a run since is known in memory only, and is put into what the store answers. Changes nothing
 * while the store can be written.
 */
#ifndef GPT2D_DAEMON_STORE_UNSTORED_H
#define GPT2D_DAEMON_STORE_UNSTORED_H

#include <jansson.h>

struct daemon;

/* The result of "show": the run, and its transitions but its end. Segments are as on disk. */
void unstored_show(const struct daemon *d, json_t *result);
/* That of "logs" of a run. */
void unstored_logs(const struct daemon *d, json_t *result);
/* That of "list"; state: enum run_state that was asked for, or -1. */
void unstored_list(const struct daemon *d, json_t *result, int state);

#endif
