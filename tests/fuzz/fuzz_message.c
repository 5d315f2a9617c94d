/*
 * Message: what rpc_parse takes is what it says it is, and what was built from it reads back to the
 * same; what it refuses has a code, and a reason that can be sent.
 */
#include <string.h>

#include "proto/protocol.h"
#include "proto/rpc.h"
#include "tests/fuzz/fuzz.h"

static void check_shape(const struct rpc_message *m)
{
	switch (m->kind) {
	case RPC_REQUEST:
		FUZZ_MUST(json_is_string(m->id) || json_is_integer(m->id));
		FUZZ_MUST(m->method != NULL && json_is_object(m->params));
		break;
	case RPC_NOTIFICATION:
		FUZZ_MUST(m->id == NULL && m->method != NULL && json_is_object(m->params));
		break;
	case RPC_RESULT:
		FUZZ_MUST(m->id != NULL && m->result != NULL && m->method == NULL);
		break;
	case RPC_ERROR:
		FUZZ_MUST(m->id != NULL && m->error != NULL && m->result == NULL);
		break;
	}
}

static char *rebuilt(const struct rpc_message *m, size_t *n)
{
	switch (m->kind) {
	case RPC_REQUEST:
		if (!json_is_integer(m->id))
			return NULL; /* we send integers */
		return rpc_request(
			json_integer_value(m->id), m->method, json_incref(m->params), n);
	case RPC_NOTIFICATION:
		return rpc_notification(m->method, json_incref(m->params), n);
	case RPC_RESULT:
		return rpc_result(m->id, json_incref(m->result), n);
	default:
		return rpc_error(m->id, m->code, m->error, json_incref(m->data), n);
	}
}

static void check_round_trip(const struct rpc_message *m)
{
	struct rpc_message again;
	char error[256];
	size_t n = 0;
	char *line = rebuilt(m, &n);

	if (line == NULL)
		return;
	FUZZ_MUST(n > 0 && line[n - 1] == '\n' && memchr(line, '\n', n - 1) == NULL);
	FUZZ_MUST(rpc_parse(line, n - 1, &again, NULL, error, sizeof(error)) == 0);
	FUZZ_MUST(again.kind == m->kind);
	FUZZ_MUST(m->params == NULL || json_equal(again.params, m->params));
	FUZZ_MUST(m->result == NULL || json_equal(again.result, m->result));
	rpc_clear(&again);
	free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rpc_message m = {0};
	char error[256] = "";
	json_t *id = NULL;
	char *line;
	size_t n = 0;
	int code = rpc_parse((const char *)data, size, &m, &id, error, sizeof(error));

	FUZZ_MUST(id != NULL);
	if (code == 0) {
		check_shape(&m);
		check_round_trip(&m);
		rpc_clear(&m);
	} else {
		FUZZ_MUST(code == PROTOCOL_PARSE_ERROR || code == PROTOCOL_INVALID_REQUEST ||
			code == PROTOCOL_INVALID_PARAMS);
		FUZZ_MUST(error[0] != '\0');
		line = rpc_error(id, code, error, NULL, &n);
		FUZZ_MUST(line != NULL);
		free(line);
	}
	json_decref(id);
	return 0;
}
