/* The engine's line to gpt2d over a real socket pair: order, bounds, cancellation, ends. */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "engine/link.h"
#include "proto/protocol.h"
#include "tests/unit/test.h"

static struct link *open_link(int *peer)
{
	struct link *l = NULL;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(link_create(fds[0], LINK_THREAD_READS, &l), 0);
	*peer = fds[1];
	return l;
}

static void say(int peer, const char *text)
{
	assert_int_equal(write(peer, text, strlen(text)), (ssize_t)strlen(text));
}

/* All that comes until the other side closes or has said last; NUL-terminated. */
static char *read_until(int peer, const char *last, size_t *n)
{
	char *text = malloc(1 << 24);

	assert_non_null(text);
	*n = 0;
	for (;;) {
		ssize_t got = read(peer, text + *n, (1 << 24) - 1 - *n);

		if (got <= 0)
			break;
		*n += (size_t)got;
		text[*n] = '\0';
		if (last && strstr(text + (*n > 4096 ? *n - 4096 : 0), last))
			break;
	}
	text[*n] = '\0';
	return text;
}

static void a_receiver_that_reads(void **state)
{
	struct rpc_message m;
	struct link *l = NULL;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(link_create(fds[0], LINK_RECEIVER_READS, &l), 0);
	say(fds[1], "{\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n{\"jsonrpc\":\"2.0\",\"met");
	assert_int_equal(link_receive(l, &m), 0);
	assert_string_equal(m.method, "one");
	rpc_clear(&m);
	say(fds[1], "hod\":\"two\"}\n");
	assert_int_equal(link_receive(l, &m), 0);
	assert_string_equal(m.method, "two");
	rpc_clear(&m);
	close(fds[1]);
	assert_int_equal(link_receive(l, &m), -EPIPE);
	link_destroy(l);
}

static void messages_come_in_order(void **state)
{
	struct rpc_message m;
	int peer;
	struct link *l = open_link(&peer);

	say(peer, "{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{\"x\":1}}\n{\"jsonrpc\":");
	say(peer, "\"2.0\",\"method\":\"b\"}\n");
	assert_int_equal(link_receive(l, &m), 0);
	assert_string_equal(m.method, "a");
	assert_int_equal(json_integer_value(json_object_get(m.params, "x")), 1);
	rpc_clear(&m);
	assert_int_equal(link_receive(l, &m), 0);
	assert_string_equal(m.method, "b");
	rpc_clear(&m);
	link_destroy(l);
	close(peer);
}

static void what_was_sent_arrives_before_the_end(void **state)
{
	enum { MESSAGES = 200 }; /* fit into the socket */
	size_t n;
	int peer, next = 0;
	struct link *l = open_link(&peer);
	char *text;

	for (int i = 0; i < MESSAGES; i++)
		link_log(l, "info", "number %d.", i);
	link_destroy(l);
	text = read_until(peer, NULL, &n);
	for (char *at = text; (at = strstr(at, "number ")); at++)
		assert_int_equal(atoi(at + strlen("number ")), next++);
	assert_int_equal(next, MESSAGES);
	free(text);
	close(peer);
}

/*
 * A reader that is stopped blocks nobody; messages that may be lost are dropped, and others arrive.
 */
static void a_reader_that_stands_still(void **state)
{
	enum { MESSAGES = 200000 };
	size_t n;
	int peer, failed;
	struct link *l = open_link(&peer);
	char *text;
	pid_t reader;

	for (int i = 0; i < MESSAGES; i++)
		link_send_lossy(l, SEGMENT_STEP, json_pack("{s:i}", "step", i));
	link_log(l, "info", "the end");
	reader = fork();
	if (reader == 0) {
		text = read_until(peer, "the end", &n);
		failed = n >= 4 << 20 || !strstr(text, "the end") || !strstr(text, "\"step\":0}");
		_exit(failed);
	}
	close(peer);
	link_destroy(l);
	assert_int_equal(waitpid(reader, &peer, 0), reader);
	assert_true(WIFEXITED(peer) && WEXITSTATUS(peer) == 0);
}

static void stops_are_seen_where_they_wait(void **state)
{
	struct rpc_message m;
	int peer;
	struct link *l = open_link(&peer);

	assert_false(link_stop_asked(l, 3, 1));
	say(peer,
		"{\"jsonrpc\":\"2.0\",\"method\":\"segment.cancel\","
		"\"params\":{\"run\":3,\"segment\":1}}\n");
	while (!link_stop_asked(l, 3, 1))
		poll(NULL, 0, 1);
	assert_false(link_stop_asked(l, 3, 2));
	assert_false(link_stop_asked(l, 4, 1));
	assert_int_equal(link_receive(l, &m), 0);
	rpc_clear(&m);
	assert_false(link_stop_asked(l, 3, 1));
	say(peer, "{\"jsonrpc\":\"2.0\",\"method\":\"engine.exit\",\"params\":{}}\n");
	while (!link_stop_asked(l, 5, 5))
		poll(NULL, 0, 1);
	link_destroy(l);
	close(peer);
}

static void expect_end(const char *said)
{
	struct rpc_message m;
	int peer;
	struct link *l = open_link(&peer);

	say(peer, said);
	if (!said[0])
		close(peer);
	assert_int_equal(link_receive(l, &m), -EPIPE);
	assert_true(link_stop_asked(l, 1, 1));
	link_destroy(l);
	if (said[0])
		close(peer);
}

static void ends(void **state)
{
	expect_end("");
	expect_end("GET / HTTP/1.1\n");
	expect_end("[]\n");
	expect_end("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}\n");
}

static void it_says_that_it_lives(void **state)
{
	struct pollfd p = {.events = POLLIN};
	char buf[256] = "";
	struct link *l = open_link(&p.fd);

	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_true(read(p.fd, buf, sizeof(buf) - 1) > 0);
	assert_non_null(strstr(buf, ENGINE_ALIVE));
	link_destroy(l);
	close(p.fd);
}

static json_t *count(void *arg)
{
	return json_pack("{s:i}", "calls", ++*(int *)arg);
}

static void it_says_more_when_it_lives(void **state)
{
	size_t n;
	int peer, calls = 0;
	struct link *l = open_link(&peer);
	char *text;

	link_set_vitals(l, count, &calls);
	text = read_until(peer, "\"calls\":2}", &n);
	assert_non_null(strstr(text, ENGINE_ALIVE));
	free(text);
	link_set_vitals(l, NULL, NULL);
	calls = -1; /* nobody counts any more */
	text = read_until(peer, "\"params\":{}", &n);
	assert_int_equal(calls, -1);
	free(text);
	link_destroy(l);
	close(peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_come_in_order),
		cmocka_unit_test(a_receiver_that_reads),
		cmocka_unit_test(what_was_sent_arrives_before_the_end),
		cmocka_unit_test(a_reader_that_stands_still),
		cmocka_unit_test(stops_are_seen_where_they_wait),
		cmocka_unit_test(ends),
		cmocka_unit_test(it_says_that_it_lives),
		cmocka_unit_test(it_says_more_when_it_lives),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
