/* The network, as lines of NCCL's log name it (NCCL 2.18 to 2.28), and how the log is read. */
#include "engine/comm/nccl_log.h"
#include "tests/unit/test.h"

static void take_all(struct collectives_network *n, const char *const *lines)
{
	*n = (struct collectives_network){.gpu_direct = -1};
	for (; *lines != NULL; lines++)
		nccl_log_take(n, *lines);
}

static void test_sockets(void **state)
{
	static const char *const lines[] = {
		"n1:411:433 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =eth0",
		"n1:411:433 [0] NCCL INFO NET/IB : No device found.",
		"n1:411:433 [0] NCCL INFO NET/Socket : Using [0]eth0:10.78.0.1<0>",
		"n1:411:433 [0] NCCL INFO Using network Socket",
		"n1:411:433 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0",
		"n1:411:433 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] [send] via NET/Socket/1",
		NULL,
	};
	struct collectives_network n;

	take_all(&n, lines);
	assert_string_equal(n.name, "Socket");
	assert_string_equal(n.devices, "[0]eth0:10.78.0.1<0>");
	assert_string_equal(n.paths, "NET/Socket");
	assert_int_equal(n.gpu_direct, 0);
}

static void test_infiniband(void **state)
{
	static const char *const lines[] = {
		"n1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB "
		"eth0:10.0.0.1<0>",
		"n1:7:9 [0] NCCL INFO Initialized NET plugin IB",
		"n1:7:9 [0] NCCL INFO Assigned NET plugin IB to comm",
		"n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
		"n1:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
		"n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
		"n1:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1(1)/GDRDMA",
		NULL,
	};
	struct collectives_network n;

	take_all(&n, lines);
	assert_string_equal(n.name, "IB");
	assert_string_equal(n.devices, "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]");
	assert_string_equal(n.paths, "P2P/CUMEM,NET/IB/GDRDMA");
	assert_int_equal(n.gpu_direct, 1);
}

static void test_one_node(void **state)
{
	static const char *const lines[] = {
		"n1:7:9 [1] NCCL INFO Using network Socket",
		"n1:7:9 [1] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
		"Using network of somebody else",
		"",
		NULL,
	};
	struct collectives_network n;

	take_all(&n, lines);
	assert_string_equal(n.name, "Socket");
	assert_string_equal(n.paths, "SHM/direct/direct");
	assert_string_equal(n.devices, "");
	assert_int_equal(n.gpu_direct, -1);
}

/* As NCCL does: opens the file that NCCL_DEBUG_FILE names, and writes lines in pieces. */
static void test_reading(void **state)
{
	struct nccl_log log;
	FILE *nccl;

	unsetenv("NCCL_DEBUG");
	unsetenv("NCCL_DEBUG_FILE");
	nccl_log_begin(&log);
	assert_true(log.fd >= 0);
	assert_string_equal(getenv("NCCL_DEBUG"), "INFO");
	nccl = fopen(getenv("NCCL_DEBUG_FILE"), "w");
	assert_non_null(nccl);
	fprintf(nccl, "n1:7:9 [0] NCCL INFO Using net");
	fflush(nccl);
	nccl_log_read(&log);
	assert_string_equal(log.network.name, "");
	fprintf(nccl, "work IB\n%2000s\nn1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB; OOB\n",
		"x");
	fflush(nccl);
	nccl_log_read(&log);
	assert_string_equal(log.network.name, "IB");
	assert_string_equal(log.network.devices, "[0]mlx5_0:1/IB");
	fclose(nccl);
	nccl_log_end(&log);
	unsetenv("NCCL_DEBUG");
}

/* The user's own file is left alone. */
static void test_file_of_the_user(void **state)
{
	struct nccl_log log;

	unsetenv("NCCL_DEBUG");
	setenv("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p", 1);
	nccl_log_begin(&log);
	assert_int_equal(log.fd, -1);
	assert_null(getenv("NCCL_DEBUG"));
	assert_string_equal(getenv("NCCL_DEBUG_FILE"), "/tmp/nccl.%h.%p");
	nccl_log_read(&log);
	nccl_log_end(&log);
	unsetenv("NCCL_DEBUG_FILE");
}

TEST_MAIN(cmocka_unit_test(test_sockets), cmocka_unit_test(test_infiniband),
	cmocka_unit_test(test_one_node), cmocka_unit_test(test_reading),
	cmocka_unit_test(test_file_of_the_user))
