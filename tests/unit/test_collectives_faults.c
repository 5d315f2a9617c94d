/*
 * What becomes of collectives when ranks disagree, stand still, die or never were there; what is
 * left on the machine afterwards; what opens a port and what does not.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/ucx_address.h"
#include "tests/unit/ranks.h"

static const int64_t second_ns = 1000 * 1000 * 1000;
enum { TEXT_BYTES = 512 };

/* The error of a rank, for the caller to look at. */
static void keep_error(struct ranks_self *self)
{
	const char *error = collectives_error(self->c);

	snprintf(self->shared + self->rank * TEXT_BYTES, TEXT_BYTES, "%s",
		error == NULL ? "" : error);
}

static const char *error_of(const struct ranks_end *end, int rank)
{
	return end->shared + rank * TEXT_BYTES;
}

static bool shared_memory(void)
{
	const char *transports = getenv("UCX_TLS");

	return transports == NULL || strcmp(transports, "tcp") != 0;
}

static void nap_us(int64_t us)
{
	nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* Large and small collectives until one fails, or `rounds` are over. */
static void work(struct ranks_self *self, int rounds)
{
	enum { N = 12 * 100000 };
	float *x = calloc(N, sizeof *x);
	int64_t flag = 0;

	for (int i = 0; x != NULL && i < rounds && collectives_error(self->c) == NULL; i++) {
		collectives_reduce_scatter(self->all, x, N, self->comm);
		collectives_all_gather(self->all, x, N, self->comm);
		collectives_all_reduce(
			self->all, &flag, 1, COLLECTIVES_INT64, COLLECTIVES_MAX, self->comm);
		k_stream_sync(self->comm, 100 * second_ns);
	}
	free(x);
}

/* ---- a rank that stands still ---- */

static int one_stands_still(struct ranks_self *self)
{
	_Atomic int *reported = (_Atomic int *)(void *)(self->shared + RANKS_SHARED_BYTES - 64);
	float x[12] = {0};

	collectives_barrier(self->all, self->compute);
	if (self->rank == 2) {
		while (atomic_load(reported) < 2)
			nap_us(1000);
		return 0;
	}
	collectives_reduce_scatter(self->all, x, 12, self->comm);
	k_stream_sync(self->comm, 100 * second_ns);
	keep_error(self);
	/* what comes later does nothing: with the deadline of 0.3 s, 10,000 waits would show */
	for (int i = 0; i < 10000; i++) {
		collectives_all_gather(self->all, x, 12, self->comm);
		collectives_barrier(self->all, self->compute);
	}
	k_stream_sync(self->comm, 100 * second_ns);
	atomic_fetch_add(reported, 1);
	return 0;
}

static void test_timeout(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {.world = 3,
		.timeout_ns = 300 * 1000 * 1000,
		.limit_ns = 60 * second_ns,
		.fn = one_stands_still};
	const char *text = "rank 2: no message for 0.3 s in reduce_scatter";

	assert_int_equal(ranks_run(&options, &end), 0);
	for (int r = 0; r < 3; r++)
		assert_int_equal(end.exit_status[r], 0);
	for (int r = 0; r < 2; r++)
		assert_memory_equal(error_of(&end, r), text, strlen(text));
}

/* The communication stream stands still on one rank: what the caller issues after it must not hang.
 */
static void hold(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		nap_us(1000);
}

static int earlier_never_runs(struct ranks_self *self)
{
	atomic_bool go_on = false;

	if (self->rank == 0)
		k_stream_host(self->comm, hold, &go_on);
	collectives_barrier(self->all, self->comm);
	collectives_barrier(self->all, self->compute);
	keep_error(self);
	atomic_store(&go_on, true);
	k_stream_sync(self->comm, 100 * second_ns);
	return 0;
}

static void test_earlier_never_runs(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {.world = 2,
		.timeout_ns = 300 * 1000 * 1000,
		.limit_ns = 60 * second_ns,
		.fn = earlier_never_runs};

	assert_int_equal(ranks_run(&options, &end), 0);
	assert_int_equal(end.exit_status[0], 0);
	assert_int_equal(end.exit_status[1], 0);
	assert_non_null(strstr(error_of(&end, 0), "rank "));
	assert_non_null(strstr(error_of(&end, 1), "rank 0: no message for 0.3 s in barrier"));
}

/* ---- a rank that dies ---- */

static void *kill_later(void *arg)
{
	nap_us(*(const int64_t *)arg);
	kill(getpid(), SIGKILL);
	return NULL;
}

static int one_dies(struct ranks_self *self)
{
	int64_t after_us = *(const int64_t *)self->arg;
	pthread_t thread;

	collectives_barrier(self->all, self->compute);
	if (self->rank == 1 && pthread_create(&thread, NULL, kill_later, &after_us) != 0)
		return 1;
	work(self, 1000000);
	keep_error(self);
	return collectives_error(self->c) == NULL;
}

/* The deadline is far away: the others learn it from the end of the process or of the connection.
 */
static void test_killed_peer(void **state)
{
	static struct ranks_end end;

	for (int i = 0; i < 12; i++) {
		int64_t after_us = i * i * 700 + i * 37;
		struct ranks_options options = {.world = 2 + i % 3,
			.timeout_ns = 100 * second_ns,
			.limit_ns = 40 * second_ns,
			.fn = one_dies,
			.arg = &after_us};

		assert_int_equal(ranks_run(&options, &end), 0);
		for (int r = 0; r < options.world; r++) {
			if (r == 1) {
				assert_int_equal(end.exit_status[r], -SIGKILL);
				continue;
			}
			assert_int_equal(end.exit_status[r], 0);
			if (strncmp(error_of(&end, r), "rank 1: ", 8) != 0 ||
				strstr(error_of(&end, r), "no message") != NULL)
				fail_msg("rank %d: %s", r, error_of(&end, r));
		}
	}
}

static int stops_for_ever(struct ranks_self *self)
{
	collectives_barrier(self->all, self->compute);
	if (self->rank == 1)
		raise(SIGSTOP);
	work(self, 1000000);
	keep_error(self);
	return collectives_error(self->c) == NULL;
}

static void test_stopped_peer(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {.world = 3,
		.timeout_ns = 300 * 1000 * 1000,
		.limit_ns = 3 * second_ns,
		.fn = stops_for_ever};

	assert_int_equal(ranks_run(&options, &end), 0);
	assert_int_equal(end.exit_status[0], 0);
	assert_int_equal(end.exit_status[1], -1000);
	assert_int_equal(end.exit_status[2], 0);
	assert_memory_equal(error_of(&end, 0), "rank 1: ", 8);
	assert_memory_equal(error_of(&end, 2), "rank 1: ", 8);
}

/* ---- ranks that disagree ---- */

static void issue_variant(struct ranks_self *self, int variant, char *buf, int64_t n)
{
	switch (variant) {
	case 0:
		collectives_reduce_scatter(self->all, buf, n, self->comm);
		break;
	case 1:
		collectives_all_gather(self->all, buf, n, self->comm);
		break;
	case 2:
		collectives_all_reduce(
			self->all, buf, n, COLLECTIVES_ELEM, COLLECTIVES_SUM, self->comm);
		break;
	case 3:
		collectives_all_reduce(
			self->all, buf, n / 2, COLLECTIVES_INT64, COLLECTIVES_SUM, self->comm);
		break;
	case 4:
		collectives_all_reduce(
			self->all, buf, n / 2, COLLECTIVES_INT64, COLLECTIVES_MAX, self->comm);
		break;
	case 5:
		collectives_broadcast(self->all, buf, (size_t)n, 0, self->comm);
		break;
	case 6:
		collectives_broadcast(self->all, buf, (size_t)n, 1, self->comm);
		break;
	default:
		collectives_barrier(self->all, self->comm);
	}
}

struct disagreement {
	int here, there;
	int64_t n_here, n_there;
};

/* Rank world - 1 takes the other side; its bytes must not be in anybody's buffer. */
static int disagree(struct ranks_self *self)
{
	const struct disagreement *d = self->arg;
	bool odd = self->rank == self->world - 1;
	size_t bytes = (size_t)(d->n_here > d->n_there ? d->n_here : d->n_there) * 4;
	char *buf = malloc(bytes);

	if (buf == NULL)
		return 1;
	memset(buf, odd ? 'X' : 0, bytes);
	issue_variant(self, odd ? d->there : d->here, buf, odd ? d->n_there : d->n_here);
	k_stream_sync(self->comm, 100 * second_ns);
	keep_error(self);
	if (!odd && memchr(buf, 'X', bytes) != NULL)
		return 2;
	free(buf);
	return collectives_error(self->c) == NULL ? 3 : 0;
}

/* A rank still at its hellos hears of the others' failure there. */
static int heard_early(struct ranks_self *self, int status, const char *error)
{
	snprintf(self->shared + self->rank * TEXT_BYTES, TEXT_BYTES, "%s", error);
	return status == -ECANCELED ? 0 : 6;
}

static void test_disagreement(void **state)
{
	static const struct disagreement cases[] = {
		{0, 1, 1200000, 1200000},
		{0, 0, 1200, 2400},
		{0, 0, 1200000, 2400000},
		{1, 1, 2400000, 1200},
		{2, 0, 1200, 1200},
		{3, 4, 240, 240},
		{3, 2, 240000, 240000},
		{5, 6, 120000, 120000},
		{7, 5, 12, 12},
	};
	static struct ranks_end end;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ranks_options options = {.world = 2 + (int)i % 3,
			.timeout_ns = 30 * second_ns,
			.limit_ns = 20 * second_ns,
			.fn = disagree,
			.refused = heard_early,
			.arg = &cases[i]};

		assert_int_equal(ranks_run(&options, &end), 0);
		for (int r = 0; r < options.world; r++) {
			assert_int_equal(end.exit_status[r], 0);
			if (strstr(error_of(&end, r), "collective 0 there is ") == NULL)
				fail_msg("rank %d: %s", r, error_of(&end, r));
		}
	}
}

static int does_not_divide(struct ranks_self *self)
{
	float x[3] = {1, 2, 3};

	collectives_reduce_scatter(self->all, x, 3, self->comm);
	k_stream_sync(self->comm, 100 * second_ns);
	keep_error(self);
	return 0;
}

static void test_does_not_divide(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {.world = 2,
		.timeout_ns = 30 * second_ns,
		.limit_ns = 20 * second_ns,
		.fn = does_not_divide};

	assert_int_equal(ranks_run(&options, &end), 0);
	assert_int_equal(end.exit_status[0], 0);
	assert_string_equal(error_of(&end, 0),
		"rank 0: reduce_scatter of 3 elements, a multiple of 2 expected");
}

/* ---- bootstrap ---- */

static int must_not_connect(struct ranks_self *self)
{
	return 5;
}

static int keep_refusal(struct ranks_self *self, int status, const char *error)
{
	snprintf(self->shared + self->rank * TEXT_BYTES, TEXT_BYTES, "%s", error);
	return self->arg == NULL || status == *(const int *)self->arg ? 0 : 6;
}

static void other_setting(int rank)
{
	setenv("UCX_PROTO_ENABLE", rank == 1 ? "y" : "n", 1);
}

static void test_settings_differ(void **state)
{
	static struct ranks_end end;
	int expected = -EPROTO;
	struct ranks_options options = {.world = 2,
		.timeout_ns = 30 * second_ns,
		.limit_ns = 20 * second_ns,
		.before = other_setting,
		.fn = must_not_connect,
		.refused = keep_refusal,
		.arg = &expected};

	assert_int_equal(ranks_run(&options, &end), 0);
	assert_int_equal(end.exit_status[0], 0);
	assert_int_equal(end.exit_status[1], 0);
	assert_string_equal(
		error_of(&end, 0), "rank 0 and rank 1: UCX_PROTO_ENABLE n here, y there");
	assert_string_equal(
		error_of(&end, 1), "rank 1 and rank 0: UCX_PROTO_ENABLE y here, n there");
}

static void test_peer_never_connects(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {.world = 3,
		.timeout_ns = 30 * second_ns,
		.limit_ns = 20 * second_ns,
		.fn = must_not_connect,
		.refused = keep_refusal,
		.absent = 1};

	assert_int_equal(ranks_run(&options, &end), 0);
	for (int r = 0; r < 2; r++) {
		assert_int_equal(end.exit_status[r], 0);
		if (strstr(error_of(&end, r), "rank 2") == NULL)
			fail_msg("rank %d: %s", r, error_of(&end, r));
	}
}

static void test_address_text(void **state)
{
	static const char base64[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
	char worker[] = "\0\n\nworker \xff address";
	struct ucx_address a = {.rank = 3,
		.world = 4,
		.nonce = UINT64_MAX,
		.pid = 12,
		.host = "boot/pid:[1]",
		.settings = "UCX 1.13.1\nUCX_TLS self,sm\n",
		.worker = worker};
	struct ucx_address b, other;
	char error[200];

	for (size_t bytes = 1; bytes <= sizeof worker; bytes++) {
		char *text;

		a.worker_bytes = bytes;
		text = ucx_address_format(&a);
		assert_non_null(text);
		assert_int_equal(strspn(text, base64), strlen(text));
		assert_int_equal(ucx_address_parse(text, &b), 0);
		assert_int_equal(b.worker_bytes, bytes);
		assert_memory_equal(b.worker, worker, bytes);
		assert_true(b.rank == 3 && b.world == 4 && b.nonce == UINT64_MAX && b.pid == 12);
		assert_string_equal(b.host, a.host);
		assert_string_equal(b.settings, a.settings);
		assert_int_equal(ucx_address_compare(&a, &b, error, sizeof error), 0);
		free(b.worker);
		/* no prefix of it is an address, nor a text with a byte that is not base64 */
		for (size_t n = 0; n < strlen(text) - 40; n++) {
			char *part = strndup(text, n);

			assert_int_equal(ucx_address_parse(part, &b), -EINVAL);
			free(part);
		}
		text[5] = '*';
		assert_int_equal(ucx_address_parse(text, &b), -EINVAL);
		free(text);
	}
	other = a;
	snprintf(other.settings, sizeof other.settings, "UCX 1.16.0\nUCX_TLS self,sm\n");
	assert_int_equal(ucx_address_compare(&a, &other, error, sizeof error), -EPROTO);
	assert_string_equal(error, "UCX 1.13.1 here, 1.16.0 there");
	snprintf(other.settings, sizeof other.settings, "UCX 1.13.1\n");
	assert_int_equal(ucx_address_compare(&a, &other, error, sizeof error), -EPROTO);
	assert_string_equal(error, "UCX_TLS self,sm here, unset there");
	assert_int_equal(ucx_address_compare(&other, &a, error, sizeof error), -EPROTO);
	assert_string_equal(error, "UCX_TLS unset here, self,sm there");
}

/* ---- what is left, what is opened ---- */

/* Does the line of a /proc/net table belong to a socket that this process holds? */
static bool holds_socket(const char *inode)
{
	char path[64], link[64], wanted[64];
	bool found = false;

	snprintf(wanted, sizeof wanted, "socket:[%s]", inode);
	for (int fd = 0; fd < 1024 && !found; fd++) {
		ssize_t n;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof link - 1);
		link[n > 0 ? n : 0] = '\0';
		found = strcmp(link, wanted) == 0;
	}
	return found;
}

/* Sockets of this process in a table; those not bound to 127.0.0.1 in *abroad. */
static int count_sockets(const char *table, int *abroad)
{
	char line[512], address[80], inode[32];
	int count = 0;
	FILE *f = fopen(table, "r");

	if (f == NULL)
		return 0;
	while (fgets(line, sizeof line, f) != NULL) {
		if (sscanf(line, "%*s %79s %*s %*s %*s %*s %*s %*s %*s %31s", address, inode) !=
				2 ||
			!holds_socket(inode))
			continue;
		count++;
		*abroad += strncmp(address, "0100007F:", 9) != 0;
	}
	fclose(f);
	return count;
}

static int count_ports(struct ranks_self *self)
{
	int abroad = 0, all;

	collectives_barrier(self->all, self->compute);
	all = count_sockets("/proc/self/net/tcp", &abroad);
	all += count_sockets("/proc/self/net/tcp6", &abroad);
	all += count_sockets("/proc/self/net/udp", &abroad);
	all += count_sockets("/proc/self/net/udp6", &abroad);
	collectives_barrier(self->all, self->compute);
	snprintf(self->shared + self->rank * TEXT_BYTES, TEXT_BYTES, "%d %d %s", all, abroad,
		collectives_library(self->c));
	return 0;
}

static void test_ports(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {.world = 2,
		.timeout_ns = 30 * second_ns,
		.limit_ns = 20 * second_ns,
		.fn = count_ports};
	int all, abroad;

	assert_int_equal(ranks_run(&options, &end), 0);
	for (int r = 0; r < 2; r++) {
		assert_int_equal(end.exit_status[r], 0);
		assert_int_equal(sscanf(error_of(&end, r), "%d %d", &all, &abroad), 2);
		assert_int_equal(abroad, 0);
		if (shared_memory()) {
			assert_int_equal(all, 0);
			assert_non_null(strstr(error_of(&end, r), "(self,posix,cma)"));
		} else {
			assert_true(all > 0);
			assert_non_null(strstr(error_of(&end, r), "(tcp)"));
		}
	}
}

/* Whatever is in the directory, and segments of System V shared memory made by one of the
 * processes. */
static int count_left_over(const char *parent, const pid_t *makers, int n)
{
	char line[256];
	int count = 0, maker;
	struct dirent *entry;
	DIR *dir = opendir(parent);
	FILE *f = fopen("/proc/sysvipc/shm", "r");

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		count += entry->d_name[0] != '.';
	if (dir != NULL)
		closedir(dir);
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "%*d %*d %*o %*u %d", &maker) == 1)
			for (int i = 0; i < n; i++)
				count += makers[i] == maker;
	if (f != NULL)
		fclose(f);
	return count;
}

static int all_die(struct ranks_self *self)
{
	work(self, 1000000);
	pause();
	return 0;
}

static int refused_and_die(struct ranks_self *self, int status, const char *error)
{
	pause();
	return 0;
}

static int64_t death_us;

static void die_later(int rank)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, kill_later, &death_us) == 0)
		pthread_detach(thread);
}

static int once_more(struct ranks_self *self)
{
	const char *parent = getenv("GPT2D_TEST_SHM");
	int there = count_left_over(parent, NULL, 0);

	work(self, 2);
	return there == (shared_memory() ? 1 : 0) ? 0 : 7;
}

/*
 * 50 times all ranks are killed, at moments from the making of the context to the middle of the
 * work; after the next orderly run there is no trace of them.
 */
static void test_nothing_left(void **state)
{
	enum { KILLS = 50 };
	static struct ranks_end end;
	char parent[] = "/dev/shm/gpt2d-test-XXXXXX";
	struct ranks_options orderly = {.world = 2,
		.timeout_ns = 30 * second_ns,
		.limit_ns = 20 * second_ns,
		.fn = once_more};
	pid_t makers[2 * KILLS];

	assert_non_null(mkdtemp(parent));
	setenv("UCX_POSIX_DIR", parent, 1);
	setenv("GPT2D_TEST_SHM", parent, 1);
	for (int i = 0; i < KILLS; i++) {
		struct ranks_options options = {.world = 2,
			.timeout_ns = 30 * second_ns,
			.limit_ns = 20 * second_ns,
			.before = die_later,
			.fn = all_die,
			.refused = refused_and_die};

		death_us = i * 700;
		assert_int_equal(ranks_run(&options, &end), 0);
		for (int r = 0; r < 2; r++)
			/* UCX 1.13 may abort when tcp is refused by the other, dead already */
			if (end.exit_status[r] != -SIGKILL &&
				(shared_memory() || end.exit_status[r] != -SIGABRT))
				fail_msg("rank %d: status %d", r, end.exit_status[r]);
		memcpy(makers + 2 * i, end.pids, 2 * sizeof *makers);
	}
	assert_int_equal(ranks_run(&orderly, &end), 0);
	assert_int_equal(end.exit_status[0], 0);
	assert_int_equal(end.exit_status[1], 0);
	unsetenv("UCX_POSIX_DIR");
	assert_int_equal(count_left_over(parent, makers, 2 * KILLS), 0);
	assert_int_equal(rmdir(parent), 0);
}

/* A world of one: nothing of UCX, every call a no-op. */
static int alone(struct ranks_self *self)
{
	float x[3] = {1, 2, 3}, y[3] = {0};

	collectives_reduce_scatter(self->all, x, 3, self->comm);
	collectives_all_gather(self->all, x, 3, self->comm);
	collectives_all_reduce(self->all, x, 3, COLLECTIVES_ELEM, COLLECTIVES_SUM, self->comm);
	collectives_broadcast(self->all, x, sizeof x, 0, self->comm);
	collectives_barrier(self->all, self->compute);
	collectives_gather_all(self->all, y, x, sizeof x, self->comm);
	if (k_stream_sync(self->comm, second_ns) != 0 || memcmp(x, y, sizeof x) != 0 ||
		x[0] + x[1] + x[2] != 6 || collectives_error(self->c) != NULL ||
		collectives_scratch_bytes(1) != 0)
		return 1;
	snprintf(self->shared, TEXT_BYTES, "%s%s", collectives_address(self->c),
		collectives_library(self->c));
	return 0;
}

static void test_alone(void **state)
{
	static struct ranks_end end;
	struct ranks_options options = {
		.world = 1, .timeout_ns = second_ns, .limit_ns = 20 * second_ns, .fn = alone};

	assert_int_equal(ranks_run(&options, &end), 0);
	assert_int_equal(end.exit_status[0], 0);
	assert_string_equal(end.shared, "none (1 rank)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_text),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_earlier_never_runs),
		cmocka_unit_test(test_stopped_peer),
		cmocka_unit_test(test_disagreement),
		cmocka_unit_test(test_does_not_divide),
		cmocka_unit_test(test_settings_differ),
		cmocka_unit_test(test_peer_never_connects),
		cmocka_unit_test(test_killed_peer),
		cmocka_unit_test(test_nothing_left),
	};

	return cmocka_run_group_tests_name("collectives_faults", tests, NULL, NULL);
}
