/* keep.h: a run that is left alone when old ones are removed, or not any more. */
#ifndef GPT2D_DAEMON_RUNS_KEEP_H
#define GPT2D_DAEMON_RUNS_KEEP_H

#include <jansson.h>

struct reply;
struct daemon;

/* The method "keep"; it answers the request, now or later. */
void keep_request(struct daemon *d, struct reply *reply, json_t *params);

#endif
