#include "tests/unit/engine/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESS_BYTES = 8192 };

/* Memory of all ranks and of the caller. */
struct board {
	_Atomic int ready; /* addresses written */
	char address[RANKS_MAX][ADDRESS_BYTES];
	alignas(max_align_t) char shared[RANKS_SHARED_BYTES];
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* As if the upper half of the ranks were on another node. */
static bool ranks_on_nodes(void)
{
	return getenv("GPT2D_TEST_NODES") != NULL;
}

static int connect_rank(struct ranks_self *self, const struct ranks_options *o, struct board *board)
{
	const char *addresses[RANKS_MAX];
	char error[512] = "";
	int nodes[RANKS_MAX], status;

	snprintf(board->address[self->rank], ADDRESS_BYTES, "%s", collectives_address(self->c));
	atomic_fetch_add(&board->ready, 1);
	while (atomic_load(&board->ready) < self->world)
		nap();
	if (self->rank >= self->world - o->absent)
		return 95;
	for (int p = 0; p < self->world; p++) {
		addresses[p] = board->address[p];
		nodes[p] = p * 2 / self->world;
	}
	status = collectives_connect(
		self->c, addresses, ranks_on_nodes() ? nodes : NULL, error, sizeof error);
	if (status == 0)
		return collectives_group(self->c, self->world, &self->all) == 0 ? 0 : 98;
	if (o->refused != NULL)
		return -1 - o->refused(self, status, error);
	fprintf(stderr, "connect: %s\n", error);
	return 99;
}

static int run_rank(const struct ranks_options *o, int rank, struct board *board)
{
	struct ranks_self self = {
		.rank = rank, .world = o->world, .arg = o->arg, .shared = board->shared};
	struct k_context_options context = {.device = rank, .threads = 1};
	struct collectives_options options = {
		.rank = rank, .world = o->world, .timeout_ns = o->timeout_ns};
	char why[256];
	int status = 97;

	if (options.timeout_ns == 0)
		options.timeout_ns = INT64_C(30000000000);
	if (k_context_create(&context, &self.ctx) != 0)
		return status;
	options.ctx = self.ctx;
	options.interface = ranks_on_nodes() ? "lo" : NULL;
	if (k_stream_create(self.ctx, K_STREAM_COMPUTE, "compute", &self.compute) == 0 &&
		k_stream_create(self.ctx, K_STREAM_COMM, "comm", &self.comm) == 0 &&
		collectives_create(&options, &self.c, why, sizeof(why)) == 0) {
		status = connect_rank(&self, o, board);
		if (status == 0)
			status = o->fn(&self);
		else if (status < 0)
			status = -1 - status;
	}
	k_stream_destroy(self.comm);
	k_stream_destroy(self.compute);
	collectives_destroy(self.c);
	k_context_destroy(self.ctx);
	return status;
}

/* Checks once whether the rank has ended. *stopped if a signal has stopped it. */
static bool look_at_rank(pid_t pid, int *exit_status, bool *stopped)
{
	int status;
	pid_t got = waitpid(pid, &status, WNOHANG | WUNTRACED);

	if (got == 0 || (got < 0 && errno == EINTR))
		return false;
	if (got == pid && WIFSTOPPED(status)) {
		*stopped = true;
		return false;
	}
	if (got < 0)
		*exit_status = -errno;
	else
		*exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	return true;
}

/* Until all have ended. Killed are those still there at end_ns, and stopped ones once no other is
 * left. */
static void wait_ranks(const pid_t *pids, int world, int64_t end_ns, int *exit_status)
{
	bool ended[RANKS_MAX], stopped[RANKS_MAX] = {false};
	int left = world, running;

	for (int r = 0; r < world; r++) {
		exit_status[r] = -1;
		ended[r] = pids[r] < 0;
	}
	while (left > 0) {
		left = running = 0;
		for (int r = 0; r < world; r++) {
			if (!ended[r])
				ended[r] = look_at_rank(pids[r], &exit_status[r], &stopped[r]);
			left += !ended[r];
			running += !ended[r] && !stopped[r];
		}
		if (left > 0 && (running == 0 || now_ns() > end_ns))
			break;
		nap();
	}
	for (int r = 0; r < world; r++) {
		if (ended[r])
			continue;
		kill(pids[r], SIGKILL);
		waitpid(pids[r], NULL, 0);
		exit_status[r] = -1000;
	}
}

int ranks_run(const struct ranks_options *o, struct ranks_end *end)
{
	struct board *board = mmap(
		NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int64_t end_ns = now_ns() + (o->limit_ns ? o->limit_ns : INT64_C(60000000000));
	pid_t pids[RANKS_MAX] = {0}, parent = getpid();

	if (board == MAP_FAILED)
		return -errno;
	fflush(NULL);
	for (int r = 0; r < o->world; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(96);
			if (o->before != NULL)
				o->before(r);
			/* exit, not _exit: leaks are reported there */
			exit(run_rank(o, r, board));
		}
	}
	wait_ranks(pids, o->world, end_ns, end->exit_status);
	memcpy(end->pids, pids, sizeof end->pids);
	memcpy(end->shared, board->shared, sizeof end->shared);
	munmap(board, sizeof *board);
	return 0;
}

int ranks_run_well(
	int world, int (*fn)(struct ranks_self *), const void *arg, void *out, size_t out_bytes)
{
	const struct ranks_options options = {.world = world,
		.timeout_ns = INT64_C(60000000000),
		.limit_ns = INT64_C(240000000000),
		.fn = fn,
		.arg = arg};
	struct ranks_end *end = malloc(sizeof *end);
	int rc = end == NULL || out_bytes > sizeof end->shared ? -ENOMEM : ranks_run(&options, end);

	if (rc != 0)
		fprintf(stderr, "%d ranks: %s\n", world, strerror(-rc));
	for (int r = 0; rc == 0 && r < world; r++) {
		rc = end->exit_status[r];
		if (rc != 0)
			fprintf(stderr, "rank %d of %d ended with status %d\n", r, world, rc);
	}
	if (rc == 0 && out_bytes > 0)
		memcpy(out, end->shared, out_bytes);
	free(end);
	return rc;
}

void ranks_keep_error(struct ranks_self *self)
{
	const char *error = collectives_error(self->c);

	snprintf(self->shared + self->rank * RANKS_TEXT_BYTES, RANKS_TEXT_BYTES, "%s",
		error == NULL ? "" : error);
}

const char *ranks_error_of(const struct ranks_end *end, int rank)
{
	return end->shared + rank * RANKS_TEXT_BYTES;
}

bool ranks_shared_memory(void)
{
	const char *transports = getenv("UCX_TLS");

	return transports == NULL || strcmp(transports, "tcp") != 0;
}

void ranks_nap_us(int64_t us)
{
	nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

void ranks_work(struct ranks_self *self, int rounds)
{
	enum { N = 12 * 100000 };
	float *x = calloc(N, sizeof *x);
	int64_t flag = 0;

	for (int i = 0; x != NULL && i < rounds && collectives_error(self->c) == NULL; i++) {
		collectives_reduce_scatter(self->all, x, N, self->comm);
		collectives_all_gather(self->all, x, N, self->comm);
		collectives_all_reduce(
			self->all, &flag, 1, COLLECTIVES_INT64, COLLECTIVES_MAX, self->comm);
		k_stream_sync(self->comm, INT64_C(100000000000));
	}
	free(x);
}

void *ranks_kill_later(void *us)
{
	ranks_nap_us(*(const int64_t *)us);
	kill(getpid(), SIGKILL);
	return NULL;
}
