#include "daemon/control/reply.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/config/log.h"
#include "daemon/store/store.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/text.h"

struct reply {
	struct client *client; /* NULL: it has disconnected */
	struct client_peer peer;
	json_t *id; /* of the request */
	void (*send)(struct client *client, char *line, size_t n, bool close);
};

struct reply *reply_create(struct client *client, const struct client_peer *peer, json_t *id,
	void (*send)(struct client *client, char *line, size_t n, bool close))
{
	struct reply *reply = memory_zeroed(1, sizeof(*reply));

	*reply = (struct reply){client, *peer, id, send};
	return reply;
}

void reply_forget_client(struct reply *reply)
{
	if (reply != NULL)
		reply->client = NULL;
}

const struct client_peer *reply_peer(const struct reply *reply)
{
	return &reply->peer;
}

bool reply_wanted(const struct reply *reply)
{
	return reply->client != NULL;
}

struct client *reply_client(const struct reply *reply)
{
	return reply->client;
}

static void answer(struct reply *reply, char *line, size_t n, bool close)
{
	if (reply->client != NULL)
		reply->send(reply->client, line, n, close);
	else
		free(line);
	json_decref(reply->id);
	free(reply);
}

void reply_drop(struct reply *reply)
{
	if (reply != NULL)
		answer(reply, NULL, 0, false);
}

void reply_result(struct reply *reply, json_t *result)
{
	size_t n = 0;
	char *line = rpc_result(reply->id, result, &n);

	answer(reply, line, n, false);
}

__attribute__((format(printf, 5, 0))) static void refuse(
	struct reply *reply, int code, json_t *data, bool close, const char *format, va_list args)
{
	char message[1280], *line;
	size_t n = 0;

	vsnprintf(message, sizeof(message), format, args);
	text_clean(message); /* a quoted name may have been cut within a character */
	log_write(LOG_DEBUG, "client %llu: refused: %s", (unsigned long long)reply->peer.number,
		message);
	line = rpc_error(reply->id, code, message, data, &n);
	answer(reply, line, n, close);
}

void reply_error(struct reply *reply, int code, json_t *data, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	refuse(reply, code, data, false, format, args);
	va_end(args);
}

void reply_error_and_close(struct reply *reply, int code, json_t *data, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	refuse(reply, code, data, true, format, args);
	va_end(args);
}

/* ---- refusals that several requests share ---- */

void reply_no_run(struct reply *reply, int64_t id)
{
	reply_error(reply, PROTOCOL_NO_SUCH_RUN, NULL,
		"run %lld: no such run; it may have been removed by prune or retain_runs; see: "
		"gpt2ctl list",
		(long long)id);
}

void reply_of_nobody(struct reply *reply)
{
	reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
		"uid %u represents all users that the user namespace of gpt2d does not map, and "
		"owns no runs; ask an admin",
		(unsigned)reply_peer(reply)->uid);
}

void reply_not_owner(struct reply *reply, int64_t id, uid_t owner)
{
	if (role_is_nobody(reply_peer(reply)))
		reply_of_nobody(reply);
	else
		reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
			"run %lld: belongs to another user; ask uid %u, or an admin", (long long)id,
			(unsigned)owner);
}

void reply_unread(struct reply *reply, struct store *s, int64_t id, int rc)
{
	char why[FAILURE_TEXT_BYTES];

	store_failure_text(s, rc, why);
	if (rc == -ENOENT)
		reply_no_run(reply, id);
	else
		reply_error(reply, PROTOCOL_STORE, NULL, "the store cannot be read: %s", why);
}
