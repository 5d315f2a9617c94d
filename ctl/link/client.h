/*
 * client.h: a connection to gpt2d: the socket, hello, requests and the events of followed runs.
 * Every wait has a deadline, or tells where gpt2d says nothing. Signals that end a wait, that for a
 * reply included, are interrupt.h's.
 */
#ifndef GPT2D_CTL_LINK_CLIENT_H
#define GPT2D_CTL_LINK_CLIENT_H

#include <jansson.h>
#include <stdint.h>

#include "ctl/ctl.h"

enum {
	CLIENT_CONNECT_S = 5,
	CLIENT_NOTICE_S = 2, /* then stderr tells that gpt2d is waited for */
	CLIENT_STILL_S = 5,  /* the same of a reply, which may rightly take that long */
	CLIENT_HELLO_S = 10,
	CLIENT_REPLY_S = 30,
	CLIENT_CHECK_S = 600, /* submit, dry-run: the daemon may read all of the data first */
};

struct client;

/*
 * Connect and say hello, once more where gpt2d goes away before it answers: 0, or CTL_NO_DAEMON,
 * CTL_NOT_ALLOWED, CTL_NOT_NOW, CTL_VERSION_MISMATCH, CTL_TRANSPORT, CTL_TIMEOUT with e. The
 * daemon's answer to hello is client_hello().
 */
int client_open(const struct ctl *ctl, struct client **out, struct ctl_error *e);
/* The same; no wait on this connection, that for hello included, goes on after until_ns. */
int client_open_until(
	const struct ctl *ctl, int64_t until_ns, struct client **out, struct ctl_error *e);
void client_close(struct client *c); /* takes NULL */
/* What stderr says instead when the answer to the next request takes long; borrowed. */
void client_expect(struct client *c, const char *what);
/* Called before stderr tells of a gpt2d that says nothing: to take away what stands there. */
void client_before_notice(struct client *c, void (*before)(void *arg), void *arg);
bool client_is_silent(const struct client *c); /* that was told, and nothing has come since */
const json_t *client_hello(const struct client *c);
enum { CLIENT_START_BYTES = 80 };
/*
 * Has start name this start of gpt2d. Whether it named another one ("": none), which has numbered
 * events by itself.
 */
bool client_note_start(const struct client *c, char start[CLIENT_START_BYTES]);
/* The connection ended or broke while something was sent or waited for. */
bool client_lost(const struct client *c);
/* The last request could not be sent whole, for that or in its time: it has not been taken. */
bool client_untaken(const struct client *c);
/* To be polled for reading with other things, once client_next says that nothing is left. */
int client_fd(const struct client *c);

/*
 * Send method and wait for its reply: 0 and *result (owned by the caller), or an exit code with e,
 * by the daemon's error code, or by fate.h where the connection was lost; CTL_CANCELLED after a
 * signal. params is stolen. Events that arrive meanwhile are kept for client_next.
 */
int client_request(struct client *c, const char *method, json_t *params, int deadline_s,
	json_t **result, struct ctl_error *e);

/*
 * The same, for what comes about when it does, or for what is asked again and again: for as long
 * as the connection may wait at all; where gpt2d says nothing meanwhile, stderr tells (pulse.h).
 */
int client_await(struct client *c, const char *method, json_t *params, json_t **result,
	struct ctl_error *e);

/* As client_request on a connection of its own, with CLIENT_REPLY_S. */
int client_ask(const struct ctl *ctl, const char *method, json_t *params, json_t **result,
	struct ctl_error *e);

enum client_news {
	CLIENT_EVENT,       /* *event, *params */
	CLIENT_QUIET,       /* the deadline passed */
	CLIENT_INTERRUPTED, /* a signal, see interrupt.h */
	CLIENT_LOST,        /* the connection ended or broke, e says how */
};
/*
 * Wait for an event until deadline_ns (clock_mono_ns; -1: for ever); where gpt2d says nothing
 * meanwhile, stderr tells (pulse.h). *params is owned by the caller.
 */
enum client_news client_next(struct client *c, int64_t deadline_ns, char event[64], json_t **params,
	struct ctl_error *e);

#endif
