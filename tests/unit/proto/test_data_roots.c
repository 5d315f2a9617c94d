#include <fcntl.h>
#include <limits.h>

#include "proto/host/data_roots.h"
#include "tests/unit/test.h"

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

static bool holds(const struct data_roots *roots, const char *path)
{
	char error[2 * PATH_MAX];
	int fd = data_roots_open(roots, path, error, sizeof(error));

	if (fd >= 0)
		close(fd);
	else
		assert_non_null(strstr(error, "or does not exist"));
	return fd >= 0;
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
	{"data", true},
	{"data/", true},
	{"data2/out", false},
	{"data/link-out", false},
	{"data2/link-in", true},
	{"data/folder-out/out", false},
	{"data/folder-out/not-there", false},
	{"data/to-nothing", false},
	{"data/not-there", false},
	{"data/no/../in", false},
	{"data/../data/in", true},
	{"data/../data2/out", false},
	{"data/in/x", false},
	{"data/in/", false},
	{"data/dangling", false},
	{"data/loop", false},
	{"data/loop-out", false},
	{"root/in", true},
	{"data2/../data/in", true},
	{"none/../data/in", false},
	{"data//./in", true},
	{"data/sub/../../more/in", true},
	{"data/to-more", true},
	{"data/to-more/in", true},
	{"data/to-more/../data/in", true},
	{"data/sub/to-more-in", true},
	{"data/by-root", true},
	{"more/../data2/out", false},
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
	assert_false(holds(&roots, "/not-there"));
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
		assert_true(st.st_ino == file.st_ino);
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
		cmocka_unit_test(test_what_is_opened),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
