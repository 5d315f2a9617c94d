#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/data_roots.h"

static char home[PATH_MAX];

static const char *in_home(const char *name)
{
	static char path[4][PATH_MAX + 64];
	static int next;
	char *out = path[next++ % 4];

	snprintf(out, sizeof(path[0]), "%s/%s", home, name);
	return out;
}

static void make_file(const char *name)
{
	int fd = open(in_home(name), O_WRONLY | O_CREAT, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(home, sizeof(home), "%s/gpt2d-roots-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(home));
	assert_int_equal(mkdir(in_home("data"), 0700), 0);
	assert_int_equal(mkdir(in_home("data2"), 0700), 0);
	make_file("data/in");
	make_file("data2/out");
	assert_int_equal(symlink(in_home("data2/out"), in_home("data/link-out")), 0);
	assert_int_equal(symlink(in_home("data/in"), in_home("data2/link-in")), 0);
	assert_int_equal(symlink(in_home("data2"), in_home("data/folder-out")), 0);
	assert_int_equal(symlink(in_home("data2/no"), in_home("data/to-nothing")), 0);
	assert_int_equal(symlink(in_home("data"), in_home("root")), 0);
	assert_int_equal(symlink("nowhere", in_home("data/dangling")), 0);
	assert_int_equal(symlink("dangling", in_home("data/dangling2")), 0);
	assert_int_equal(symlink("../data2/../data/nowhere", in_home("data/dangling-up")), 0);
	assert_int_equal(symlink("no/../../data2/no", in_home("data/dangling-out")), 0);
	assert_int_equal(symlink(in_home("data/nowhere"), in_home("data2/dangling")), 0);
	assert_int_equal(symlink(in_home("data2/dangling"), in_home("data/dangling-via")), 0);
	assert_int_equal(symlink("loop2", in_home("data/loop")), 0);
	assert_int_equal(symlink("loop", in_home("data/loop2")), 0);
	assert_int_equal(symlink("self/x", in_home("data/self")), 0);
	assert_int_equal(symlink(in_home("data2/loop"), in_home("data/loop-out")), 0);
	assert_int_equal(symlink(in_home("data/loop-out"), in_home("data2/loop")), 0);
	return 0;
}

static int tear_down(void **state)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -r '%s'", home);
	return system(command);
}

static void test_paths(void **state)
{
	static const struct {
		const char *path;
		bool held;
	} cases[] = {
		{"data/in", true},
		{"data", false},
		{"data2/out", false},
		{"data/link-out", false},
		{"data2/link-in", true},
		{"data/folder-out/out", false},
		{"data/folder-out/not-there", false},
		{"data/to-nothing", false},
		{"data/to-nothing/x", false},
		{"data/not-there", true},
		{"data/no/such/file", true},
		{"data/no/../in", false},
		{"data/../data/in", true},
		{"data/../data2/out", false},
		{"data/..", false},
		{"data/in/x", true}, /* the file is below, and no folder */
		{"data/in/", true},
		{"data/in/../../data2/out", false},
		{"data2/out/x", false},
		{"data/link-out/x", false},
		{"data/dangling", true},
		{"data/dangling/x/y", true},
		{"data/dangling/", true},
		{"data/dangling/../in", false},
		{"data/dangling2", true},
		{"data/dangling-up", true},
		{"data/dangling-out", false},
		{"root/dangling", true},
		{"data/dangling-via", false}, /* what links there are elsewhere is not told */
		{"data2/dangling", false},
		{"data/loop", true},
		{"data/loop/x", true},
		{"data/self", true},
		{"data/loop-out", false},
		{"data2/loop", false},
		{"data/..in", true},
		{"root/in", true},
		{"data2/../root/not-there", true},
		{"nowhere/x", false},
	};
	char root[PATH_MAX + 64];
	struct data_roots roots = {{"/nowhere/", root}, 2}, anywhere = {.n = 0};

	snprintf(root, sizeof(root), "%s/root", home); /* itself a link */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (data_roots_hold(&roots, in_home(cases[i].path)) != cases[i].held)
			fail_msg("%s: %s", cases[i].path, cases[i].held ? "refused" : "let in");
		assert_true(data_roots_hold(&anywhere, in_home(cases[i].path)));
	}
	assert_false(data_roots_hold(&roots, "relative"));
	assert_false(data_roots_hold(&roots, "/"));
	assert_false(data_roots_hold(&roots, "/etc/passwd"));
	roots = (struct data_roots){{"/"}, 1};
	assert_true(data_roots_hold(&roots, "/etc/passwd"));
	assert_true(data_roots_hold(&roots, "/not-there"));
}

static void test_open_files(void **state)
{
	char root[PATH_MAX + 64];
	struct data_roots roots = {{root}, 1};
	int in, out, flags = O_PATH | O_CLOEXEC;

	snprintf(root, sizeof(root), "%s/data", home);
	in = open(in_home("data2/link-in"), flags);
	out = open(in_home("data/link-out"), flags);
	assert_true(in >= 0 && out >= 0);
	assert_true(data_roots_hold_fd(&roots, in));
	assert_false(data_roots_hold_fd(&roots, out));
	assert_false(data_roots_hold_fd(&roots, -1));
	roots.n = 0;
	assert_true(data_roots_hold_fd(&roots, out));
	close(in);
	close(out);
}

static void test_links(void **state)
{
	char root[PATH_MAX + 64], said[2 * PATH_MAX];
	struct data_roots roots = {{"/nowhere/", root}, 2};

	snprintf(root, sizeof(root), "%s/data", home);
	assert_true(data_roots_link(&roots, in_home("data//link-out"), said, sizeof(said)));
	assert_non_null(strstr(said, "data//link-out is a link to "));
	/* what is behind it is not looked at */
	assert_true(data_roots_link(&roots, in_home("data/link-out/x/y"), said, sizeof(said)));
	assert_non_null(strstr(said, "data/link-out is a link to "));
	assert_false(data_roots_link(&roots, in_home("data/none/x"), said, sizeof(said)));
	assert_string_equal(said, "");
	assert_false(data_roots_link(&roots, in_home("data2/link-in"), said, sizeof(said)));
	assert_false(data_roots_link(&roots, in_home("data/../data/link-out"), said, sizeof(said)));
	assert_false(data_roots_link(&roots, in_home("data/"), said, sizeof(said)));
}

static void test_messages(void **state)
{
	struct data_roots roots = {{"/a", "/b c"}, 2}, again;
	json_t *array = data_roots_json(&roots), *number = json_pack("[i]", 1);

	assert_int_equal(data_roots_read(&again, array), 0);
	assert_int_equal(again.n, 2);
	assert_string_equal(again.path[1], "/b c");
	assert_int_equal(data_roots_read(&again, NULL), 0);
	assert_int_equal(again.n, 0);
	assert_int_equal(data_roots_read(&again, number), -EINVAL);
	assert_int_equal(data_roots_read(&again, json_array_get(number, 0)), -EINVAL);
	while (json_array_size(array) <= DATA_ROOTS_MAX)
		json_array_append_new(array, json_string("/x"));
	assert_int_equal(data_roots_read(&again, array), -EINVAL);
	json_decref(array);
	json_decref(number);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_open_files),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
