/*
 * link.h: the engine's line to gpt2d (fd 3). A thread of its own reads, writes and says
 * engine.alive every second, so that a long step neither looks like a hang nor is held up by a slow
 * reader. Messages go out in the order of the calls. Every function may be called from any thread.
 *
 * When gpt2d goes away (end of file, a broken line), link_receive and link_stop_asked say so; a
 * process that has not ended within LINK_ORPHAN_NS after that is ended with ENGINE_EXIT_ORPHAN.
 */
#ifndef GPT2D_ENGINE_LINK_H
#define GPT2D_ENGINE_LINK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/host/clock.h"
#include "proto/rpc.h"

#define LINK_ORPHAN_NS (5 * CLOCK_S_NS)

struct link;

/* 0, and fd, now non-blocking, is the link's; or a negative errno, and it is the caller's. */
int link_create(int fd, struct link **out);
/* Sends what is left, for two seconds at most. Takes NULL. */
void link_destroy(struct link *l);

/* A notification; steals params. Params that are no JSON end the link. */
void link_send(struct link *l, const char *method, json_t *params);
/* The same for what may be lost: dropped while a slow reader has a backlog. */
void link_send_lossy(struct link *l, const char *method, json_t *params);
/*
 * What engine.alive says besides: called on the link's thread, must not wait for anything. NULL:
 * nothing, from the return on.
 */
void link_set_vitals(struct link *l, json_t *(*vitals)(void *arg), void *arg);
/* engine.log */
void link_log(struct link *l, const char *level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * The next message, waited for: 0 and *out (released by rpc_clear), or -EPIPE when gpt2d is gone.
 */
int link_receive(struct link *l, struct rpc_message *out);

/*
 * The link's thread runs every 100 ms. Between the two calls: by how much its latest run, or a
 * suspension of the machine, held the process up, where that is more than LINK_STANDSTILL_NS; else
 * 0.
 */
#define LINK_STANDSTILL_NS (500 * CLOCK_MS_NS)
void link_watch_begin(struct link *l);
int64_t link_watch_end(struct link *l);

/* Whether segment.cancel for this segment, engine.exit or the end of gpt2d has come. */
bool link_stop_asked(struct link *l, int64_t run, int64_t segment);
/*
 * The state and the reason ("code: text") of that segment.cancel. Another rank may have it first:
 * waits for it for LINK_STOP_NS. False: it has not come.
 */
#define LINK_STOP_NS CLOCK_S_NS
struct link_stop {
	char state[16], reason[640];
};
bool link_stop_why(struct link *l, int64_t run, int64_t segment, struct link_stop *out);

#endif
