/*
 * What becomes of collectives when ranks disagree, stand still, die or never were there; what is
 * left on the machine afterwards; what opens a port and what does not.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "engine/comm/ucx_address.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/test.h"

static const int64_t second_ns = 1000 * 1000 * 1000;
static const int64_t limit_ns = INT64_C(60) * 1000 * 1000 * 1000;
enum { TEXT_BYTES = RANKS_TEXT_BYTES };
static struct ranks_end end;

#define RUN(...) assert_int_equal(ranks_run(&(struct ranks_options){__VA_ARGS__}, &end), 0)

/* These ranks ended with status 0. */
static void ended_well(int first, int last)
{
	for (int r = first; r <= last; r++)
		assert_int_equal(end.exit_status[r], 0);
}

static void begins(int rank, const char *text)
{
	assert_memory_equal(ranks_error_of(&end, rank), text, strlen(text));
}

/* ---- a rank that is stopped ---- */

static int one_stands_still(struct ranks_self *self)
{
	_Atomic int *reported = (_Atomic int *)(void *)(self->shared + RANKS_SHARED_BYTES - 64);
	float x[12] = {0};

	collectives_barrier(self->all, self->compute);
	if (self->rank == 2) {
		while (atomic_load(reported) < 2)
			ranks_nap_us(1000);
		return 0;
	}
	collectives_reduce_scatter(self->all, x, 12, self->comm);
	k_stream_sync(self->comm, limit_ns);
	ranks_keep_error(self);
	/* what comes later does nothing: with the deadline of 3 s, 10,000 waits would show */
	for (int i = 0; i < 10000; i++) {
		collectives_all_gather(self->all, x, 12, self->comm);
		collectives_barrier(self->all, self->compute);
	}
	k_stream_sync(self->comm, limit_ns);
	atomic_fetch_add(reported, 1);
	return 0;
}

static void test_timeout(void **state)
{
	RUN(.world = 3, .timeout_ns = 3 * second_ns, .fn = one_stands_still);
	ended_well(0, 2);
	for (int r = 0; r < 2; r++)
		begins(r, "rank 2: no message for 3 s in reduce_scatter");
}

/* The communication stream is blocked on one rank: later calls of the caller must not hang. */
static void hold(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		ranks_nap_us(1000);
}

static int earlier_never_runs(struct ranks_self *self)
{
	atomic_bool go_on = false;

	if (self->rank == 0)
		k_stream_host(self->comm, hold, &go_on);
	collectives_barrier(self->all, self->comm);
	collectives_barrier(self->all, self->compute);
	ranks_keep_error(self);
	atomic_store(&go_on, true);
	k_stream_sync(self->comm, limit_ns);
	return 0;
}

static void test_earlier_never_runs(void **state)
{
	static const char stuck[] =
		"rank 0: barrier: the collectives issued before it did not run for 3 s";
	static const char silent[] = "rank 0: no message for 3 s in barrier";

	RUN(.world = 2, .timeout_ns = 3 * second_ns, .fn = earlier_never_runs);
	ended_well(0, 1);
	/* each by its own deadline, or by the other's word when that was first */
	for (int r = 0; r < 2; r++)
		if (strncmp(ranks_error_of(&end, r), stuck, strlen(stuck)) != 0 &&
			strncmp(ranks_error_of(&end, r), silent, strlen(silent)) != 0)
			fail_msg("rank %d: %s", r, ranks_error_of(&end, r));
}

/* ---- a rank that dies ---- */

static int one_dies(struct ranks_self *self)
{
	int64_t after_us = *(const int64_t *)self->arg;
	pthread_t thread;

	collectives_barrier(self->all, self->compute);
	if (self->rank == 1 && pthread_create(&thread, NULL, ranks_kill_later, &after_us) != 0)
		return 1;
	ranks_work(self, 1000000);
	ranks_keep_error(self);
	return collectives_error(self->c) == NULL;
}

/*
 * The deadline is far away: the others learn it from the end of the process or of the connection.
 */
static void test_killed_peer(void **state)
{

	for (int i = 0; i < 12; i++) {
		int64_t after_us = i * i * 700 + i * 37;

		RUN(.world = 2 + i % 3, .timeout_ns = 100 * second_ns, .fn = one_dies,
			.arg = &after_us);
		for (int r = 0; r < 2 + i % 3; r++) {
			if (r == 1) {
				assert_int_equal(end.exit_status[r], -SIGKILL);
				continue;
			}
			assert_int_equal(end.exit_status[r], 0);
			if (strncmp(ranks_error_of(&end, r), "rank 1: ", 8) != 0 ||
				strstr(ranks_error_of(&end, r), "no message") != NULL)
				fail_msg("rank %d: %s", r, ranks_error_of(&end, r));
		}
	}
}

static int stops_for_ever(struct ranks_self *self)
{
	collectives_barrier(self->all, self->compute);
	if (self->rank == 1)
		raise(SIGSTOP);
	ranks_work(self, 1000000);
	ranks_keep_error(self);
	return collectives_error(self->c) == NULL;
}

static void test_stopped_peer(void **state)
{

	RUN(.world = 3, .timeout_ns = 3 * second_ns, .fn = stops_for_ever);
	assert_int_equal(end.exit_status[1], -1000);
	for (int r = 0; r <= 2; r += 2) {
		ended_well(r, r);
		begins(r, "rank 1: ");
	}
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
	k_stream_sync(self->comm, limit_ns);
	ranks_keep_error(self);
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

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {

		int named = 0;

		RUN(.world = 2 + (int)i % 3, .fn = disagree, .refused = heard_early,
			.arg = &cases[i]);
		for (int r = 0; r < 2 + (int)i % 3; r++) {
			bool cause =
				strstr(ranks_error_of(&end, r), "collective 0 there is ") != NULL;

			assert_int_equal(end.exit_status[r], 0);
			named += cause;
			/* over tcp the end of the others may overtake their report */
			if (!cause &&
				(ranks_shared_memory() ||
					strncmp(ranks_error_of(&end, r), "rank ", 5) != 0))
				fail_msg("rank %d: %s", r, ranks_error_of(&end, r));
		}
		assert_true(named > 0);
	}
}

static int does_not_divide(struct ranks_self *self)
{
	float x[3] = {1, 2, 3};

	collectives_reduce_scatter(self->all, x, 3, self->comm);
	k_stream_sync(self->comm, limit_ns);
	ranks_keep_error(self);
	return 0;
}

static void test_does_not_divide(void **state)
{

	RUN(.world = 2, .fn = does_not_divide);
	assert_int_equal(end.exit_status[0], 0);
	assert_string_equal(ranks_error_of(&end, 0),
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
	int expected = -EPROTO;

	RUN(.world = 2, .before = other_setting, .fn = must_not_connect, .refused = keep_refusal,
		.arg = &expected);
	ended_well(0, 1);
	assert_string_equal(
		ranks_error_of(&end, 0), "rank 0 and rank 1: UCX_PROTO_ENABLE n here, y there");
	assert_string_equal(
		ranks_error_of(&end, 1), "rank 1 and rank 0: UCX_PROTO_ENABLE y here, n there");
}

static void test_peer_never_connects(void **state)
{

	/* it may end before, in or after any step of the others' connecting */
	for (int i = 0; i < 20; i++) {
		RUN(.world = 3, .fn = must_not_connect, .refused = keep_refusal, .absent = 1);
		ended_well(0, 1);
		for (int r = 0; r < 2; r++)
			if (strstr(ranks_error_of(&end, r), "rank 2") == NULL)
				fail_msg("rank %d: %s", r, ranks_error_of(&end, r));
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
		.at = "10.0.0.1%eth0",
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
		assert_string_equal(b.at, a.at);
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

TEST_MAIN(cmocka_unit_test(test_address_text), cmocka_unit_test(test_timeout),
	cmocka_unit_test(test_earlier_never_runs), cmocka_unit_test(test_stopped_peer),
	cmocka_unit_test(test_disagreement), cmocka_unit_test(test_does_not_divide),
	cmocka_unit_test(test_settings_differ), cmocka_unit_test(test_peer_never_connects),
	cmocka_unit_test(test_killed_peer))
