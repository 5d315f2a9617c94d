#include "proto/rpc.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/protocol.h"

static int refuse(int code, char *error, size_t error_bytes, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The text may quote a part of a line, cut anywhere: only its ASCII is safe in a reply. */
static int refuse(int code, char *error, size_t error_bytes, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, error_bytes, format, args);
	va_end(args);
	for (char *c = error; *c != '\0'; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	return code;
}

static bool is_member(const char *key)
{
	static const char *const members[] = {
		"jsonrpc", "id", "method", "params", "result", "error"};

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		if (strcmp(key, members[i]) == 0)
			return true;
	return false;
}

static int read_call(struct rpc_message *m, json_t *method, char *error, size_t error_bytes)
{
	json_t *params = json_object_get(m->root, "params");

	if (!json_is_string(method))
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"method: a string is expected");
	if (json_object_get(m->root, "result") || json_object_get(m->root, "error"))
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"a message has a method, a result or an error, not two of them");
	if (m->id && json_is_null(m->id))
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"id: null is not allowed in a request, a string or an integer is");
	if (params && !json_is_object(params))
		return refuse(PROTOCOL_INVALID_PARAMS, error, error_bytes,
			"params: an object is expected");
	if (params == NULL) {
		params = json_object();
		json_object_set_new(m->root, "params", params);
	}
	m->kind = m->id ? RPC_REQUEST : RPC_NOTIFICATION;
	m->method = json_string_value(method);
	m->params = params;
	return 0;
}

static int read_reply(struct rpc_message *m, char *error, size_t error_bytes)
{
	json_t *result = json_object_get(m->root, "result");
	json_t *failure = json_object_get(m->root, "error");
	json_t *code, *message;

	if (m->id == NULL || (result != NULL) == (failure != NULL))
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"method is missing (or, in a reply, id and one of result and error)");
	if (result) {
		m->kind = RPC_RESULT;
		m->result = result;
		return 0;
	}
	code = json_object_get(failure, "code");
	message = json_object_get(failure, "message");
	if (!json_is_integer(code) || !json_is_string(message) ||
		json_integer_value(code) < INT32_MIN || json_integer_value(code) > INT32_MAX)
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"error: an integer code and a string message are expected");
	m->kind = RPC_ERROR;
	m->code = (int)json_integer_value(code);
	m->error = json_string_value(message);
	m->data = json_object_get(failure, "data");
	return 0;
}

static int read_message(struct rpc_message *m, char *error, size_t error_bytes)
{
	json_t *version, *method, *value;
	const char *key;

	if (json_is_array(m->root))
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"batches are not accepted, send one object per line");
	if (!json_is_object(m->root))
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"an object is expected on each line");
	m->id = json_object_get(m->root, "id");
	if (m->id && !json_is_string(m->id) && !json_is_integer(m->id) && !json_is_null(m->id)) {
		m->id = NULL;
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"id: a string or an integer is expected");
	}
	version = json_object_get(m->root, "jsonrpc");
	if (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0)
		return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
			"jsonrpc: \"2.0\" is expected");
	json_object_foreach(m->root, key, value)
		if (!is_member(key))
			return refuse(PROTOCOL_INVALID_REQUEST, error, error_bytes,
				"%.64s: not a member of a JSON-RPC 2.0 message", key);
	method = json_object_get(m->root, "method");
	if (method)
		return read_call(m, method, error, error_bytes);
	return read_reply(m, error, error_bytes);
}

int rpc_parse(const char *line, size_t n, struct rpc_message *out, json_t **id, char *error,
	size_t error_bytes)
{
	struct rpc_message m = {0};
	json_error_t where;
	int rc;

	m.root = json_loadb(line, n, JSON_REJECT_DUPLICATES, &where);
	if (m.root == NULL)
		rc = refuse(PROTOCOL_PARSE_ERROR, error, error_bytes, "column %d: %s", where.column,
			where.text);
	else
		rc = read_message(&m, error, error_bytes);
	if (id)
		*id = m.id ? json_incref(m.id) : json_null();
	if (rc != 0) {
		rpc_clear(&m);
		return rc;
	}
	*out = m;
	return 0;
}

void rpc_clear(struct rpc_message *m)
{
	json_decref(m->root);
	*m = (struct rpc_message){0};
}

/* Takes message; NULL: a text in it is not UTF-8, or a part of it was NULL. */
static char *to_line(json_t *message, size_t *n)
{
	char *line;
	size_t length;

	if (message == NULL)
		return NULL;
	line = json_dumps(message, JSON_COMPACT);
	json_decref(message);
	length = strlen(line);
	line = memory_resized(line, length + 2);
	memcpy(line + length, "\n", 2);
	*n = length + 1;
	return line;
}

char *rpc_request(json_int_t id, const char *method, json_t *params, size_t *n)
{
	return to_line(json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method",
			       method, "params", params),
		n);
}

char *rpc_notification(const char *method, json_t *params, size_t *n)
{
	return to_line(
		json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params),
		n);
}

char *rpc_result(json_t *id, json_t *result, size_t *n)
{
	return to_line(
		json_pack("{s:s, s:O?, s:o}", "jsonrpc", "2.0", "id", id, "result", result), n);
}

char *rpc_error(json_t *id, int code, const char *message, json_t *data, size_t *n)
{
	return to_line(json_pack("{s:s, s:O?, s:{s:i, s:s, s:o*}}", "jsonrpc", "2.0", "id", id,
			       "error", "code", code, "message", message, "data", data),
		n);
}

int64_t rpc_integer(const json_t *object, const char *key, int64_t standard)
{
	const json_t *value = json_object_get(object, key);

	return value ? json_integer_value(value) : standard;
}

const char *rpc_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

json_t *rpc_real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}
