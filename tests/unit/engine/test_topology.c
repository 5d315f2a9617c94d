/*
 * The topology of a made-up node: its /sys and /proc are in a folder, its GPUs in a library whose
 * path is the program's argument.
 */
#include <jansson.h>

#include "engine/report/topology.h"
#include "tests/unit/test.h"

static const char *library;

static const struct {
	const char *path, *text;
} files[] = {
	{"/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"},
	{"/sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"},
	{"/sys/devices/system/cpu/cpu0/topology/core_id", "0\n"},
	{"/sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"},
	{"/sys/devices/system/cpu/cpu1/topology/core_id", "0\n"},
	{"/sys/devices/system/cpu/cpu10/topology/physical_package_id", "1\n"},
	{"/sys/devices/system/cpu/cpu10/topology/core_id", "0\n"},
	{"/sys/devices/system/cpu/cpufreq/boost", "1\n"},
	{"/sys/devices/system/node/node0/cpulist", "0-1\n"},
	{"/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:        1024 kB\n"},
	{"/sys/devices/system/node/node1/cpulist", "10\n"},
	{"/sys/bus/pci/devices/0000:01:00.0/numa_node", "1\n"},
	{"/sys/bus/pci/devices/0000:01:00.0/local_cpulist", "10\n"},
	{"/sys/bus/pci/devices/0000:b2:00.0/numa_node", "-1\n"},
	{"/sys/class/net/eth0/operstate", "up\n"},
	{"/sys/class/net/eth0/speed", "25000\n"},
	{"/sys/class/net/eth0/mtu", "9000\n"},
	{"/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"},
	{"/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"},
	{"/sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n"},
	{"/sys/class/infiniband/mlx5_0/node_guid", "0001:0002:0003:0004\n"},
};

static void test_a_node(void **state)
{
	static const char expected[] =
		"{\"model\": \"Some CPU @ 2 GHz\", \"sockets\": 2, \"cores\": 2, \"threads\": 3, "
		"\"numa\": [{\"node\": 0, \"cpus\": \"0-1\", \"memory_bytes\": 1048576}, "
		"{\"node\": 1, \"cpus\": \"10\", \"memory_bytes\": null}]}";
	const char *root = *state;
	char *cpu;
	json_t *t, *gpu, *adapter;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		test_put(root, files[i].path, files[i].text);
	t = topology_read(root, library);
	cpu = json_dumps(json_object_get(t, "cpu"), 0);
	assert_string_equal(cpu, expected);
	free(cpu);
	assert_int_equal(json_array_size(json_object_get(t, "gpus")), 2);
	gpu = json_array_get(json_object_get(t, "gpus"), 0);
	assert_string_equal(json_string_value(json_object_get(gpu, "pci")), "0000:01:00.0");
	assert_int_equal(json_integer_value(json_object_get(gpu, "numa_node")), 1);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(gpu, "links"), 0)), "X");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(gpu, "links"), 1)), "NV2");
	gpu = json_array_get(json_object_get(t, "gpus"), 1);
	assert_true(json_is_null(json_object_get(gpu, "numa_node")));
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(gpu, "links"), 0)), "PIX");
	adapter = json_array_get(json_object_get(t, "infiniband"), 0);
	assert_string_equal(
		json_string_value(json_object_get(adapter, "rate")), "400 Gb/sec (4X NDR)");
	assert_int_equal(json_integer_value(json_object_get(
				 json_array_get(json_object_get(t, "interfaces"), 0), "mbit_s")),
		25000);
	json_decref(t);
}

/* A folder without anything, and no driver. */
static void test_nothing(void **state)
{
	json_t *t = topology_read("/nonexistent", "/nonexistent/libnvidia-ml.so.1");

	assert_int_equal(json_array_size(json_object_get(t, "gpus")), 0);
	assert_int_equal(json_array_size(json_object_get(t, "interfaces")), 0);
	assert_int_equal(json_array_size(json_object_get(t, "infiniband")), 0);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(t, "cpu"), "threads")), 0);
	json_decref(t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST_IN_FOLDER(test_a_node),
		cmocka_unit_test(test_nothing),
	};

	library = argc > 1 ? argv[1] : NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
