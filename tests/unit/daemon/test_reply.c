/* Replies: answered once, and harmless after their client has gone. */
#include <jansson.h>

#include "daemon/control/reply.h"
#include "tests/unit/test.h"

struct client {
	int sent;
	size_t n;
	bool closed;
	char line[256];
};

static const struct client_peer somebody = {.number = 7, .uid = 1000};

static void on_send(struct client *client, char *line, size_t n, bool close)
{
	client->sent++;
	client->n = n;
	client->closed = close;
	if (n > 0)
		strcpy(client->line, line);
	free(line);
}

static void test_answers(void **state)
{
	struct client client = {0};
	struct reply *reply = reply_create(&client, &somebody, json_integer(3), on_send);

	assert_true(reply_wanted(reply));
	assert_ptr_equal(reply_client(reply), &client);
	reply_result(reply, json_pack("{si}", "a", 1));
	assert_int_equal(client.sent, 1);
	assert_string_equal(client.line, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"a\":1}}\n");

	reply = reply_create(&client, &somebody, json_integer(4), on_send);
	reply_error(reply, -32000, json_pack("{sb}", "queued", 0), "run %d: \xc3", 5);
	assert_int_equal(client.sent, 2);
	assert_false(client.closed);
	assert_non_null(strstr(client.line, "\"message\":\"run 5: ?\""));
	assert_non_null(strstr(client.line, "\"data\":{\"queued\":false}"));

	reply = reply_create(&client, &somebody, json_null(), on_send);
	reply_error_and_close(reply, -32700, NULL, "no");
	assert_true(client.closed);
}

static void test_after_the_client_has_gone(void **state)
{
	struct client client = {0};
	struct reply *reply = reply_create(&client, &somebody, json_integer(3), on_send);

	reply_forget_client(reply);
	assert_false(reply_wanted(reply));
	assert_null(reply_client(reply));
	assert_int_equal(reply_peer(reply)->uid, 1000);
	reply_result(reply, json_object());
	assert_int_equal(client.sent, 0);
}

static void test_dropped(void **state)
{
	struct client client = {0};

	reply_drop(reply_create(&client, &somebody, json_integer(3), on_send));
	assert_int_equal(client.sent, 1); /* so that the client takes its next request */
	assert_int_equal(client.n, 0);
	reply_drop(NULL);
	reply_forget_client(NULL);
}

TEST_MAIN(cmocka_unit_test(test_answers), cmocka_unit_test(test_after_the_client_has_gone),
	cmocka_unit_test(test_dropped))
