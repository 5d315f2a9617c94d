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

#include "proto/host/data_roots.h"

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
	assert_int_equal(mkdir(in_home("more"), 0700), 0);
	assert_int_equal(mkdir(in_home("data/sub"), 0700), 0);
	make_file("data/in");
	make_file("more/in");
	assert_int_equal(symlink("../more", in_home("data/to-more")), 0);
	assert_int_equal(symlink("./../../more//in", in_home("data/sub/to-more-in")), 0);
	assert_int_equal(symlink(in_home("root/in"), in_home("data/by-root")), 0);
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

/* Whether what leads there is not said to be outside. */
static bool holds(const struct data_roots *roots, const char *path)
{
	char link[2 * PATH_MAX];
	int fd = data_roots_open(roots, path, link, sizeof(link));

	if (fd >= 0)
		close(fd);
	return fd != -EXDEV;
}

static int tear_down(void **state)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -r '%s'", home);
	return system(command);
}

static const struct {
	const char *path;
	bool held;
} paths[] = {
	{"data/in", true},
	{"data", false},
	{"data2/out", false},
	{"data/link-out", false},
	{"data2/link-in", false}, /* a link that is outside */
	{"data/folder-out/out", false},
	{"data/folder-out/not-there", false},
	{"data/to-nothing", false},
	{"data/to-nothing/x", false},
	{"data/not-there", true},
	{"data/no/such/file", true},
	{"data/no/../in", true}, /* "no" was not found, below */
	{"data/../data/in", true},
	{"data/../data2/out", false},
	{"data/..", false},
	{"data/in/x", true}, /* the file is below, and no folder */
	{"data/in/", true},
	{"data/in/../../data2/out", true},
	{"data2/out/x", false},
	{"data/link-out/x", false},
	{"data/dangling", true},
	{"data/dangling/x/y", true},
	{"data/dangling/", true},
	{"data/dangling/../in", true},
	{"data/dangling2", true},
	{"data/dangling-up", false},
	{"data/dangling-out", true},
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
	{"data2/../root/not-there", false},
	{"nowhere/x", false},
	{"data2/../data/in", false},
	{"none/../data/in", false},
	{"data/folder-out/../data/in", false},
	{"data//./in", true},
	{"./data/../root/in", true},
	{"data/sub/../in", true},
	{"data/sub/../../more/in", true},
	{"data/sub/../../more/", false},
	{"data/to-more", false},
	{"data/to-more/../in", false},
	{"data/to-more/../data/in", true},
	{"data/sub/to-more-in", true},
	{"data/by-root", true},
	{"more/../more/../data/../root/in", true},
	{"more/../data2/../data/in", false},
};

static void test_paths(void **state)
{
	char root[PATH_MAX + 64], more[PATH_MAX + 64];
	struct data_roots roots = {{"/nowhere/", root, more}, 3};

	snprintf(root, sizeof(root), "%s/./root/", home); /* itself a link */
	snprintf(more, sizeof(more), "%s/more", home);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (holds(&roots, in_home(paths[i].path)) != paths[i].held)
			fail_msg("%s: %s", paths[i].path, paths[i].held ? "refused" : "let in");
	}
	assert_false(holds(&roots, "relative"));
	assert_false(holds(&roots, "/"));
	assert_false(holds(&roots, "/etc/passwd"));
	roots = (struct data_roots){{"/"}, 1};
	assert_true(holds(&roots, "/etc/passwd"));
	assert_true(holds(&roots, "/not-there"));
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

/* What is told of a path: the error, and of the link that led outside. */
static void test_words(void **state)
{
	static const struct {
		const char *path;
		int rc;
		const char *link; /* "": none is told of */
	} cases[] = {
		{"data//link-out", -EXDEV, "data//link-out is a link to "},
		/* what is behind it is not looked at */
		{"data/link-out/x/y", -EXDEV, "data/link-out is a link to "},
		{"data/sub/../folder-out/../x", -EXDEV, "data/sub/../folder-out is a link to "},
		{"data2/link-in", -EXDEV, ""},
		{"data2/none", -EXDEV, ""},
		{"data/", -EXDEV, ""},
		{"data/none/x", -ENOENT, ""},
		{"data/dangling2", -ENOENT, ""},
		{"data/dangling-out", -ENOENT, ""},
		{"data/in/", -ENOTDIR, ""},
		{"data/in/x", -ENOTDIR, ""},
		{"data/in/..", -ENOTDIR, ""},
		{"data/loop", -ELOOP, ""},
		{"data/self", -ELOOP, ""},
	};
	char root[PATH_MAX + 64], said[2 * PATH_MAX];
	struct data_roots roots = {{"/nowhere/", root}, 2};

	snprintf(root, sizeof(root), "%s/data", home);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *path = in_home(cases[i].path);
		int rc = data_roots_open(&roots, path, said, sizeof(said));

		if (rc != cases[i].rc || (cases[i].link[0] == '\0') != (said[0] == '\0') ||
			strstr(said, cases[i].link) == NULL)
			fail_msg("%s: %d, \"%s\"", cases[i].path, rc, said);
	}
}

/* What is opened is the file that the path leads to, without access. */
static void test_what_is_opened(void **state)
{
	static const char *const ways[] = {"data/in", "data/sub/../in", "data/by-root",
		"data/to-more/../data/in", "data/../data/./in"};
	char root[PATH_MAX + 64], more[PATH_MAX + 64], said[2 * PATH_MAX], byte;
	struct data_roots roots = {{root, more}, 2};
	struct stat file, st;

	snprintf(root, sizeof(root), "%s/root", home);
	snprintf(more, sizeof(more), "%s/more", home);
	assert_int_equal(stat(in_home("data/in"), &file), 0);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int fd = data_roots_open(&roots, in_home(ways[i]), said, sizeof(said));

		assert_true(fd >= 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_true(st.st_ino == file.st_ino && data_roots_hold_fd(&roots, fd));
		assert_true(read(fd, &byte, 1) < 0 && errno == EBADF);
		close(fd);
	}
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
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_what_is_opened),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
