/* The link between two gpt2d: a listener and a member in one event loop, over the loopback. */
#include <netinet/in.h>

#include <event2/event.h>

#include "daemon/nodes/link.h"
#include "daemon/nodes/listener.h"
#include "daemon/nodes/tls.h"
#include "proto/protocol.h"
#include "tests/unit/test.h"

enum { LIMIT_S = 60, LARGE = 1 << 20, LAST = 1000 };

struct side {
	struct link *link;
	int messages;
	int64_t bytes;
	char down[256]; /* why; empty: not */
};

struct pair {
	struct event_base *base;
	char folder[64], key[96], other_key[96];
	struct tls *leader_tls, *member_tls;
	struct listener *listener;
	struct side leader, member;
	struct event *limit;
	int late;
};

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct pair *p = arg;

	p->late = 1;
	event_base_loopbreak(p->base);
}

static void on_message(struct link *link, const char *method, json_t *params, void *arg)
{
	struct side *s = arg;

	s->messages++;
	s->bytes += (int64_t)json_string_length(json_object_get(params, "text"));
}

static void on_down(struct link *link, const char *why, void *arg)
{
	struct side *s = arg;

	snprintf(s->down, sizeof(s->down), "%s", why);
	s->link = NULL;
	link_destroy(link);
}

static void on_up(struct link *link, void *arg)
{
	link_send(link, NODE_HELLO, json_pack("{si}", "node", 1));
}

static void on_hello(struct link *link, json_t *params, void *arg)
{
	struct pair *p = arg;

	assert_int_equal(link_peer(link), 1);
	assert_int_equal(json_integer_value(json_object_get(params, "node")), 1);
	p->leader.link = link;
	link_hand_over(link, on_message, on_down, &p->leader);
	link_keep(link);
}

/* Turns the loop until it is done, or fails. */
static void run_until(struct pair *p, bool (*done)(const struct pair *p))
{
	const struct timeval limit = {LIMIT_S, 0};

	event_add(p->limit, &limit);
	while (!done(p) && !p->late)
		event_base_loop(p->base, EVLOOP_ONCE);
	assert_false(p->late);
	event_del(p->limit);
}

static bool is_greeted(const struct pair *p)
{
	return p->leader.link != NULL;
}

static bool is_down(const struct pair *p)
{
	return p->member.down[0] != '\0';
}

static bool leader_is_down(const struct pair *p)
{
	return p->leader.down[0] != '\0';
}

static void write_key(const char *path, char byte, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (size_t i = 0; i < n; i++)
		fputc(byte, f);
	fclose(f);
	chmod(path, 0600);
}

static int begin(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	char error[512];

	strcpy(p->folder, "/tmp/test-link-XXXXXX");
	assert_non_null(mkdtemp(p->folder));
	snprintf(p->key, sizeof(p->key), "%s/key", p->folder);
	snprintf(p->other_key, sizeof(p->other_key), "%s/other", p->folder);
	write_key(p->key, 'k', 32);
	write_key(p->other_key, 'o', 32);
	p->base = event_base_new();
	p->limit = evtimer_new(p->base, on_limit, p);
	assert_int_equal(
		tls_create(&(struct tls_options){.key_file = p->key, .cluster = "c", .nodes = 3},
			&p->leader_tls, error, sizeof(error)),
		0);
	assert_int_equal(listener_create(&(struct listener_options){.base = p->base,
						 .tls = p->leader_tls,
						 .address = "127.0.0.1:0",
						 .hello = on_hello,
						 .arg = p},
				 &p->listener, error, sizeof(error)),
		0);
	*state = p;
	return 0;
}

static int end(void **state)
{
	struct pair *p = *state;

	link_destroy(p->leader.link);
	link_destroy(p->member.link);
	listener_destroy(p->listener);
	tls_destroy(p->leader_tls);
	tls_destroy(p->member_tls);
	event_free(p->limit);
	event_base_free(p->base);
	unlink(p->key);
	unlink(p->other_key);
	rmdir(p->folder);
	free(p);
	return 0;
}

static void join(struct pair *p, int node)
{
	const char *port = strrchr(listener_address(p->listener), ':') + 1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(port))};
	char error[512];

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(
		tls_create(&(struct tls_options){.key_file = p->key, .cluster = "c", .node = node},
			&p->member_tls, error, sizeof(error)),
		0);
	assert_int_equal(link_connect(&(struct link_options){.base = p->base,
					      .tls = p->member_tls,
					      .up = on_up,
					      .message = on_message,
					      .down = on_down,
					      .arg = &p->member},
				 (struct sockaddr *)&to, NULL, &p->member.link),
		0);
}

static void send_text(struct link *link, size_t n)
{
	char *text = malloc(n + 1);

	memset(text, 'x', n);
	text[n] = '\0';
	link_send(link, "text", json_pack("{ss}", "text", text));
	free(text);
}

static bool has_large(const struct pair *p)
{
	return p->leader.bytes == 4 * LARGE && p->member.bytes == LARGE;
}

static void test_messages_travel_both_ways(void **state)
{
	struct pair *p = *state;

	join(p, 1);
	run_until(p, is_greeted);
	send_text(p->leader.link, LARGE);
	for (int i = 0; i < 4; i++)
		send_text(p->member.link, LARGE);
	run_until(p, has_large);
}

/* What is sent before the end comes before the end. */
static void test_nothing_is_lost_at_the_end(void **state)
{
	struct pair *p = *state;

	join(p, 1);
	run_until(p, is_greeted);
	for (int i = 0; i < LAST; i++)
		send_text(p->leader.link, 100);
	link_finish(p->leader.link);
	run_until(p, is_down);
	assert_int_equal(p->member.messages, LAST);
	run_until(p, leader_is_down);
}

static void test_a_node_beyond_the_world_is_refused(void **state)
{
	struct pair *p = *state;

	join(p, 3);
	run_until(p, is_down);
	assert_non_null(strstr(p->member.down, "the leader knows no such node"));
	assert_null(p->leader.link);
}

/* Output is bounded: a peer that does not read is given up. */
static void test_a_peer_that_does_not_read(void **state)
{
	struct pair *p = *state;

	join(p, 1);
	run_until(p, is_greeted);
	for (int i = 0; i < 5 * PROTOCOL_LINE_MAX / LARGE; i++)
		send_text(p->leader.link, LARGE);
	run_until(p, leader_is_down);
	assert_string_equal(p->leader.down, "does not read its messages");
}

static void test_keys_that_are_refused(void **state)
{
	struct pair *p = *state;
	char error[512];

	write_key(p->other_key, 'o', 31);
	assert_int_equal(tls_check_key(p->other_key, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "31 bytes (expected 32 to 4096)"));
	write_key(p->other_key, 'o', 64);
	assert_int_equal(tls_check_key(p->other_key, error, sizeof(error)), 0);
	chmod(p->other_key, 0640);
	assert_int_equal(tls_check_key(p->other_key, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "mode 0640"));
	assert_int_equal(tls_check_key("/nonexistent", error, sizeof(error)), -EINVAL);
}

TEST_MAIN(cmocka_unit_test_setup_teardown(test_messages_travel_both_ways, begin, end),
	cmocka_unit_test_setup_teardown(test_nothing_is_lost_at_the_end, begin, end),
	cmocka_unit_test_setup_teardown(test_a_node_beyond_the_world_is_refused, begin, end),
	cmocka_unit_test_setup_teardown(test_a_peer_that_does_not_read, begin, end),
	cmocka_unit_test_setup_teardown(test_keys_that_are_refused, begin, end))
