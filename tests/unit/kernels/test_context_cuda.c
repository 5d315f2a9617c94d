/* Why a CUDA context cannot be made, in CUDA's words; the driver is fake_driver.c. */
#include <sys/wait.h>

#include "kernels/kernels.h"
#include "tests/unit/test.h"

int cudaRuntimeGetVersion(int *version); /* CUDA's own header wants its folder */

struct answer {
	int rc;
	char why[512];
};

/* The runtime looks at its driver once in a process. */
static struct answer create(const char *version, const char *init)
{
	struct answer a = {.rc = -1};
	struct k_context_options options = {
		.device = 2, .threads = 1, .error = a.why, .error_bytes = sizeof a.why};
	struct k_context *ctx;
	int ends[2], status;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		setenv("FAKE_DRIVER_VERSION", version, 1);
		setenv("FAKE_DRIVER_INIT", init, 1);
		a.rc = k_context_create(&options, &ctx);
		_exit(write(ends[1], &a, sizeof a) == (ssize_t)sizeof a ? 0 : 1);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &a, sizeof a), (int)sizeof a);
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	return a;
}

static void a_driver_that_is_too_old(void **state)
{
	struct answer a = create("11020", "0");
	char expected[160];
	int runtime;

	assert_int_equal(cudaRuntimeGetVersion(&runtime), 0);
	snprintf(expected, sizeof expected,
		"cudaSetDevice: CUDA driver version is insufficient for CUDA runtime version "
		"(the driver is for CUDA 11.2, CUDA %d.%d is expected)",
		runtime / 1000, runtime % 1000 / 10);
	assert_string_equal(a.why, expected);
	assert_int_equal(a.rc, -ENODEV);
}

static void no_driver(void **state)
{
	struct answer a = create("0", "0");

	assert_non_null(strstr(a.why, "(no driver is found, one for CUDA "));
	assert_int_equal(a.rc, -ENODEV);
}

static void no_device(void **state)
{
	struct answer a = create("99000", "100");

	assert_string_equal(a.why,
		"cudaSetDevice: no CUDA-capable device is detected (device 2 of 0, counted from "
		"0)");
	assert_int_equal(a.rc, -ENODEV);
}

static void a_device_without_memory(void **state)
{
	struct answer a = create("99000", "2");

	assert_string_equal(a.why, "cudaSetDevice: out of memory");
	assert_int_equal(a.rc, -ENOMEM);
}

static void what_has_no_errno(void **state)
{
	struct answer a = create("99000", "802");

	assert_string_equal(a.why, "cudaSetDevice: system not yet initialized");
	assert_int_equal(a.rc, -EIO);
}

TEST_MAIN(cmocka_unit_test(a_driver_that_is_too_old), cmocka_unit_test(no_driver),
	cmocka_unit_test(no_device), cmocka_unit_test(a_device_without_memory),
	cmocka_unit_test(what_has_no_errno))
