/*
 * What collectives do to the machine: which ports are opened, which threads take signals, what is
 * left in shared memory after a kill; nothing at all for a world of one.
 */
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "engine/comm/ucx_shm.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/test.h"

enum { TEXT_BYTES = RANKS_TEXT_BYTES };
static struct ranks_end end;

#define RUN(...) assert_int_equal(ranks_run(&(struct ranks_options){__VA_ARGS__}, &end), 0)

/* Does the line of a /proc/net table belong to a socket that this process holds? */
static bool holds_socket(const char *inode)
{
	char path[64], link[64], wanted[64];
	bool found = false;

	snprintf(wanted, sizeof wanted, "socket:[%s]", inode);
	for (int fd = 0; fd < 1024 && !found; fd++) {
		ssize_t n;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof link - 1);
		link[n > 0 ? n : 0] = '\0';
		found = strcmp(link, wanted) == 0;
	}
	return found;
}

/* Sockets of this process in a table; those not bound to 127.0.0.1 in *abroad. */
static int count_sockets(const char *table, int *abroad)
{
	char line[512], address[80], inode[32];
	int count = 0;
	FILE *f = fopen(table, "r");

	if (f == NULL)
		return 0;
	while (fgets(line, sizeof line, f) != NULL) {
		if (sscanf(line, "%*s %79s %*s %*s %*s %*s %*s %*s %*s %31s", address, inode) !=
				2 ||
			!holds_socket(inode))
			continue;
		count++;
		*abroad += strncmp(address, "0100007F:", 9) != 0;
	}
	fclose(f);
	return count;
}

/* Threads of UCX, which it calls async, in this process that would take a SIGTERM. */
static int count_open_to_signals(void)
{
	char path[300], line[256], name[64] = "";
	unsigned long long blocked;
	int count = 0;
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		FILE *f;

		snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (f != NULL && fgets(line, sizeof line, f) != NULL)
			if (sscanf(line, "Name: %63s", name) != 1 &&
				sscanf(line, "SigBlk: %llx", &blocked) == 1 &&
				strcmp(name, "async") == 0)
				count += (blocked >> (SIGTERM - 1) & 1) == 0;
		if (f != NULL)
			fclose(f);
	}
	if (dir != NULL)
		closedir(dir);
	return count;
}

static int count_ports(struct ranks_self *self)
{
	int abroad = 0, all;

	collectives_barrier(self->all, self->compute);
	all = count_sockets("/proc/self/net/tcp", &abroad);
	all += count_sockets("/proc/self/net/tcp6", &abroad);
	all += count_sockets("/proc/self/net/udp", &abroad);
	all += count_sockets("/proc/self/net/udp6", &abroad);
	collectives_barrier(self->all, self->compute);
	snprintf(self->shared + self->rank * TEXT_BYTES, TEXT_BYTES, "%d %d %s", all, abroad,
		collectives_library(self->c));
	return count_open_to_signals() == 0 ? 0 : 8;
}

static void test_ports_and_signals(void **state)
{
	int all, abroad;

	RUN(.world = 2, .fn = count_ports);
	for (int r = 0; r < 2; r++) {
		assert_int_equal(end.exit_status[r], 0);
		assert_int_equal(sscanf(ranks_error_of(&end, r), "%d %d", &all, &abroad), 2);
		assert_int_equal(abroad, 0);
		if (ranks_shared_memory()) {
			assert_int_equal(all, 0);
			assert_non_null(strstr(ranks_error_of(&end, r), "(self,posix,cma)"));
		} else {
			assert_true(all > 0);
			assert_non_null(strstr(ranks_error_of(&end, r), "(tcp)"));
		}
	}
}

/* Whatever is in the directory, and segments of System V shared memory made by one of the
 * processes. */
static int count_left_over(const char *parent, const pid_t *makers, int n)
{
	char line[256];
	int count = 0, maker;
	struct dirent *entry;
	DIR *dir = opendir(parent);
	FILE *f = fopen("/proc/sysvipc/shm", "r");

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		count += entry->d_name[0] != '.';
	if (dir != NULL)
		closedir(dir);
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "%*d %*d %*o %*u %d", &maker) == 1)
			for (int i = 0; i < n; i++)
				count += makers[i] == maker;
	if (f != NULL)
		fclose(f);
	return count;
}

static int all_die(struct ranks_self *self)
{
	ranks_work(self, 1000000);
	pause();
	return 0;
}

static int refused_and_die(struct ranks_self *self, int status, const char *error)
{
	pause();
	return 0;
}

static int64_t death_us;

static void die_later(int rank)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, ranks_kill_later, &death_us) == 0)
		pthread_detach(thread);
}

static int once_more(struct ranks_self *self)
{
	const char *parent = getenv("GPT2D_TEST_SHM");
	int there = count_left_over(parent, NULL, 0);

	ranks_work(self, 2);
	return there == (ranks_shared_memory() ? 1 : 0) ? 0 : 7;
}

/*
 * 50 times all ranks are killed, at moments from the making of the context to the middle of the
 * work; after the next orderly run there is no trace of them.
 */
static void test_nothing_left(void **state)
{
	enum { KILLS = 50 };
	char parent[] = "/dev/shm/gpt2d-test-XXXXXX";
	pid_t makers[2 * KILLS];

	assert_non_null(mkdtemp(parent));
	setenv("UCX_POSIX_DIR", parent, 1);
	setenv("GPT2D_TEST_SHM", parent, 1);
	for (int i = 0; i < KILLS; i++) {
		death_us = i * 700;
		RUN(.world = 2, .before = die_later, .fn = all_die, .refused = refused_and_die);
		for (int r = 0; r < 2; r++)
			/* UCX 1.13 may abort when tcp is refused by the other, dead already */
			if (end.exit_status[r] != -SIGKILL &&
				(ranks_shared_memory() || end.exit_status[r] != -SIGABRT))
				fail_msg("rank %d: status %d", r, end.exit_status[r]);
		memcpy(makers + 2 * i, end.pids, 2 * sizeof *makers);
	}
	RUN(.world = 2, .fn = once_more);
	assert_int_equal(end.exit_status[0], 0);
	assert_int_equal(end.exit_status[1], 0);
	unsetenv("UCX_POSIX_DIR");
	assert_int_equal(count_left_over(parent, makers, 2 * KILLS), 0);
	assert_int_equal(rmdir(parent), 0);
}

static int work_once(struct ranks_self *self)
{
	ranks_work(self, 2);
	return 0;
}

static const char *shm_parents[2];

static void enter_own(int rank)
{
	setenv("UCX_POSIX_DIR", shm_parents[rank], 1);
}

/*
 * What stands in the place of this user's directory belongs to somebody else, or is none: another
 * name is taken, by each rank its own if need be, what a killed one has left is taken over, and
 * nothing stays.
 */
static void test_name_is_taken(void **state)
{
	char one[] = "/dev/shm/gpt2d-test-XXXXXX", two[] = "/dev/shm/gpt2d-test-XXXXXX";
	char taken[2][64], left[160];

	if (!ranks_shared_memory())
		return; /* no directory is entered */
	shm_parents[0] = mkdtemp(one);
	shm_parents[1] = mkdtemp(two);
	for (int i = 0; i < 2; i++) {
		assert_non_null(shm_parents[i]);
		snprintf(taken[i], sizeof taken[i], "%s/gpt2d-%u", shm_parents[i], geteuid());
		assert_int_equal(mkdir(taken[i], 0755), 0);
		assert_int_equal(chmod(taken[i], 0755), 0); /* not its user's alone */
		snprintf(left, sizeof left, "%s-abcdef", taken[i]);
		assert_int_equal(mkdir(left, 0700), 0);
	}
	for (int i = 0; i < 3; i++) {
		RUN(.world = 2, .before = enter_own, .fn = work_once);
		assert_int_equal(end.exit_status[0], 0);
		assert_int_equal(end.exit_status[1], 0);
		shm_parents[1] = shm_parents[0]; /* from now on they share it */
		assert_int_equal(count_left_over(shm_parents[0], NULL, 0), 1);
		assert_int_equal(count_left_over(two, NULL, 0), 1);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(rmdir(taken[i]), 0);
	assert_int_equal(rmdir(one), 0);
	assert_int_equal(rmdir(two), 0);
}

/* A world of one: nothing of UCX, every call a no-op. */
static int alone(struct ranks_self *self)
{
	float x[3] = {1, 2, 3}, y[3] = {0};

	collectives_reduce_scatter(self->all, x, 3, self->comm);
	collectives_all_gather(self->all, x, 3, self->comm);
	collectives_all_reduce(self->all, x, 3, COLLECTIVES_ELEM, COLLECTIVES_SUM, self->comm);
	collectives_broadcast(self->all, x, sizeof x, 0, self->comm);
	collectives_barrier(self->all, self->compute);
	collectives_gather_all(self->all, y, x, sizeof x, self->comm);
	if (k_stream_sync(self->comm, INT64_C(60000000000)) != 0 || memcmp(x, y, sizeof x) != 0 ||
		x[0] + x[1] + x[2] != 6 || collectives_error(self->c) != NULL ||
		collectives_scratch_bytes(1, 1) != 0)
		return 1;
	snprintf(self->shared, TEXT_BYTES, "%s%s", collectives_address(self->c),
		collectives_library(self->c));
	return 0;
}

static void test_alone(void **state)
{
	RUN(.world = 1, .fn = alone);
	assert_int_equal(end.exit_status[0], 0);
	assert_string_equal(end.shared, "none (1 rank)");
}

/* Where too little is free for UCX the folder and the figures are named. */
static void test_room_is_short(void **state)
{
	char parent[] = "/dev/shm/gpt2d-test-XXXXXX", why[384] = "as it was", expected[64];
	struct ucx_shm shm = {.fd = -1};

	assert_false(ucx_shm_is_short(&shm, INT_MAX, why, sizeof why));
	assert_non_null(mkdtemp(parent));
	setenv("UCX_POSIX_DIR", parent, 1);
	assert_int_equal(ucx_shm_enter(&shm), 0);
	assert_false(ucx_shm_is_short(&shm, 0, why, sizeof why));
	assert_string_equal(why, "as it was");
	assert_true(ucx_shm_is_short(&shm, INT_MAX, why, sizeof why)); /* 10 PiB */
	snprintf(expected, sizeof expected, "%s/gpt2d-%u: ", parent, geteuid());
	assert_memory_equal(why, expected, strlen(expected));
	assert_non_null(strstr(why, " MiB free, 10737418235 MiB needed by 2147483647 ranks"));
	ucx_shm_leave(&shm);
	unsetenv("UCX_POSIX_DIR");
	assert_int_equal(rmdir(parent), 0);
}

TEST_MAIN(cmocka_unit_test(test_alone), cmocka_unit_test(test_ports_and_signals),
	cmocka_unit_test(test_nothing_left), cmocka_unit_test(test_name_is_taken),
	cmocka_unit_test(test_room_is_short))
