/*
 * A control group's memory: both versions, the narrowest limit, containers, and what tells
 * nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "proto/host/cgroup.h"

static char root[64];

static void put(const char *path, const char *text)
{
	char name[512];
	FILE *f;

	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *c = name + strlen(root) + 1; *c; c++) {
		if (*c != '/')
			continue;
		*c = '\0';
		mkdir(name, 0700);
		*c = '/';
	}
	f = fopen(name, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int make_root(void **state)
{
	strcpy(root, "/tmp/gpt2d-cgroup-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r '%s'", root);
	return system(command);
}

static void put_version_2(const char *path)
{
	char line[256];

	snprintf(line, sizeof(line), "0::%s\n", path);
	put("/proc/self/cgroup", line);
	put("/proc/self/mountinfo",
		"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		"30 21 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
}

static void test_nothing(void **state)
{
	struct cgroup_memory m;
	char file[CGROUP_FILE_BYTES];

	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	assert_int_equal(cgroup_oom_kills(root, file), -ENOENT);
	put_version_2("/a/b");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	put("/cg/a/b/memory.max", "max\n");
	put("/cg/a/b/memory.current", "5000\n");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	assert_int_equal(cgroup_oom_kills(root, file), -ENOENT);
	put("/proc/self/cgroup", "nonsense\n::\n5:\n");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
	put("/proc/self/cgroup", "0::/a\n");
	put("/proc/self/mountinfo", "30 - cgroup2\n - cgroup2 x rw\n\n");
	assert_int_equal(cgroup_memory_read(root, &m), -ENOENT);
}

/* Of processes: what is left until the first limit. */
static void test_pids(void **state)
{
	char file[CGROUP_FILE_BYTES];

	put_version_2("/p/b");
	assert_int_equal(cgroup_pids_left(root, file), -ENOENT);
	put("/cg/p/b/pids.max", "max\n");
	put("/cg/p/b/pids.current", "5\n");
	assert_int_equal(cgroup_pids_left(root, file), -ENOENT);
	put("/cg/p/pids.max", "40\n");
	put("/cg/p/pids.current", "30\n");
	assert_int_equal(cgroup_pids_left(root, file), 10);
	assert_string_equal(file, "/cg/p/pids.max");
	put("/cg/p/b/pids.max", "4\n");
	assert_int_equal(cgroup_pids_left(root, file), 0);
	assert_string_equal(file, "/cg/p/b/pids.max");
}

/* The limit of one above is narrower; a third has less left, as files' pages count for nothing. */
static void test_version_2(void **state)
{
	struct cgroup_memory m;
	char file[CGROUP_FILE_BYTES];

	put_version_2("/a/b/c");
	put("/cg/a/b/c/memory.max", "9000000\n");
	put("/cg/a/b/c/memory.current", "8900000\n");
	put("/cg/a/b/c/memory.stat",
		"anon 1\ninactive_file 500000\nactive_file 300000\n"
		"slab_reclaimable 7\nslab 9\n");
	put("/cg/a/b/memory.max", "6000000\n");
	put("/cg/a/b/memory.current", "1000000\n");
	put("/cg/a/memory.max", "max\n");
	put("/cg/memory.max", "7000000\n"); /* a container's root is somebody's group */
	put("/cg/a/memory.events", "low 0\nhigh 0\nmax 5\noom 2\noom_kill 3\noom_group_kill 1\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 6000000);
	assert_string_equal(m.file, "/cg/a/b/memory.max");
	assert_int_equal(m.free_bytes, 900007);
	assert_int_equal(cgroup_oom_kills(root, file), 3);
	assert_string_equal(file, "/cg/a/memory.events");
	put("/cg/a/b/memory.current", "6100000\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.free_bytes, 0);
}

static void test_out_of_view(void **state)
{
	struct cgroup_memory m;

	put_version_2("/../other");
	put("/cg/memory.max", "7000000\n");
	put("/other/memory.max", "5\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 7000000);
	assert_int_equal(m.free_bytes, 7000000);
	assert_string_equal(m.file, "/cg/memory.max");
}

static void put_version_1(const char *from)
{
	char line[512];

	put("/proc/self/cgroup",
		"9:name=systemd:/x\n8:cpu,cpuacct:/x\n4:memory:/docker/77\n0::/x\n");
	snprintf(line, sizeof(line),
		"31 23 0:28 / /cg rw - tmpfs tmpfs rw\n"
		"32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
		"35 31 0:32 %s /cg/memory rw shared:9 - cgroup cgroup rw,memory\n"
		"41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
		from);
	put("/proc/self/mountinfo", line);
}

static void test_version_1(void **state)
{
	struct cgroup_memory m;
	char file[CGROUP_FILE_BYTES];

	put_version_1("/");
	put("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/cg/memory/docker/memory.limit_in_bytes", "80000000\n");
	put("/cg/memory/docker/77/memory.limit_in_bytes", "9223372036854771712\n");
	put("/cg/memory/docker/memory.usage_in_bytes", "50000000\n");
	put("/cg/memory/docker/memory.stat",
		"cache 1\ninactive_file 9\ntotal_inactive_file 10000000\n");
	put("/cg/memory/docker/77/memory.oom_control",
		"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
	put("/cg/unified/x/memory.max", "5\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 80000000);
	assert_int_equal(m.free_bytes, 40000000);
	assert_string_equal(m.file, "/cg/memory/docker/memory.limit_in_bytes");
	assert_int_equal(cgroup_oom_kills(root, file), 1);
	assert_string_equal(file, "/cg/memory/docker/77/memory.oom_control");
}

/* Version 1 in a container: its own group is mounted, the path is the machine's. */
static void test_version_1_container(void **state)
{
	struct cgroup_memory m;

	put_version_1("/docker/77");
	put("/cg/memory/memory.limit_in_bytes", "60000000\n");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 60000000);
	put_version_1("/docker/7");
	assert_int_equal(cgroup_memory_read(root, &m), 0);
	assert_int_equal(m.limit_bytes, 60000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_pids, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_version_2, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_out_of_view, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_version_1, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_version_1_container, make_root, remove_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
