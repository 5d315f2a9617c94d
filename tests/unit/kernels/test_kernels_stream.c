#include <stdatomic.h>
#include <time.h>

#include "kernels/cpu/stream.h"
#include "tests/unit/test.h"

enum { SECOND_NS = 1000000000 };

static struct k_context *ctx;

static int setup(void **state)
{
	return k_context_create(&(struct k_context_options){.threads = 3}, &ctx);
}

static int teardown(void **state)
{
	k_context_destroy(ctx);
	return 0;
}

struct log {
	int n;
	int seen[2000];
};

struct note {
	struct log *log;
	int value;
};

static void append(void *arg)
{
	struct note *note = arg;

	note->log->seen[note->log->n++] = note->value;
}

static void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void wait_for_flag(void *arg)
{
	atomic_bool *flag = arg;

	while (!atomic_load(flag))
		sleep_ms(1);
}

static void compute_stream_runs_at_once(void **state)
{
	struct log log = {0};
	struct note note = {&log, 7};
	struct k_stream *s;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &s), 0);
	k_stream_host(s, append, &note);
	assert_int_equal(log.n, 1);
	assert_int_equal(k_stream_sync(s, 0), 0);
	k_stream_destroy(s);
}

/* More than the queue holds, so that the caller is held back too. */
static void comm_stream_keeps_order(void **state)
{
	static struct log log;
	static struct note notes[1500];
	struct k_stream *s;

	log.n = 0;
	assert_int_equal(
		k_stream_create(ctx, K_STREAM_COMM, "a-name-too-long-for-a-thread", &s), 0);
	for (int i = 0; i < 1500; i++) {
		notes[i] = (struct note){&log, i};
		k_stream_host(s, append, &notes[i]);
	}
	assert_int_equal(k_stream_sync(s, 10LL * SECOND_NS), 0);
	assert_int_equal(log.n, 1500);
	for (int i = 0; i < 1500; i++)
		assert_int_equal(log.seen[i], i);
	k_stream_destroy(s);
}

static void destroy_runs_what_is_queued(void **state)
{
	struct log log = {0};
	struct note notes[20];
	struct k_stream *s;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "comm", &s), 0);
	for (int i = 0; i < 20; i++) {
		notes[i] = (struct note){&log, i};
		k_stream_host(s, append, &notes[i]);
	}
	k_stream_destroy(s);
	assert_int_equal(log.n, 20);
	k_stream_destroy(NULL);
}

static void sync_times_out(void **state)
{
	struct k_stream *s;
	struct k_event *e;
	atomic_bool go = false;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "comm", &s), 0);
	assert_int_equal(k_event_create(ctx, &e), 0);
	assert_int_equal(k_event_sync(e, 0), 0); /* never recorded: nothing to wait for */
	k_stream_host(s, wait_for_flag, &go);
	k_event_record(e, s);
	assert_int_equal(k_stream_sync(s, 1000000), -ETIMEDOUT);
	assert_int_equal(k_event_sync(e, 1000000), -ETIMEDOUT);
	assert_int_equal(k_stream_sync(s, 0), -ETIMEDOUT);
	atomic_store(&go, true);
	assert_int_equal(k_event_sync(e, INT64_MAX), 0);
	assert_int_equal(k_stream_sync(s, INT64_MAX), 0);
	k_stream_destroy(s);
	k_event_destroy(e);
	k_event_destroy(NULL);
}

static void wait_orders_two_streams(void **state)
{
	struct log log = {0};
	struct note first = {&log, 1}, second = {&log, 2};
	struct k_stream *a, *b, *compute;
	struct k_event *e;
	atomic_bool go = false;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "a", &a), 0);
	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "b", &b), 0);
	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &compute), 0);
	assert_int_equal(k_event_create(ctx, &e), 0);
	k_stream_host(a, wait_for_flag, &go);
	k_stream_host(a, append, &first);
	k_event_record(e, a);
	k_stream_wait(b, e);
	k_stream_host(b, append, &second);
	sleep_ms(5);
	assert_int_equal(k_stream_sync(b, 0), -ETIMEDOUT);
	atomic_store(&go, true);
	assert_int_equal(k_stream_sync(b, 10LL * SECOND_NS), 0);
	k_stream_wait(compute, e);
	assert_int_equal(log.n, 2);
	assert_int_equal(log.seen[0], 1);
	assert_int_equal(log.seen[1], 2);
	k_stream_destroy(a);
	k_stream_destroy(b);
	k_stream_destroy(compute);
	k_event_destroy(e);
}

/* A wait is for the record issued before it, not for a later one. */
static void wait_is_for_the_last_record(void **state)
{
	struct k_stream *a, *compute;
	struct k_event *e;
	atomic_bool go = false;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "a", &a), 0);
	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &compute), 0);
	assert_int_equal(k_event_create(ctx, &e), 0);
	k_event_record(e, compute);
	k_stream_wait(a, e);
	k_stream_host(a, wait_for_flag, &go);
	k_event_record(e, a);
	assert_int_equal(k_event_sync(e, 0), -ETIMEDOUT);
	atomic_store(&go, true);
	assert_int_equal(k_event_sync(e, 10LL * SECOND_NS), 0);
	k_stream_destroy(a);
	k_stream_destroy(compute);
	k_event_destroy(e);
}

static void events_measure_time(void **state)
{
	struct k_event *from, *to;
	struct k_stream *s;
	int64_t ns;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &s), 0);
	assert_int_equal(k_event_create(ctx, &from), 0);
	assert_int_equal(k_event_create(ctx, &to), 0);
	k_event_record(from, s);
	sleep_ms(3);
	k_event_record(to, s);
	ns = k_event_elapsed_ns(from, to);
	assert_true(ns >= 3000000);
	assert_true(k_event_elapsed_ns(to, from) == -ns);
	k_event_destroy(from);
	k_event_destroy(to);
	k_stream_destroy(s);
}

static int fail_once(struct k_stream *s, const void *args)
{
	return -ENOSPC;
}

static void first_failure_stays(void **state)
{
	struct log log = {0};
	struct note note = {&log, 1};
	struct k_stream *s, *compute;
	char *memory = k_alloc(ctx, 16);

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "comm", &s), 0);
	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &compute), 0);
	assert_null(k_context_error(ctx));
	stream_submit(s, "k_first", fail_once, NULL, 0);
	assert_int_equal(k_stream_sync(s, 10LL * SECOND_NS), -EIO);
	assert_string_equal(k_context_error(ctx), "k_first: No space left on device");
	context_fail(ctx, "k_second: too late");
	assert_string_equal(k_context_error(ctx), "k_first: No space left on device");
	k_copy_in(compute, memory, "x", 1);
	assert_int_equal(memory[0], 0);
	k_stream_host(s, append, &note);
	assert_int_equal(k_stream_sync(s, 10LL * SECOND_NS), -EIO);
	assert_int_equal(log.n, 1);
	assert_int_equal(k_stream_sync(compute, 0), -EIO);
	k_stream_destroy(s);
	k_stream_destroy(compute);
	k_free(ctx, memory);
}

static void context_says_what_it_is(void **state)
{
	struct k_device_info info;

	k_context_info(ctx, &info);
	assert_string_equal(info.backend, "cpu");
	assert_non_null(strstr(info.library, "OpenBLAS "));
	assert_true(strlen(info.name) > 0);
	assert_true(info.memory_total_bytes > info.memory_free_bytes);
	assert_true(info.memory_free_bytes > 0);
	assert_int_equal(k_context_dtype(ctx), K_FP32);
	assert_int_equal(k_elem_bytes(ctx), 4);
	assert_int_equal(k_context_set_dtype(ctx, K_FP32), 0);
	assert_int_equal(k_context_set_dtype(ctx, K_BF16), -ENOTSUP);
	assert_int_equal(k_context_set_dtype(ctx, K_FP16), -ENOTSUP);
	assert_int_equal(k_context_set_dtype(ctx, K_TF32), -ENOTSUP);
	assert_int_equal(k_context_set_dtype(ctx, K_FP64), -ENOTSUP);
	assert_int_equal(k_context_dtype(ctx), K_FP32);
}

static void context_refuses_bad_threads(void **state)
{
	struct k_context *out = NULL;

	assert_int_equal(
		k_context_create(&(struct k_context_options){.threads = 0}, &out), -EINVAL);
	assert_int_equal(
		k_context_create(&(struct k_context_options){.threads = 9999}, &out), -EINVAL);
	assert_null(out);
	k_context_destroy(NULL);
}

static void memory_is_zeroed_aligned_and_copied(void **state)
{
	size_t bytes = (8 << 20) + 12345;
	struct k_stream *s[2];
	unsigned char *in = malloc(bytes), *out = malloc(bytes);

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &s[0]), 0);
	assert_int_equal(k_stream_create(ctx, K_STREAM_COMM, "comm", &s[1]), 0);
	for (size_t i = 0; i < bytes; i++)
		in[i] = (unsigned char)(i * 7 + i / 256);
	for (int i = 0; i < 2; i++) {
		unsigned char *a = k_alloc(ctx, bytes), *b = k_alloc(ctx, bytes);

		assert_int_equal((uintptr_t)a % 256, 0);
		for (size_t j = 0; j < bytes; j++)
			assert_true(a[j] == 0);
		k_copy_in(s[i], a, in, bytes);
		k_copy(s[i], b, a, bytes);
		k_zero(s[i], a, bytes);
		k_copy_out(s[i], out, b, bytes);
		assert_int_equal(k_stream_sync(s[i], 10LL * SECOND_NS), 0);
		assert_memory_equal(in, out, bytes);
		for (size_t j = 0; j < bytes; j++)
			assert_true(a[j] == 0);
		k_free(ctx, a);
		k_free(ctx, b);
		k_stream_destroy(s[i]);
	}
	k_free(ctx, NULL);
	assert_null(k_alloc(ctx, SIZE_MAX));
	free(in);
	free(out);
}

static void graph_runs_at_once(void **state)
{
	struct log log = {0};
	struct note note = {&log, 1};
	struct k_graph *graph = (struct k_graph *)&log;
	struct k_stream *s;

	assert_int_equal(k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &s), 0);
	assert_int_equal(k_graph_begin(s), 0);
	k_stream_host(s, append, &note);
	assert_int_equal(k_graph_end(s, &graph), 0);
	assert_null(graph);
	assert_int_equal(k_graph_launch(graph, s), 0);
	assert_int_equal(log.n, 1);
	k_graph_destroy(graph);
	k_stream_destroy(s);
}

static void count_chunk(void *arg, int64_t chunk, void *scratch)
{
	atomic_int *counts = arg;

	*(int64_t *)scratch = chunk;
	atomic_fetch_add(&counts[chunk], 1);
	assert_int_equal(*(int64_t *)scratch, chunk);
}

/* Every chunk runs once, with any number of threads and with or without sleep in between. */
static void pool_runs_each_chunk_once(void **state)
{
	static atomic_int counts[97];
	struct pool *pool;

	assert_int_equal(pool_create(4, &pool), 0);
	assert_int_equal(pool_reserve(pool, 8), 0);
	for (int round = 0; round < 3000; round++) {
		int n = round % 97 + 1;

		pool_set_threads(pool, round % 5 + 1);
		assert_int_equal(pool_reserve(pool, 8), 0);
		for (int i = 0; i < n; i++)
			atomic_store(&counts[i], 0);
		pool_run(pool, n, count_chunk, counts);
		for (int i = 0; i < n; i++)
			assert_int_equal(atomic_load(&counts[i]), 1);
		if (round % 500 == 0)
			sleep_ms(5);
	}
	pool_run(pool, 0, count_chunk, counts);
	pool_destroy(pool);
	pool_destroy(NULL);
}

TEST_MAIN(cmocka_unit_test_setup_teardown(compute_stream_runs_at_once, setup, teardown),
	cmocka_unit_test_setup_teardown(comm_stream_keeps_order, setup, teardown),
	cmocka_unit_test_setup_teardown(destroy_runs_what_is_queued, setup, teardown),
	cmocka_unit_test_setup_teardown(sync_times_out, setup, teardown),
	cmocka_unit_test_setup_teardown(wait_orders_two_streams, setup, teardown),
	cmocka_unit_test_setup_teardown(wait_is_for_the_last_record, setup, teardown),
	cmocka_unit_test_setup_teardown(events_measure_time, setup, teardown),
	cmocka_unit_test_setup_teardown(first_failure_stays, setup, teardown),
	cmocka_unit_test_setup_teardown(context_says_what_it_is, setup, teardown),
	cmocka_unit_test_setup_teardown(context_refuses_bad_threads, setup, teardown),
	cmocka_unit_test_setup_teardown(memory_is_zeroed_aligned_and_copied, setup, teardown),
	cmocka_unit_test_setup_teardown(graph_runs_at_once, setup, teardown),
	cmocka_unit_test(pool_runs_each_chunk_once))
