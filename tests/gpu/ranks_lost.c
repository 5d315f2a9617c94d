/*
 * gpu_ranks_lost: ranks that train by captured graphs lose one of them in the middle of a step.
 *
 *   gpu_ranks_lost killed|stopped RANKS
 *
 * The last rank is killed, or stopped, which only a deadline of 3 s can detect. Every other rank
 * must get -EPIPE with a reason and exit by itself, with graphs and collectives still under way;
 * one that runs after two minutes is killed and counts as failed. The last line is "N passed, N
 * failed".
 */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/protocol.h"
#include "tests/gpu/trial.h"

enum { STEPS_BEFORE = 40, STEPS_BEFORE_CPU = 5, STEPS_AFTER = 1000000, LOST_OFFSET = 32768 };
static const int64_t limit_ns = INT64_C(120000000000);

/* A thread of the lost rank. */
struct end {
	int signal;
	int64_t *lost_ns; /* when, in shared memory */
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *end_soon(void *arg)
{
	const struct end *e = arg;

	ranks_nap_us(3456);
	*e->lost_ns = now_ns();
	kill(getpid(), e->signal);
	return NULL;
}

/* Steps until one fails; returns its code. */
static int run_steps(struct trial *m, struct training *t, struct end *end, char error[512])
{
	bool last = m->w.rank == m->w.world - 1;
	int before = m->graphs ? STEPS_BEFORE : STEPS_BEFORE_CPU;
	pthread_t thread;
	int rc = 0;

	training_reset(t);
	for (int i = 0; i < before + STEPS_AFTER && !rc; i++) {
		struct step_result r;

		if (i == before && last && pthread_create(&thread, NULL, end_soon, end))
			return -EAGAIN;
		rc = step_run(&t->step, false, &r, error, 512);
	}
	return rc;
}

static int train(struct trial *m, struct end *end, char error[512])
{
	struct spec_config c = trial_config(m->graphs ? SPEC_BF16 : SPEC_FP32, m->w.world);
	struct dataset data;
	struct training t;
	int rc;

	c.reduce_bucket_elems = c.allgather_bucket_elems = 50000;
	m->w.ranks_graphs = m->graphs;
	rc = dataset_open(&data, &c, false, error, 512);
	if (!rc)
		rc = training_init(&t, &m->w, &c, &data, error, 512);
	if (!rc)
		rc = training_join(&t, m->group);
	return rc ? rc : run_steps(m, &t, end, error);
}

static int run_rank(struct ranks_self *self)
{
	struct end end = {.signal = *(const int *)self->arg,
		.lost_ns = (int64_t *)(void *)(self->shared + LOST_OFFSET)};
	char error[512] = "";
	struct trial m;
	int rc;

	if (trial_init(&m, self))
		return 1;
	rc = train(&m, &end, error);
	printf("rank %d: %s, %.2f s after the loss: %s\n", self->rank, strerror(-rc),
		(double)(now_ns() - *end.lost_ns) * 1e-9, error);
	fflush(stdout);
	/* without cleanup, like the engine */
	_exit(rc == -EPIPE && error[0] ? ENGINE_EXIT_PEER_LOST : 1);
}

int main(int argc, char **argv)
{
	bool stopped = argc == 3 && strcmp(argv[1], "stopped") == 0;
	bool known = stopped || (argc == 3 && strcmp(argv[1], "killed") == 0);
	int signal = stopped ? SIGSTOP : SIGKILL, passed = 0;
	struct ranks_options options = {.world = argc == 3 ? atoi(argv[2]) : 0,
		.timeout_ns = stopped ? INT64_C(3000000000) : limit_ns,
		.limit_ns = limit_ns,
		.fn = run_rank,
		.arg = &signal};
	static struct ranks_end end;
	int64_t lost_ns;

	if (!known || options.world < 2 || options.world > RANKS_MAX) {
		fprintf(stderr, "usage: gpu_ranks_lost killed|stopped RANKS\n");
		return 2;
	}
	setlocale(LC_NUMERIC, "C");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (ranks_run(&options, &end))
		return 1;
	memcpy(&lost_ns, end.shared + LOST_OFFSET, sizeof(lost_ns));
	printf("all was over %.2f s after the loss\n", (double)(now_ns() - lost_ns) * 1e-9);
	for (int r = 0; r < options.world - 1; r++) {
		bool good = lost_ns != 0 && end.exit_status[r] == ENGINE_EXIT_PEER_LOST;

		printf("%s: rank %d ended by itself, status %d %s\n", argv[1], r,
			end.exit_status[r], good ? "ok" : "FAILED");
		passed += good;
	}
	printf("%d passed, %d failed\n", passed, options.world - 1 - passed);
	return passed < options.world - 1;
}
