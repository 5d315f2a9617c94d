#include "daemon/control/client.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/control/budget.h"
#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/control/turns.h"
#include "proto/frame.h"
#include "proto/protocol.h"

enum {
	READ_BYTES = 64 << 10, /* held unread; a line in progress is held besides */
};

struct client {
	struct client_options o;
	struct client_peer peer;
	struct bufferevent *io;
	struct turn turn; /* to handle its lines */
	struct budget_account account;
	struct rpc_message asked; /* the request that waits for its turn there, */
	struct reply *answer;     /* and its reply */
	bool has_turn;
	struct frame *frame;
	struct reply *reply; /* of the request in progress; NULL: there is none */
	bool greeted;
	bool in_lines; /* on the stack: whoever ends the client leaves it to take_turn */
	bool eof;      /* it sends no more */
	bool closing;  /* it gets what is buffered and then goes */
	bool dead;
	int follows;
	int64_t heard_ns; /* of its last bytes or its last answer */
};

/* See to its lines, and to its end. */
static void want_turn(struct client *client)
{
	turns_want(client->o.turns, &client->turn);
}

static void on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
{
	struct client *client = arg;

	budget_hold(client->o.budget, &client->account, evbuffer_get_length(output));
}

void client_destroy(struct client *client)
{
	if (client->in_lines) {
		client->dead = true;
		return;
	}
	turns_forget(client->o.turns, &client->turn);
	client->o.gone(client, client->o.arg);
	evbuffer_remove_cb(bufferevent_get_output(client->io), on_output, client);
	budget_forget(client->o.budget, &client->account);
	rpc_clear(&client->asked);
	reply_forget_client(client->reply);
	reply_drop(client->answer);
	bufferevent_free(client->io);
	frame_destroy(client->frame);
	free(client);
}

size_t client_unwritten_bytes(const struct client *client)
{
	return evbuffer_get_length(bufferevent_get_output(client->io));
}

/* Free what has nothing more to do. */
static void settle(struct client *client)
{
	bool done =
		client->closing || (client->eof && client->reply == NULL && client->follows == 0);

	if (client->dead || (done && client_unwritten_bytes(client) == 0))
		client_destroy(client);
}

/* Libevent makes a bufferevent that does not notice what is written when it lacks memory for that:
 * enabled again, it does. */
static int write_out(struct client *client, const char *line, size_t n)
{
	int rc = bufferevent_write(client->io, line, n);

	return rc < 0 ? rc : bufferevent_enable(client->io, EV_WRITE);
}

/* Frees line. */
static void write_line(struct client *client, char *line, size_t n)
{
	if (n > 0)
		write_out(client, line, n);
	free(line);
}

/* reply.h: the answer to the request in progress. */
static void on_answer(struct client *client, char *line, size_t n, bool close)
{
	write_line(client, line, n);
	client->closing |= close;
	client->reply = NULL;
	client->has_turn = false;
	budget_end(client->o.budget, &client->account);
	client->heard_ns = clock_mono_ns();
	if (!client->in_lines)
		want_turn(client);
}

bool client_event(struct client *client, const char *line, size_t n, bool must)
{
	if (client->closing || client->dead)
		return false;
	if (!must && client_unwritten_bytes(client) + n > (size_t)client->o.buffer_bytes)
		return false;
	return write_out(client, line, n) == 0;
}

/* ---- lines in ---- */

static void handle_line(struct client *client, const char *line, size_t n)
{
	struct rpc_message m;
	char error[256];
	json_t *id = NULL;
	int code = rpc_parse(line, n, &m, &id, error, sizeof(error));

	client->reply = reply_create(client, &client->peer, id, on_answer);
	if (code != 0) {
		if (client->greeted)
			reply_error(client->reply, code, NULL, "%s", error);
		else
			reply_error_and_close(client->reply, code, NULL, "%s", error);
		return;
	}
	if (m.kind != RPC_REQUEST)
		reply_error(client->reply, PROTOCOL_INVALID_REQUEST, NULL,
			m.kind == RPC_NOTIFICATION ? "id is missing" : "a request is expected");
	else
		client->o.request(client->reply, &m, client->o.arg);
	rpc_clear(&m);
}

static void handle_broken(struct client *client, enum frame_status status)
{
	client->reply = reply_create(client, &client->peer, json_null(), on_answer);
	if (status == FRAME_TOO_LONG)
		reply_error_and_close(client->reply, PROTOCOL_INVALID_REQUEST, NULL,
			"a line longer than %d bytes", PROTOCOL_CLIENT_LINE_MAX);
	else
		reply_error_and_close(
			client->reply, PROTOCOL_PARSE_ERROR, NULL, "a NUL byte in a line");
}

/* What has been read goes into the frame, and there may be more; false without memory. */
static bool feed(struct client *client)
{
	struct evbuffer *in = bufferevent_get_input(client->io);
	struct evbuffer_iovec piece;

	while (evbuffer_peek(in, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
		if (frame_feed(client->frame, piece.iov_base, piece.iov_len) < 0)
			return false;
		evbuffer_drain(in, piece.iov_len);
	}
	return bufferevent_enable(client->io, EV_READ) == 0;
}

static bool may_take_line(const struct client *client)
{
	const size_t unwritten = client_unwritten_bytes(client);

	return client->reply == NULL && !client->closing && !client->dead &&
		unwritten <= (size_t)client->o.buffer_bytes &&
		(unwritten == 0 || !budget_full(client->o.budget));
}

/* One line, then it is the turn of others; what has nothing more to do ends. */
static void take_turn(struct client *client)
{
	enum frame_status status = FRAME_MORE;
	bool taken = false;
	char *line;
	size_t n;

	client->in_lines = true;
	while (may_take_line(client) && !taken) {
		status = frame_next(client->frame, &line, &n);
		if (status == FRAME_MORE) {
			if (evbuffer_get_length(bufferevent_get_input(client->io)) == 0)
				break;
			if (!feed(client))
				client->closing = true;
			continue;
		}
		taken = true;
		if (status == FRAME_LINE)
			handle_line(client, line, n);
		else
			handle_broken(client, status);
	}
	client->in_lines = false;
	if (taken)
		want_turn(client);
	else
		settle(client);
}

static void on_turn(struct turn *turn)
{
	take_turn((struct client *)(void *)((char *)turn - offsetof(struct client, turn)));
}

/* Libevent calls a reader at its watermark for ever, and loses a bufferevent that is freed
 * meanwhile: one that is full is not listened to. */
static void on_read(struct bufferevent *io, void *arg)
{
	if (evbuffer_get_length(bufferevent_get_input(io)) >= READ_BYTES)
		bufferevent_disable(io, EV_READ);
	((struct client *)arg)->heard_ns = clock_mono_ns();
	want_turn(arg);
}

/* All is written: a client that was not listened to for its full buffer is again. */
static void on_written(struct bufferevent *io, void *arg)
{
	want_turn(arg);
}

static bool peer_closed(struct bufferevent *io)
{
	struct pollfd p = {.fd = bufferevent_getfd(io), .events = 0};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

void client_wait_turn(struct client *client, struct reply *reply, const struct rpc_message *message)
{
	client->asked = *message;
	json_incref(client->asked.root);
	client->answer = reply;
	budget_want(client->o.budget, &client->account);
}

bool client_has_turn(const struct client *client)
{
	return client->has_turn;
}

static struct client *of_account(struct budget_account *account)
{
	return (struct client *)(void *)((char *)account - offsetof(struct client, account));
}

/* Nobody would read the answer to one who has gone. */
static void on_begin(struct budget_account *account)
{
	struct client *client = of_account(account);
	struct rpc_message m = client->asked;
	struct reply *reply = client->answer;

	client->asked = (struct rpc_message){0};
	client->answer = NULL;
	client->dead |= peer_closed(client->io);
	if (!client->dead) {
		client->in_lines = true;
		client->has_turn = true;
		client->o.request(reply, &m, client->o.arg);
		client->in_lines = false;
	} else {
		reply_drop(reply);
	}
	rpc_clear(&m);
	want_turn(client);
}

static void on_drop(struct budget_account *account)
{
	char why[96];

	snprintf(why, sizeof(why), "closed: %zu bytes not read for %d s, for which others wait",
		account->bytes, BUDGET_UNREAD_S);
	client_dismiss(of_account(account), why);
}

static void dismiss_mute(struct client *client)
{
	char why[64];

	snprintf(why, sizeof(why), "closed: no hello within %lld s", (long long)client->o.hello_s);
	client_dismiss(client, why);
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	struct client *client = arg;

	if ((what & BEV_EVENT_TIMEOUT) != 0) {
		dismiss_mute(client);
		return;
	}
	if ((what & BEV_EVENT_EOF) != 0 && !peer_closed(io)) {
		client->eof = true; /* it may still read: `printf ... | socat - UNIX:...` */
		want_turn(client);
		return;
	}
	client->dead = true;
	settle(client);
}

void client_end_requests(struct client *client)
{
	/* what has come already is read before the end that this makes is seen */
	if (shutdown(bufferevent_getfd(client->io), SHUT_RD) < 0)
		client->eof = true; /* it is not connected any more */
}

bool client_served(const struct client *client)
{
	return client->dead ||
		(client->eof && client->reply == NULL && !client->turn.waiting &&
			client_unwritten_bytes(client) == 0);
}

int client_create(const struct client_options *options, int fd, const struct client_peer *peer,
	struct client **out)
{
	const struct timeval hello = {.tv_sec = (time_t)options->hello_s};
	struct client *client = calloc(1, sizeof(*client));

	if (client == NULL)
		return -ENOMEM;
	client->o = *options;
	client->peer = *peer;
	client->heard_ns = clock_mono_ns();
	client->frame = frame_create(PROTOCOL_CLIENT_LINE_MAX);
	client->turn.taken = on_turn;
	client->account =
		(struct budget_account){.uid = peer->uid, .begin = on_begin, .drop = on_drop};
	if (client->frame)
		client->io = bufferevent_socket_new(options->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (client->io == NULL) {
		frame_destroy(client->frame);
		free(client);
		return -ENOMEM;
	}
	bufferevent_setcb(client->io, on_read, on_written, on_event, client);
	bufferevent_setwatermark(client->io, EV_READ, 0, READ_BYTES);
	bufferevent_set_timeouts(client->io, &hello, NULL);
	if (evbuffer_add_cb(bufferevent_get_output(client->io), on_output, client) == NULL ||
		bufferevent_enable(client->io, EV_READ | EV_WRITE) < 0) {
		bufferevent_setfd(client->io, -1); /* fd stays the caller's */
		bufferevent_free(client->io);
		frame_destroy(client->frame);
		free(client);
		return -ENOMEM;
	}
	*out = client;
	return 0;
}

const struct client_peer *client_peer(const struct client *client)
{
	return &client->peer;
}

bool client_greeted(const struct client *client)
{
	return client->greeted;
}

void client_set_greeted(struct client *client)
{
	client->greeted = true;
	bufferevent_set_timeouts(client->io, NULL, NULL);
}

void client_add_follows(struct client *client, int n)
{
	client->follows += n;
}

int client_follows(const struct client *client)
{
	return client->follows;
}

int64_t client_idle_since_ns(const struct client *client)
{
	if (client->reply != NULL || client->turn.waiting || client->follows > 0 ||
		client->closing || client->dead)
		return INT64_MAX;
	return client->heard_ns;
}

void client_hang_up(struct client *client)
{
	if (client->closing || client->dead)
		return;
	log_write(LOG_ERROR, "client %llu: out of memory for what it waits for: closed",
		(unsigned long long)client->peer.number);
	client->closing = true;
	want_turn(client);
}

void client_dismiss(struct client *client, const char *why)
{
	bool reads = client_unwritten_bytes(client) == 0;
	char *line;
	size_t n = 0;

	log_write(LOG_INFO, "client %llu: dismissed: %s", (unsigned long long)client->peer.number,
		why);
	if (reads) {
		line = rpc_error(NULL, PROTOCOL_BUSY, why, NULL, &n);
		write_line(client, line, n);
	}
	client->closing = true;
	if (!reads)
		client_destroy(client);
}
