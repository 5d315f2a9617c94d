#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "proto/artifact.h"
#include "tests/unit/test.h"

static int count_entries(const char *path)
{
	struct dirent *entry;
	DIR *dir = opendir(path);
	int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(dir);
	return n;
}

static void assert_content(const char *dir, const char *name, const char *expected)
{
	char path[256], found[256];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	assert_non_null(f);
	n = fread(found, 1, sizeof(found), f);
	fclose(f);
	assert_int_equal(n, strlen(expected));
	assert_memory_equal(found, expected, n);
}

static void test_write_and_overwrite(void **state)
{
	const char *dir = *state;

	assert_int_equal(artifact_write(dir, "a.json", "first", 5), 0);
	assert_content(dir, "a.json", "first");
	assert_int_equal(artifact_write(dir, "a.json", "2nd", 3), 0);
	assert_content(dir, "a.json", "2nd");
	assert_int_equal(artifact_write(dir, "empty", "", 0), 0);
	assert_content(dir, "empty", "");
	assert_int_equal(count_entries(dir), 2);
}

struct letters {
	struct artifact_source source;
	const char *at;
	int rc; /* at the end */
};

static int next_letter(struct artifact_source *source, const char **bytes, size_t *n)
{
	struct letters *l = (struct letters *)source;

	*bytes = l->at;
	*n = *l->at != '\0';
	l->at += *n;
	return *n == 0 ? l->rc : 0;
}

static void test_parts(void **state)
{
	const char *dir = *state;
	struct letters l = {.source = {.next = next_letter}, .at = "part"};
	int64_t written;

	assert_int_equal(artifact_write_from(dir, "parts", &l.source, 0, &written), 0);
	assert_int_equal(written, 4);
	assert_content(dir, "parts", "part");
	l = (struct letters){.source = {.next = next_letter}, .at = "other", .rc = -ENOMEM};
	assert_int_equal(artifact_write_from(dir, "parts", &l.source, 0, &written), -ENOMEM);
	assert_content(dir, "parts", "part");
	assert_int_equal(count_entries(dir), 1);
}

static void test_names_refused(void **state)
{
	const char *dir = *state;
	static const char *const names[] = {"", ".", "..", "../x", "a/b", "/etc/x", ".hidden"};
	char long_name[300];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(artifact_write(dir, names[i], "x", 1), -EINVAL);
		assert_int_equal(artifact_remove(dir, names[i]), -EINVAL);
	}
	memset(long_name, 'a', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(artifact_write(dir, long_name, "x", 1), -ENAMETOOLONG);
	assert_int_equal(artifact_write("/nonexistent-dir", "x", "x", 1), -ENOENT);
	assert_int_equal(count_entries(dir), 0);
}

static void test_link_left_behind_is_not_written_through(void **state)
{
	const char *dir = *state;
	char target[128], link_path[128];

	assert_int_equal(artifact_write(dir, "victim", "precious", 8), 0);
	snprintf(target, sizeof(target), "%s/victim", dir);
	snprintf(link_path, sizeof(link_path), "%s/.a.json.tmp", dir);
	assert_int_equal(symlink(target, link_path), 0);
	assert_int_equal(artifact_write(dir, "a.json", "new", 3), 0);
	assert_content(dir, "victim", "precious");
	assert_content(dir, "a.json", "new");
}

/* a write that fails half way leaves the older file and no temporary one */
static void test_failed_write_keeps_the_old(void **state)
{
	const char *dir = *state;
	struct rlimit old, small;
	char *big = malloc(1 << 16);
	int rc;

	assert_non_null(big);
	memset(big, 'x', 1 << 16);
	assert_int_equal(artifact_write(dir, "a.json", "old", 3), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 4096;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = artifact_write(dir, "a.json", big, 1 << 16);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rc, -EFBIG);
	assert_content(dir, "a.json", "old");
	assert_int_equal(count_entries(dir), 1);
	free(big);
}

static void test_remove(void **state)
{
	const char *dir = *state;

	assert_int_equal(artifact_write(dir, ARTIFACT_COMPLETE, "x", 1), 0);
	assert_int_equal(artifact_remove(dir, ARTIFACT_COMPLETE), 0);
	assert_int_equal(count_entries(dir), 0);
	assert_int_equal(artifact_remove(dir, ARTIFACT_COMPLETE), 0);
	assert_int_equal(artifact_remove("/nonexistent-dir", ARTIFACT_COMPLETE), -ENOENT);
}

static void test_sha256(void **state)
{
	char hex[65];

	assert_int_equal(artifact_sha256("", 0, hex), 0);
	assert_string_equal(
		hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	assert_int_equal(artifact_sha256("abc", 3, hex), 0);
	assert_string_equal(
		hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_MAIN(TEST_IN_FOLDER(test_write_and_overwrite), TEST_IN_FOLDER(test_parts),
	TEST_IN_FOLDER(test_names_refused),
	TEST_IN_FOLDER(test_link_left_behind_is_not_written_through),
	TEST_IN_FOLDER(test_failed_write_keeps_the_old), TEST_IN_FOLDER(test_remove),
	cmocka_unit_test(test_sha256))
