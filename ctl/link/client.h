/*
 * client.h: a connection to gpt2d: hello, requests, the events of followed runs, and the one rule
 * for reconnecting. Each wait has a deadline, or says on stderr when gpt2d is silent. A signal ends
 * each wait (interrupt.h).
 */
#ifndef GPT2D_CTL_LINK_CLIENT_H
#define GPT2D_CTL_LINK_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl/link/ctl_error.h"

enum {
	CLIENT_CONNECT_S = 5,
	CLIENT_HELLO_S = 10,
	CLIENT_REPLY_S = 30,
	CLIENT_CHECK_S = 600, /* submit, dry-run: gpt2d may read all data first */
	CLIENT_PATIENT = -1,  /* no deadline; stderr says when the reply takes long */
	CLIENT_DEFERRED = -2, /* no deadline: gpt2d replies when the state is reached */
	CLIENT_RETURN_S = 5,  /* how long client_reopen tries */
};

struct client_options {
	const char *socket; /* --socket, or NULL for the default places */
	const char *verb;   /* for messages; NULL: the method */
	FILE *notices;      /* for messages during a wait; NULL: nothing is printed */
	int64_t until_ns;   /* the user's time limit (clock_mono_ns) for all waits; 0: none */
};

struct client;

/*
 * Connect and send hello: 0, or CTL_NO_DAEMON, CTL_NOT_ALLOWED, CTL_NOT_NOW, CTL_VERSION_MISMATCH,
 * CTL_TRANSPORT, CTL_TIMEOUT or CTL_CANCELLED with e. Tries a second time if gpt2d closes the
 * connection before its hello: gpt2d may have been replaced by a new one.
 */
int client_open(const struct client_options *options, struct client **out, struct ctl_error *e);
void client_close(struct client *c); /* takes NULL */
/*
 * After client_lost: connect again within CLIENT_RETURN_S. The caller follows its runs again.
 * CTL_TRANSPORT with e if gpt2d does not come back, or if the connection was lost twice without an
 * event or a restart of gpt2d in between.
 */
int client_reopen(struct client *c, struct ctl_error *e);
bool client_restarted(const struct client *c); /* client_reopen found another gpt2d process */

const json_t *client_hello(const struct client *c);
/* False: gpt2d has not yet answered the ping that follows a silence of some seconds. */
bool client_answers(const struct client *c);
bool client_lost(const struct client *c);   /* the connection ended */
bool client_unsent(const struct client *c); /* gpt2d did not get all of the last request */
/* For poll, once client_next has returned CLIENT_QUIET. */
int client_fd(const struct client *c);
/*
 * The message on stderr if the reply to the next request takes long; borrowed; NULL: the default.
 */
void client_expect(struct client *c, const char *what);
/* before clears the terminal's line before each notice; NULL: there is nothing to clear. */
void client_before_notice(struct client *c, void (*before)(void *of), void *of);

/*
 * Send method and wait for the reply: 0 and *result (owned by the caller), or an exit code with e.
 * If no reply came, e says whether the request may have taken effect. Takes params. Events that
 * arrive meanwhile are kept for client_next.
 */
int client_request(struct client *c, const char *method, json_t *params, int deadline_s,
	json_t **result, struct ctl_error *e);
/*
 * client_request for each page: "next" of a page is "after" of the next one. *result is the first
 * page with the arrays of all pages, and the sum of the member count (NULL: none), without "next".
 */
int client_request_pages(struct client *c, const char *method, json_t *params, int deadline_s,
	const char *count, json_t **result, struct ctl_error *e);
/* client_request on a new connection, with CLIENT_REPLY_S. */
int client_ask(const struct client_options *options, const char *method, json_t *params,
	json_t **result, struct ctl_error *e);

enum client_news {
	CLIENT_EVENT,       /* *event, *params */
	CLIENT_QUIET,       /* the deadline passed */
	CLIENT_INTERRUPTED, /* a signal, see interrupt.h */
	CLIENT_LOST,        /* the connection ended, with e */
};
/*
 * Wait for an event until deadline_ns (clock_mono_ns; -1: no deadline). After 4 s of silence
 * gpt2ctl asks gpt2d for its version; if it does not answer within 12 s, stderr says so. *params is
 * owned by the caller.
 */
enum client_news client_next(struct client *c, int64_t deadline_ns, char event[64], json_t **params,
	struct ctl_error *e);

#endif
