/*
 * Time of the collectives over UCX between processes of one machine, alone and as a training step
 * has them: reduce_scatter, then all_gather. Rates are of the bytes a rank sends, (W-1)/W n
 * elements in each of the two.
 *
 *   bench_collectives [ranks [elements]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/engine/ranks.h"

struct work {
	int64_t n; /* elements; 0: the usual sizes */
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t resident_kib(const char *key)
{
	char line[128];
	int64_t kib = -1;
	FILE *f = fopen("/proc/self/status", "r");

	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtoll(line + strlen(key), NULL, 10);
	if (f != NULL)
		fclose(f);
	return kib;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Median and slowest of several rounds of fn. */
static void measure(struct ranks_self *self, const char *what, int64_t n, float *buf, int rounds,
	void (*fn)(struct ranks_self *, float *, int64_t))
{
	int64_t *t = calloc((size_t)rounds, sizeof *t);
	double sent;
	struct collectives_bytes before, after;

	collectives_count(self->all, &before);
	for (int i = -2; i < rounds; i++) {
		int64_t from;

		collectives_barrier(self->all, self->compute);
		from = now_ns();
		fn(self, buf, n);
		k_stream_sync(self->comm, INT64_C(60000000000));
		if (i >= 0)
			t[i] = now_ns() - from;
	}
	collectives_count(self->all, &after);
	sent = (double)(after.reduce_scatter - before.reduce_scatter + after.all_gather -
			before.all_gather) /
		(rounds + 2);
	qsort(t, (size_t)rounds, sizeof *t, compare);
	if (self->rank == 0)
		printf("%d ranks  %-26s %10" PRId64
			" bytes  median %9.1f us  p95 %9.1f us  %6.2f GB/s\n",
			self->world, what, n * (int64_t)sizeof *buf, (double)t[rounds / 2] * 1e-3,
			(double)t[rounds * 95 / 100] * 1e-3, sent / (double)t[rounds / 2]);
	free(t);
}

static void scatter_gather(struct ranks_self *self, float *buf, int64_t n)
{
	collectives_reduce_scatter(self->all, buf, n, self->comm);
	collectives_all_gather(self->all, buf, n, self->comm);
}

static void scatter(struct ranks_self *self, float *buf, int64_t n)
{
	collectives_reduce_scatter(self->all, buf, n, self->comm);
}

static void gather(struct ranks_self *self, float *buf, int64_t n)
{
	collectives_all_gather(self->all, buf, n, self->comm);
}

static void reduce_sum(struct ranks_self *self, float *buf, int64_t n)
{
	collectives_all_reduce(self->all, buf, K_EXACT_LIMBS + 1, COLLECTIVES_INT64,
		COLLECTIVES_SUM, self->compute);
}

static void barrier(struct ranks_self *self, float *buf, int64_t n)
{
	collectives_barrier(self->all, self->compute);
}

static int bench(struct ranks_self *self)
{
	static const int64_t sizes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
	const struct work *work = self->arg;
	int64_t most = work->n > 0 ? work->n : sizes[5];
	int64_t before = resident_kib("VmRSS:");
	float *buf = calloc((size_t)most, sizeof *buf);

	if (buf == NULL)
		return 1;
	if (self->rank == 0)
		printf("%s, rank 0 resident before %" PRId64 " KiB\n", collectives_library(self->c),
			before);
	measure(self, "barrier (caller)", 0, buf, 1000, barrier);
	measure(self, "exact sum (caller)", 0, buf, 1000, reduce_sum);
	for (int i = 0; i < 6 && work->n == 0; i++) {
		measure(self, "reduce_scatter", sizes[i], buf, i < 3 ? 300 : 30, scatter);
		measure(self, "all_gather", sizes[i], buf, i < 3 ? 300 : 30, gather);
		measure(self, "reduce_scatter+all_gather", sizes[i], buf, i < 3 ? 300 : 30,
			scatter_gather);
	}
	if (work->n > 0)
		measure(self, "reduce_scatter+all_gather", work->n, buf, 30, scatter_gather);
	if (self->rank == 0)
		printf("rank 0 resident after %" PRId64 " KiB, of it shared %" PRId64
			" KiB, buffer %" PRId64 " KiB\n",
			resident_kib("VmRSS:"), resident_kib("RssShmem:"), most * 4 / 1024);
	free(buf);
	if (collectives_error(self->c) != NULL)
		fprintf(stderr, "%s\n", collectives_error(self->c));
	return collectives_error(self->c) != NULL;
}

int main(int argc, char **argv)
{
	struct work work = {.n = argc > 2 ? strtoll(argv[2], NULL, 10) : 0};
	struct ranks_options options = {.world = argc > 1 ? atoi(argv[1]) : 2,
		.timeout_ns = INT64_C(10000000000),
		.limit_ns = INT64_C(300000000000),
		.fn = bench,
		.arg = &work};
	static struct ranks_end end;
	int failed = 0;

	if (options.world < 1 || options.world > RANKS_MAX || ranks_run(&options, &end) != 0)
		return 2;
	for (int r = 0; r < options.world; r++)
		failed |= end.exit_status[r] != 0;
	return failed;
}
