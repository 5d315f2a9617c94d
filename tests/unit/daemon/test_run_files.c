/* Files of a run: none outside its directory is ever listed, opened or removed. */
#include <fcntl.h>

#include "daemon/runs/run_files.h"
#include "proto/artifact.h"
#include "tests/unit/test.h"

struct fixture {
	char root[64], dir[80];
};

static char *at(const char *folder, const char *name)
{
	static char paths[4][256];
	static int next;

	next = (next + 1) % 4;
	snprintf(paths[next], sizeof(paths[next]), "%s/%s", folder, name);
	return paths[next];
}

static void put(const char *path, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (size_t i = 0; i < n; i++)
		fputc('x', f);
	assert_int_equal(fclose(f), 0);
}

/*
 * root/secret, root/other/secret; root/dir has two files and a folder with a third, a hidden one, a
 * name with a blank, a socket-like pipe, and links to a file, to a folder and upwards.
 */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->root, "/tmp/test_run_files.XXXXXX");
	assert_non_null(mkdtemp(f->root));
	snprintf(f->dir, sizeof(f->dir), "%s/dir", f->root);
	assert_int_equal(mkdir(f->dir, 0700), 0);
	assert_int_equal(mkdir(at(f->root, "other"), 0700), 0);
	put(at(f->root, "secret"), 9);
	put(at(f->root, "other/secret"), 9);
	put(at(f->dir, "b.csv"), 5);
	put(at(f->dir, "a.json"), 7);
	put(at(f->dir, ".b.csv.tmp"), 3);
	put(at(f->dir, "a b"), 1);
	assert_int_equal(mkdir(at(f->dir, "segments"), 0700), 0);
	put(at(f->dir, "segments/log"), 11);
	assert_int_equal(mkfifo(at(f->dir, "pipe"), 0600), 0);
	assert_int_equal(symlink("../secret", at(f->dir, "link")), 0);
	assert_int_equal(symlink("../other", at(f->dir, "folder")), 0);
	assert_int_equal(symlink("..", at(f->dir, "segments/up")), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(run_files_remove(f->root), 0);
	assert_int_equal(rmdir(f->root), 0);
	free(f);
	return 0;
}

static void test_list(void **state)
{
	const struct fixture *f = *state;
	struct run_files files;

	assert_int_equal(run_files_list(f->dir, NULL, &files), 0);
	assert_int_equal(files.n, 3);
	assert_string_equal(files.file[0].path, "a.json");
	assert_string_equal(files.file[1].path, "b.csv");
	assert_string_equal(files.file[2].path, "segments/log");
	assert_int_equal(files.file[2].bytes, 11);
	assert_int_equal(files.left_out, 1); /* the name with a blank */
	run_files_finish(&files);
	assert_int_equal(run_files_list(f->dir, "segments", &files), 0);
	assert_int_equal(files.n, 2);
	run_files_finish(&files);
	assert_int_equal(run_files_list(at(f->root, "none"), NULL, &files), -ENOENT);
	assert_true(run_files_list(at(f->dir, "folder"), NULL, &files) < 0); /* a link itself */
}

static void test_too_deep(void **state)
{
	const struct fixture *f = *state;
	char path[256];
	struct run_files files;

	snprintf(path, sizeof(path), "%s", f->dir);
	for (int i = 1; i < ARTIFACT_DEPTH; i++) {
		strcat(path, "/d");
		assert_int_equal(mkdir(path, 0700), 0);
	}
	put(at(path, "deepest"), 1);
	assert_int_equal(mkdir(at(path, "e"), 0700), 0);
	put(at(path, "e/beyond"), 1);
	assert_int_equal(run_files_list(f->dir, NULL, &files), 0);
	assert_int_equal(files.n, 4);
	assert_int_equal(files.left_out, 2);
	for (size_t i = 0; i < files.n; i++)
		assert_true(artifact_path_valid(files.file[i].path));
	run_files_finish(&files);
}

static void test_open(void **state)
{
	static const char *const impossible[] = {"", ".", "..", "../secret", "/etc/passwd",
		"segments/../a.json", "segments/./log", "segments//log", "a.json/", ".b.csv.tmp",
		"segments/../../secret", "a b", "a\tb", "a\x80", "1/2/3/4/5/6/7/8/9"};
	static const char *const absent[] = {"none", "segments", "link", "pipe", "folder/secret",
		"segments/up/a.json", "a.json/b", "segments/none"};
	const struct fixture *f = *state;
	int64_t bytes = 0;
	int fd = -1;

	for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++)
		assert_int_equal(run_files_open(f->dir, impossible[i], &fd, &bytes), -EINVAL);
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		assert_int_equal(run_files_open(f->dir, absent[i], &fd, &bytes), -ENOENT);
	assert_int_equal(fd, -1);
	assert_int_equal(run_files_open(f->dir, "segments/log", &fd, &bytes), 0);
	assert_int_equal(bytes, 11);
	close(fd);
}

static void test_read(void **state)
{
	const struct fixture *f = *state;
	size_t n = 0;
	char *text = run_files_read(f->dir, "a.json", 7, &n);

	assert_non_null(text);
	assert_int_equal(n, 7);
	assert_string_equal(text, "xxxxxxx");
	free(text);
	assert_null(run_files_read(f->dir, "a.json", 6, &n));
	assert_null(run_files_read(f->dir, "pipe", 100, &n)); /* nor waits for who writes to it */
	assert_null(run_files_read(f->dir, "link", 100, &n));
	assert_null(run_files_read(f->dir, "none", 100, &n));
}

/* The targets of links stay. */
static void test_remove(void **state)
{
	const struct fixture *f = *state;

	assert_int_equal(run_files_bytes(f->dir), 5 + 7 + 3 + 1 + 11);
	assert_int_equal(run_files_remove(f->dir), 0);
	assert_int_equal(rmdir(f->dir), 0);
	assert_int_equal(access(at(f->root, "secret"), F_OK), 0);
	assert_int_equal(access(at(f->root, "other/secret"), F_OK), 0);
	assert_int_equal(run_files_remove(f->dir), 0); /* it is not there */
}

TEST_MAIN(cmocka_unit_test_setup_teardown(test_list, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_too_deep, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_open, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_read, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_remove, set_up, tear_down))
