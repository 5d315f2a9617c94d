/* Which ranks share a node, and which interfaces can be used between nodes. */
#include "engine/comm/interface.h"
#include "engine/comm/nodes.h"
#include "tests/unit/test.h"

static void test_one_node(void **state)
{
	assert_int_equal(nodes_count(NULL, 4), 1);
	assert_int_equal(nodes_fullest(NULL, 4), 4);
	assert_int_equal(nodes_ranks(NULL, 4, 3), 4);
	assert_int_equal(nodes_first(NULL, 3), 0);
	assert_true(nodes_together(NULL, 0, 3));
}

static void test_several_nodes(void **state)
{
	static const int nodes[] = {7, 7, -1, 7, 3, -1};

	assert_int_equal(nodes_count(nodes, 6), 3);
	assert_int_equal(nodes_count(nodes, 2), 1);
	assert_int_equal(nodes_fullest(nodes, 6), 3);
	assert_int_equal(nodes_fullest(nodes, 3), 2);
	assert_int_equal(nodes_ranks(nodes, 6, 5), 2);
	assert_int_equal(nodes_ranks(nodes, 3, 2), 1);
	assert_int_equal(nodes_first(nodes, 5), 2);
	assert_int_equal(nodes_first(nodes, 4), 4);
	assert_true(nodes_together(nodes, 0, 3));
	assert_false(nodes_together(nodes, 0, 4));
}

static void test_interface(void **state)
{
	char address[INTERFACE_ADDRESS_BYTES], why[200];

	assert_int_equal(interface_check("lo", address, why, sizeof(why)), 0);
	assert_string_equal(address, "127.0.0.1%lo");
	assert_int_equal(interface_check("nosuch0", address, why, sizeof(why)), -ENODEV);
	assert_non_null(
		strstr(why, "interface nosuch0: no such interface on this node; usable here: "));
	assert_non_null(strstr(why, "lo"));
}

static void test_interface_of_nccl(void **state)
{
	static const char *const good[] = {
		"lo", "l", "=lo", "eth9,lo", "^eth9", "^=lo2", "=eth9,lo"};
	static const char *const bad[] = {"eth9", "=l", "lo2", "=eth9,lo2"};
	char why[300];

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(interface_check_nccl(good[i], why, sizeof(why)), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(interface_check_nccl(bad[i], why, sizeof(why)), -ENODEV);
		assert_non_null(strstr(why, bad[i]));
		assert_non_null(strstr(why, "usable here"));
	}
}

TEST_MAIN(cmocka_unit_test(test_one_node), cmocka_unit_test(test_several_nodes),
	cmocka_unit_test(test_interface), cmocka_unit_test(test_interface_of_nccl))
