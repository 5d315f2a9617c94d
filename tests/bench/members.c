/*
 * Simulated members of several nodes, in one process: each has a real link to the leader (TLS 1.3
 * with the key), says hello, answers heartbeats, and reports engines that it does not have. The
 * engines are ready at once and alive each second, as real ones are. `scale` starts it.
 *
 *   bench_members ADDRESS PORT KEY_FILE CLUSTER MEMBERS RANKS
 *
 * Prints "joined N SECONDS" and "connected N SECONDS" (the engines have each other's addresses),
 * both since its start. For a line on stdin it prints what all members received and sent so far:
 * "counted MESSAGES BYTES MESSAGES BYTES ATTEMPTS". Bytes are those of params. It ends with stdin.
 */
#include <arpa/inet.h>
#include <event2/event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/nodes/facts.h"
#include "daemon/nodes/link.h"
#include "daemon/nodes/tls.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

/* As relay.c tries again. */
enum { RETRY_FIRST_MS = 50, RETRY_MAX_MS = 1000 };

/* Of a CPU engine with UCX 1.13, tcp and shared memory; engine.connect has that of all ranks. */
enum { ADDRESS_BYTES = 784 };

struct traffic {
	int64_t messages, bytes;
};

struct members {
	struct event_base *base;
	struct sockaddr_in to;
	int n, ranks;
	int joined, connected;
	int64_t attempts, start_ns;
	struct traffic received, sent;
	struct member *member;
	json_t *facts;
};

struct member {
	struct members *all;
	int node;
	struct tls *tls;
	struct link *link; /* NULL: none */
	struct event *timer;
	int retry_ms;
	bool joined;
	int64_t epoch; /* of its engines; 0: none run */
};

static void count(struct traffic *t, const json_t *params)
{
	t->messages++;
	t->bytes += (int64_t)json_dumpb(params, NULL, 0, JSON_COMPACT);
}

static void send_params(struct member *m, const char *method, json_t *params)
{
	count(&m->all->sent, params);
	link_send(m->link, method, params);
}

static void note(const struct members *all, const char *what, int n)
{
	printf("%s %d %.3f\n", what, n, (double)(clock_mono_ns() - all->start_ns) / 1e9);
	fflush(stdout);
}

/* ---- engines ---- */

static void report(struct member *m, int place, const char *method, json_t *params)
{
	json_object_set_new(params, "epoch", json_integer((json_int_t)m->epoch));
	json_object_set_new(params, "rank", json_integer(m->node * m->all->ranks + place));
	send_params(m, method, params);
}

static void say(struct member *m, int place, const char *method, json_t *params)
{
	report(m, place, NODE_SAID, json_pack("{ss so}", "method", method, "params", params));
}

static void start_engines(struct member *m, const json_t *params)
{
	char address[ADDRESS_BYTES + 1];

	m->epoch = json_integer_value(json_object_get(params, "epoch"));
	for (int i = 0; i < m->all->ranks; i++) {
		const int rank = m->node * m->all->ranks + i;

		snprintf(address, sizeof(address), "%0*d", ADDRESS_BYTES, rank);
		report(m, i, NODE_STARTED, json_pack("{si}", "pid", (int)getpid()));
		say(m, i, ENGINE_HELLO,
			json_pack("{si ss si si ss s{ss ss ss si si}}", "protocol",
				PROTOCOL_VERSION, "role", "rank", "rank", rank, "pid",
				(int)getpid(), "address", address, "device", "backend", "cpu",
				"name", "simulated", "library", "none", "memory_total_bytes", 1,
				"memory_free_bytes", 1));
	}
}

static void end_engines(struct member *m)
{
	for (int i = 0; i < m->all->ranks && m->epoch > 0; i++)
		report(m, i, NODE_ENDED,
			json_pack("{ss sb}", "end", "exited with status 0", "blames_peer", 0));
	m->epoch = 0;
}

static void take_order(struct member *m, const json_t *params)
{
	const char *method = json_string_value(json_object_get(params, "method"));

	if (method != NULL && strcmp(method, ENGINE_CONNECT) == 0) {
		for (int i = 0; i < m->all->ranks; i++)
			say(m, i, ENGINE_READY, json_object());
		if (++m->all->connected == m->all->n)
			note(m->all, "connected", m->all->n);
	} else if (method != NULL && strcmp(method, ENGINE_EXIT) == 0) {
		end_engines(m);
	}
}

/* ---- the link ---- */

static void on_message(struct link *link, const char *method, json_t *params, void *arg)
{
	struct member *m = arg;
	json_t *back;

	count(&m->all->received, params);
	if (strcmp(method, NODE_ALIVE) == 0) {
		back = json_copy(params);
		json_object_set_new(back, "utc_ns", json_integer((json_int_t)clock_utc_ns()));
		send_params(m, NODE_ALIVE, back);
	} else if (strcmp(method, NODE_WELCOME) == 0) {
		link_keep(link);
		m->joined = true;
		if (++m->all->joined == m->all->n)
			note(m->all, "joined", m->all->n);
	} else if (strcmp(method, NODE_START) == 0) {
		start_engines(m, params);
	} else if (strcmp(method, NODE_SEND) == 0) {
		take_order(m, params);
	} else if (strcmp(method, NODE_KILL) == 0) {
		end_engines(m);
	} else if (strcmp(method, NODE_CHECK) == 0) {
		send_params(m, NODE_CHECKED,
			json_pack("{sO s[]}", "id", json_object_get(params, "id"), "errors"));
	} else if (strcmp(method, NODE_REFUSED) == 0) {
		fprintf(stderr, "node %d: refused: %s\n", m->node,
			json_string_value(json_object_get(params, "reason")));
	}
}

static void on_up(struct link *link, void *arg)
{
	struct member *m = arg;
	json_t *hello = json_copy(m->all->facts);

	json_object_set_new(hello, "protocol", json_integer(PROTOCOL_VERSION));
	json_object_set_new(hello, "node", json_integer(m->node));
	json_object_set_new(hello, "ranks", json_integer(m->all->ranks));
	send_params(m, NODE_HELLO, hello);
}

static void wait_ms(struct member *m, int ms)
{
	const struct timeval t = {ms / 1000, ms % 1000 * 1000};

	evtimer_add(m->timer, &t);
}

static void try_later(struct member *m)
{
	m->all->joined -= m->joined;
	m->joined = false;
	m->epoch = 0;
	wait_ms(m, m->retry_ms);
	m->retry_ms = m->retry_ms * 2 < RETRY_MAX_MS ? m->retry_ms * 2 : RETRY_MAX_MS;
}

static void on_down(struct link *link, const char *why, void *arg)
{
	struct member *m = arg;

	if (m->joined)
		fprintf(stderr, "node %d: lost the leader: %s\n", m->node, why);
	m->link = NULL;
	link_destroy(link);
	try_later(m);
}

/* The time of the next attempt to join, or a second in which engines are alive. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct member *m = arg;
	const struct link_options options = {.base = m->all->base,
		.tls = m->tls,
		.up = on_up,
		.message = on_message,
		.down = on_down,
		.arg = m};

	if (m->link == NULL) {
		m->all->attempts++;
		if (link_connect(&options, (const struct sockaddr *)(const void *)&m->all->to, NULL,
			    &m->link) < 0) {
			try_later(m);
			return;
		}
	}
	for (int i = 0; i < m->all->ranks && m->epoch > 0; i++)
		say(m, i, ENGINE_ALIVE, json_object());
	wait_ms(m, 1000);
}

/* ---- */

static void on_stdin(evutil_socket_t fd, short what, void *arg)
{
	struct members *all = arg;
	char line[64];

	if (read(fd, line, sizeof(line)) <= 0) {
		event_base_loopbreak(all->base);
		return;
	}
	printf("counted %lld %lld %lld %lld %lld\n", (long long)all->received.messages,
		(long long)all->received.bytes, (long long)all->sent.messages,
		(long long)all->sent.bytes, (long long)all->attempts);
	fflush(stdout);
}

static void start_member(struct members *all, int node, const char *key_file, const char *cluster)
{
	struct member *m = &all->member[node - 1];
	char error[512];

	*m = (struct member){.all = all, .node = node, .retry_ms = RETRY_FIRST_MS};
	if (tls_create(
		    &(struct tls_options){.key_file = key_file, .cluster = cluster, .node = node},
		    &m->tls, error, sizeof(error)) != 0) {
		fprintf(stderr, "%s\n", error);
		exit(1);
	}
	m->timer = evtimer_new(all->base, on_timer, m);
}

int main(int argc, char **argv)
{
	struct members all = {.base = event_base_new(), .to = {.sin_family = AF_INET}};
	struct event *input =
		event_new(all.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_stdin, &all);

	if (argc != 7 || inet_pton(AF_INET, argv[1], &all.to.sin_addr) != 1) {
		fprintf(stderr,
			"usage: bench_members ADDRESS PORT KEY_FILE CLUSTER MEMBERS RANKS\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	all.to.sin_port = htons((in_port_t)atoi(argv[2]));
	all.n = atoi(argv[5]);
	all.ranks = atoi(argv[6]);
	all.facts = facts_json();
	all.member = memory_zeroed((size_t)all.n, sizeof(*all.member));
	for (int node = 1; node <= all.n; node++)
		start_member(&all, node, argv[3], argv[4]);
	all.start_ns = clock_mono_ns();
	for (int node = 1; node <= all.n; node++)
		wait_ms(&all.member[node - 1], 0);
	event_add(input, NULL);
	event_base_dispatch(all.base);
	for (int i = 0; i < all.n; i++) {
		link_destroy(all.member[i].link);
		tls_destroy(all.member[i].tls);
		event_free(all.member[i].timer);
	}
	event_free(input);
	event_base_free(all.base);
	json_decref(all.facts);
	free(all.member);
	return 0;
}
