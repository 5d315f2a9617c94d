/* Taking an engine down while its device is still at work. */
#include <sys/wait.h>
#include <time.h>

#include "engine/train/warm.h"
#include "proto/host/clock.h"
#include "tests/unit/test.h"

static void work(void *arg)
{
	const struct timespec time = clock_timespec(*(const int64_t *)arg);

	nanosleep(&time, NULL);
}

/* In a separate process, because a running thread keeps its memory. */
static int destroy(int64_t work_ns, int64_t limit_ns)
{
	const struct warm_options options = {.rank = 0, .world = 1, .threads = 1};
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		char error[256];
		struct warm *w;

		if (warm_create(&options, &w, error, sizeof(error)))
			_exit(2);
		k_stream_host(w->comm, work, &work_ns);
		_exit(warm_destroy_within(w, limit_ns));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void in_order_when_it_is_done_in_time(void **state)
{
	assert_int_equal(destroy(0, 60 * CLOCK_S_NS), true);
	assert_int_equal(destroy(50 * CLOCK_MS_NS, 60 * CLOCK_S_NS), true);
}

static void not_for_ever(void **state)
{
	int64_t from = clock_mono_ns();

	assert_int_equal(destroy(3600 * CLOCK_S_NS, 50 * CLOCK_MS_NS), false);
	assert_true(clock_mono_ns() - from < 600 * CLOCK_S_NS);
}

TEST_MAIN(cmocka_unit_test(in_order_when_it_is_done_in_time), cmocka_unit_test(not_for_ever))
