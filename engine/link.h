/*
 * link.h: the engine's connection to gpt2d (fd 3). A separate thread reads, writes and sends
 * engine.alive every second, so that a long step does not look like a hang and does not wait for a
 * slow reader. Messages are sent in the order of the calls. Every function may be called from any
 * thread.
 *
 * When gpt2d ends (end of file, a broken connection), link_receive and link_stop_asked report it; a
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

/*
 * Who reads: the link's thread, so that link_stop_asked knows what arrived; or link_receive itself,
 * which answers sooner, but sees nothing of gpt2d between two calls.
 */
enum link_reader { LINK_THREAD_READS, LINK_RECEIVER_READS };
/* 0, and the link owns fd, now non-blocking; or a negative errno, and the caller still owns fd. */
int link_create(int fd, enum link_reader reader, struct link **out);
/* Sends the rest, for two seconds at most. Takes NULL. */
void link_destroy(struct link *l);

/* Sends a notification; takes params. Params that are not JSON end the link. */
void link_send(struct link *l, const char *method, json_t *params);
/* The same for messages that may be lost: dropped while a slow reader has a backlog. */
void link_send_lossy(struct link *l, const char *method, json_t *params);
/*
 * Adds content to engine.alive: called on the link's thread, must not wait. NULL: nothing, from the
 * return on.
 */
void link_set_vitals(struct link *l, json_t *(*vitals)(void *arg), void *arg);
/* engine.log */
void link_log(struct link *l, const char *level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Waits for the next message: 0 and *out (released by rpc_clear), or -EPIPE if gpt2d has ended. */
int link_receive(struct link *l, struct rpc_message *out);

/*
 * The link's thread runs every 100 ms. Between the two calls: for how long its latest run, or a
 * suspension of the machine, delayed the process, if more than LINK_STANDSTILL_NS; else 0.
 */
#define LINK_STANDSTILL_NS (500 * CLOCK_MS_NS)
void link_watch_begin(struct link *l);
int64_t link_watch_end(struct link *l);

/* Whether segment.cancel for this segment, engine.exit or the end of gpt2d was received. */
bool link_stop_asked(struct link *l, int64_t run, int64_t segment);
/*
 * The state and the reason ("code: text") of that segment.cancel. Another rank may receive it
 * first, so this waits up to LINK_STOP_NS for it. False: not received.
 */
#define LINK_STOP_NS CLOCK_S_NS
struct link_stop {
	char state[16], reason[640];
};
bool link_stop_why(struct link *l, int64_t run, int64_t segment, struct link_stop *out);

#endif
