#include <math.h>

#include "proto/protocol.h"
#include "proto/rpc.h"
#include "tests/unit/test.h"

struct refusal {
	const char *line;
	int code;
	const char *id;   /* JSON text of the id to answer to */
	const char *says; /* part of the message */
};

static const struct refusal refusals[] = {
	{"", PROTOCOL_PARSE_ERROR, "null", "column"},
	{"garbage", PROTOCOL_PARSE_ERROR, "null", "column"},
	{"GET / HTTP/1.1\r", PROTOCOL_PARSE_ERROR, "null", "column"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,", PROTOCOL_PARSE_ERROR, "null", "column"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"} x", PROTOCOL_PARSE_ERROR, "null",
		"end of"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"a\"}", PROTOCOL_PARSE_ERROR, "null",
		"duplicate"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"k\":{\"x\":1,\"x\":1}}}",
		PROTOCOL_PARSE_ERROR, "null", "duplicate"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"k\":NaN}}",
		PROTOCOL_PARSE_ERROR, "null", "invalid token"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", PROTOCOL_PARSE_ERROR, "null",
		"0xff"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\u0000b\"}", PROTOCOL_PARSE_ERROR, "null",
		"\\u0000"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"caf\xc3\xa9\":1}", PROTOCOL_INVALID_REQUEST, "1",
		"caf??:"},
	{"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]", PROTOCOL_INVALID_REQUEST, "null",
		"batches"},
	{"[]", PROTOCOL_INVALID_REQUEST, "null", "batches"},
	{"{}", PROTOCOL_INVALID_REQUEST, "null", "jsonrpc"},
	{"{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"a\"}", PROTOCOL_INVALID_REQUEST, "7",
		"jsonrpc"},
	{"{\"jsonrpc\":2.0,\"id\":7,\"method\":\"a\"}", PROTOCOL_INVALID_REQUEST, "7", "jsonrpc"},
	{"{\"jsonrpc\":\"2.0\",\"id\":7}", PROTOCOL_INVALID_REQUEST, "7", "method is missing"},
	{"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":3}", PROTOCOL_INVALID_REQUEST, "7", "method"},
	{"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}", PROTOCOL_INVALID_REQUEST, "null",
		"id"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"a\"}", PROTOCOL_INVALID_REQUEST, "null",
		"id"},
	{"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"a\"}", PROTOCOL_INVALID_REQUEST, "null",
		"id"},
	{"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"a\"}", PROTOCOL_INVALID_REQUEST, "null",
		"id"},
	{"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"a\",\"params\":[1]}",
		PROTOCOL_INVALID_PARAMS, "\"x\"", "object"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"parms\":{}}", PROTOCOL_INVALID_REQUEST,
		"1", "parms"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"result\":1}", PROTOCOL_INVALID_REQUEST,
		"1", "two of them"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":\"x\"}}", PROTOCOL_INVALID_REQUEST, "1",
		"code"},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":3}", PROTOCOL_INVALID_REQUEST, "1", "code"},
};

static void test_refused(void **state)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *r = &refusals[i];
		struct rpc_message m = {.kind = RPC_ERROR, .code = 12345};
		char error[256] = "", *id_text;
		json_t *id = NULL;
		int rc = rpc_parse(r->line, strlen(r->line), &m, &id, error, sizeof(error));

		if (rc != r->code || strstr(error, r->says) == NULL)
			fail_msg("%s: %d %s", r->line, rc, error);
		assert_non_null(id);
		id_text = json_dumps(id, JSON_ENCODE_ANY);
		assert_string_equal(id_text, r->id);
		assert_int_equal(m.code, 12345); /* the output is left alone */
		free(id_text);
		json_decref(id);
	}
}

static void test_deep_nesting(void **state)
{
	const size_t n = 100000;
	char *line = malloc(n), error[256];
	struct rpc_message m;

	memset(line, '[', n);
	assert_int_equal(rpc_parse(line, n, &m, NULL, error, sizeof(error)), PROTOCOL_PARSE_ERROR);
	free(line);
}

static void parse(const char *line, struct rpc_message *m)
{
	char error[256] = "";

	if (rpc_parse(line, strlen(line), m, NULL, error, sizeof(error)) != 0)
		fail_msg("%s: %s", line, error);
}

static void test_kinds(void **state)
{
	struct rpc_message m;

	parse("{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"show\","
	      "\"params\":{\"id\":3}}",
		&m);
	assert_int_equal(m.kind, RPC_REQUEST);
	assert_string_equal(m.method, "show");
	assert_int_equal(json_integer_value(m.id), 9007199254740993);
	assert_int_equal(json_integer_value(json_object_get(m.params, "id")), 3);
	rpc_clear(&m);

	parse(" {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"status\"}\r", &m);
	assert_int_equal(m.kind, RPC_REQUEST);
	assert_non_null(m.params);
	assert_int_equal(json_object_size(m.params), 0);
	rpc_clear(&m);

	parse("{\"jsonrpc\":\"2.0\",\"method\":\"engine.alive\",\"params\":{}}", &m);
	assert_int_equal(m.kind, RPC_NOTIFICATION);
	assert_null(m.id);
	rpc_clear(&m);

	parse("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}", &m);
	assert_int_equal(m.kind, RPC_RESULT);
	assert_true(json_is_null(m.result));
	rpc_clear(&m);

	parse("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"no\","
	      "\"data\":[1]}}",
		&m);
	assert_int_equal(m.kind, RPC_ERROR);
	assert_int_equal(m.code, PROTOCOL_PARSE_ERROR);
	assert_string_equal(m.error, "no");
	assert_true(json_is_array(m.data));
	rpc_clear(&m);
}

static void expect_text(char *line, const size_t *n, const char *text)
{
	assert_non_null(line);
	assert_string_equal(line, text);
	assert_int_equal(*n, strlen(text));
	free(line);
}

static void test_build(void **state)
{
	json_t *id = json_string("x\n");
	size_t n = 0;

	expect_text(rpc_request(3, "show", json_pack("{s:i}", "id", 4), &n), &n,
		"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"show\",\"params\":{\"id\":4}}\n");
	expect_text(rpc_notification("engine.alive", json_object(), &n), &n,
		"{\"jsonrpc\":\"2.0\",\"method\":\"engine.alive\",\"params\":{}}\n");
	expect_text(rpc_result(id, json_object(), &n), &n,
		"{\"jsonrpc\":\"2.0\",\"id\":\"x\\n\",\"result\":{}}\n");
	expect_text(rpc_error(NULL, PROTOCOL_PARSE_ERROR, "bad", NULL, &n), &n,
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"bad\"}}"
		"\n");
	expect_text(rpc_error(id, 1, "bad", json_true(), &n), &n,
		"{\"jsonrpc\":\"2.0\",\"id\":\"x\\n\",\"error\":{\"code\":1,\"message\":\"bad\","
		"\"data\":true}}\n");
	assert_null(rpc_notification("x", NULL, &n));
	assert_null(rpc_result(id, NULL, &n));
	json_decref(id);
}

static void test_real(void **state)
{
	const double odd[] = {NAN, INFINITY, -INFINITY};
	json_t *v = rpc_real(0.1);

	assert_true(json_is_real(v));
	json_decref(v);
	for (int i = 0; i < 3; i++) {
		v = rpc_real(odd[i]);
		assert_true(json_is_null(v));
		json_decref(v);
	}
}

TEST_MAIN(cmocka_unit_test(test_refused), cmocka_unit_test(test_deep_nesting),
	cmocka_unit_test(test_kinds), cmocka_unit_test(test_build), cmocka_unit_test(test_real))
