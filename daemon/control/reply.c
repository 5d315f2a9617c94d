#include "daemon/control/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/config/log.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/text.h"

struct reply {
	struct client *client; /* NULL: it has gone */
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
