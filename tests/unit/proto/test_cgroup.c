/* A control group: its memory and processors, the narrowest limit; limits of a process. */
#include <sched.h>
#include <sys/resource.h>

#include "proto/host/cgroup.h"
#include "proto/host/starved.h"
#include "tests/unit/test.h"

static const char *root;

static void put(const char *path, const char *text)
{
	test_put(root, path, text);
}

static void put_group(const char *path)
{
	char line[256];

	snprintf(line, sizeof(line), "9:name=systemd:/x\n0::%s\n", path);
	put("/proc/self/cgroup", line);
}

static void test_nothing(void **state)
{
	struct cgroup_memory m;
	char file[CGROUP_FILE_BYTES];

	root = *state;
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	assert_int_equal(cgroup_oom_kills(root, file), -ENOENT);
	put_group("/a/b");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "5000\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	assert_int_equal(cgroup_oom_kills(root, file), -ENOENT);
	put("/proc/self/cgroup", "nonsense\n::\n5:\n");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
}

/* The affinity, or the narrowest cpu.max in whole processors. */
static void test_processors(void **state)
{
	cpu_set_t set;

	root = *state;
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	put_group("/p/b");
	assert_int_equal(cgroup_processors(root), CPU_COUNT(&set));
	put("/sys/fs/cgroup/p/cpu.max", "100000000 100000\n");
	assert_int_equal(cgroup_processors(root), CPU_COUNT(&set));
	put("/sys/fs/cgroup/p/b/cpu.max", "199999 100000\n");
	assert_int_equal(cgroup_processors(root), 1);
	put("/sys/fs/cgroup/p/b/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/p/cpu.max", "50000 100000\n");
	assert_int_equal(cgroup_processors(root), 1);
}

/* The limit of one above is narrower; a third has less left, as files' pages count for nothing. */
static void test_memory(void **state)
{
	struct cgroup_memory m;
	char file[CGROUP_FILE_BYTES];

	root = *state;
	put_group("/a/b/c");
	put("/sys/fs/cgroup/a/b/c/memory.max", "9000000\n");
	put("/sys/fs/cgroup/a/b/c/memory.current", "8900000\n");
	put("/sys/fs/cgroup/a/b/c/memory.stat",
		"anon 1\ninactive_file 500000\nactive_file 300000\n"
		"slab_reclaimable 7\nslab 9\n");
	put("/sys/fs/cgroup/a/b/memory.max", "6000000\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1000000\n");
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	put("/sys/fs/cgroup/memory.max", "7000000\n"); /* a container's root is somebody's group */
	put("/sys/fs/cgroup/a/memory.events",
		"low 0\nhigh 0\nmax 5\noom 2\noom_kill 3\noom_group_kill 1\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 6000000);
	assert_string_equal(m.file, "/sys/fs/cgroup/a/b/memory.max");
	assert_int_equal(m.free_bytes, 900007);
	assert_int_equal(cgroup_oom_kills(root, file), 3);
	assert_string_equal(file, "/sys/fs/cgroup/a/memory.events");
	put("/sys/fs/cgroup/a/b/memory.current", "6100000\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.free_bytes, 0);
}

static void test_out_of_view(void **state)
{
	struct cgroup_memory m;

	root = *state;
	put_group("/../other");
	put("/sys/fs/cgroup/memory.max", "7000000\n");
	put("/other/memory.max", "5\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 7000000);
	assert_int_equal(m.free_bytes, 7000000);
	assert_string_equal(m.file, "/sys/fs/cgroup/memory.max");
}

/* Where version 1 has the controllers, version 2 is ignored. */
static void test_version_1(void **state)
{
	struct cgroup_memory m;
	char file[CGROUP_FILE_BYTES];

	root = *state;
	put("/proc/self/cgroup", "9:name=systemd:/x\n8:cpu,cpuacct:/d/7\n4:memory:/d/7\n0::/x\n");
	put("/sys/fs/cgroup/x/memory.max", "5\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "60000000\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 60000000);
	put("/sys/fs/cgroup/memory/d/7/memory.limit_in_bytes", "50000000\n");
	put("/sys/fs/cgroup/memory/d/7/memory.usage_in_bytes", "30000000\n");
	put("/sys/fs/cgroup/memory/d/7/memory.stat", "total_inactive_file 10000000\n");
	put("/sys/fs/cgroup/memory/d/7/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 50000000);
	assert_int_equal(m.free_bytes, 30000000);
	assert_int_equal(cgroup_oom_kills(root, file), 1);
	put("/sys/fs/cgroup/cpu/d/7/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/cpu/d/7/cpu.cfs_quota_us", "100000\n");
	assert_int_equal(cgroup_processors(root), 1);
}

/* ---- limits of the process ---- */

/* Which limits there are decides which are named. */
static void test_limits_that_are_named(void **state)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
	if (memcmp(&limit, &none, sizeof(limit)) != 0)
		skip();
	assert_null(strstr(starved_text(-EAGAIN), "ulimit -v"));
	assert_non_null(strstr(starved_text(-EAGAIN), "ulimit -u"));
	limit.rlim_cur = (rlim_t)1 << 62;
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	assert_non_null(strstr(starved_text(-EAGAIN), "ulimit -v or -u, LimitAS= or TasksMax="));
	assert_string_equal(starved_text(-ENOMEM), strerror(ENOMEM));
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
}

static void test_limits_on_memory(void **state)
{
	static const struct {
		int resource;
		const char *named;
	} rows[] = {{RLIMIT_DATA, "ulimit -d, LimitDATA="}, {RLIMIT_AS, "ulimit -v, LimitAS="}};
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	const struct rlimit soft = {(rlim_t)1 << 62, RLIM_INFINITY};
	struct rlimit limit;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(getrlimit(rows[i].resource, &limit), 0);
		if (memcmp(&limit, &none, sizeof(limit)) != 0)
			skip();
	}
	assert_string_equal(starved_memory_text(), "");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(setrlimit(rows[i].resource, &soft), 0);
		assert_non_null(strstr(starved_memory_text(), rows[i].named));
		assert_int_equal(setrlimit(rows[i].resource, &none), 0);
	}
}

TEST_MAIN(TEST_IN_FOLDER(test_nothing), TEST_IN_FOLDER(test_processors),
	TEST_IN_FOLDER(test_memory), TEST_IN_FOLDER(test_out_of_view),
	TEST_IN_FOLDER(test_version_1), cmocka_unit_test(test_limits_that_are_named),
	cmocka_unit_test(test_limits_on_memory))
