/*
 * What overlap buys: two ranks train the same steps with overlap_comm on and off in turn (on, off,
 * off, on, ...), and the time that compute waited for communication is put beside the whole step.
 *
 *   bench_overlap [ROUNDS [STEPS [BUCKET_ELEMS]]]
 *
 * Status 0 when overlap on waited less than off.
 */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/training.h"
#include "tests/unit/engine/ranks.h"

enum { WORLD = 2, ROUNDS_MAX = 256, DROPPED = 2 };

struct work {
	int64_t rounds, steps, bucket;
};

/* Of one round, the slowest rank's means are taken by the caller. */
struct round {
	int overlap;
	int64_t n_buckets;
	double exposed_ms[WORLD], step_ms[WORLD];
};

static void make_config(struct spec_config *c, const struct work *work, bool overlap)
{
	*c = (struct spec_config){
		.model = {.n_layer = 6,
			.n_head = 4,
			.n_embd = 256,
			.vocab_size = 1000,
			.n_positions = 128,
			.tied_head = true},
		.data_kind = SPEC_DATA_SYNTHETIC,
		.data_synthetic_tokens = 65536,
		.seq_len = 64,
		.seed = 1,
		.gpus = WORLD,
		.micro_batch = 2,
		.accumulation = 1,
		.batch = 2 * WORLD,
		.zero_stage = 1,
		.reduce_bucket_elems = work->bucket,
		.allgather_bucket_elems = work->bucket,
		.overlap_comm = overlap,
		.reduce_scatter = true,
		.lr = 1e-4,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.optimizer_steps = work->steps,
	};
}

static int run_round(
	struct warm *w, struct collectives_group *group, const struct work *work, struct round *out)
{
	struct spec_config config;
	struct training t;
	struct dataset data;
	char error[512] = "";
	int rc;

	make_config(&config, work, out->overlap);
	rc = dataset_open(&data, &config, false, error, sizeof(error));
	if (!rc)
		rc = training_init(&t, w, &config, &data, error, sizeof(error));
	if (!rc)
		rc = training_join(&t, group);
	if (rc) {
		fprintf(stderr, "rank %d: %s\n", w->rank, error);
		return rc;
	}
	training_reset(&t);
	out->n_buckets = t.plan.n_reduce;
	for (int64_t i = 0; i < work->steps + DROPPED && !rc; i++) {
		struct step_result r;

		rc = step_run(&t.step, false, &r, error, sizeof(error));
		if (rc || i < DROPPED)
			continue;
		out->exposed_ms[w->rank] +=
			(double)r.measure.exposed_comm_ns / 1e6 / (double)work->steps;
		out->step_ms[w->rank] += (double)r.measure.step_ns / 1e6 / (double)work->steps;
	}
	if (rc)
		fprintf(stderr, "rank %d: %s\n", w->rank, error);
	zero_drain(&w->zero);
	training_finish(&t);
	dataset_close(&data);
	return rc;
}

/* Each rank writes its own figures; what both know they write alike. The area is not aligned. */
static void put(struct ranks_self *self, int64_t i, const struct round *own)
{
	char *at = self->shared + (size_t)i * sizeof(*own);
	size_t r = (size_t)self->rank * sizeof(double);

	memcpy(at, own, offsetof(struct round, exposed_ms));
	memcpy(at + offsetof(struct round, exposed_ms) + r, &own->exposed_ms[self->rank],
		sizeof(double));
	memcpy(at + offsetof(struct round, step_ms) + r, &own->step_ms[self->rank], sizeof(double));
}

static int run_rank(struct ranks_self *self)
{
	const struct work *work = self->arg;
	struct warm w = {
		.rank = self->rank,
		.world = self->world,
		.threads = 1,
		.ctx = self->ctx,
		.compute = self->compute,
		.comm = self->comm,
		.collectives = self->c,
	};
	int rc = warm_init(&w);

	for (int64_t i = 0; i < work->rounds && !rc; i++) {
		struct round round = {.overlap = i % 4 == 0 || i % 4 == 3};

		rc = run_round(&w, self->all, work, &round);
		put(self, i, &round);
	}
	warm_finish(&w);
	return rc ? 1 : 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median over the rounds of one kind of the slowest rank's mean. */
static double median(const struct round *rounds, int64_t n, int overlap, size_t field)
{
	double values[ROUNDS_MAX];
	size_t count = 0;

	for (int64_t i = 0; i < n; i++) {
		const double *ranks =
			(const double *)(const void *)((const char *)&rounds[i] + field);

		if (rounds[i].overlap == overlap)
			values[count++] = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
	}
	qsort(values, count, sizeof(*values), compare);
	return count ? values[count / 2] : 0;
}

static int64_t argument(int argc, char **argv, int i, int64_t otherwise)
{
	return argc > i ? strtoll(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	struct work work = {
		.rounds = argument(argc, argv, 1, 12),
		.steps = argument(argc, argv, 2, 10),
		.bucket = argument(argc, argv, 3, 600000),
	};
	struct ranks_options options = {
		.world = WORLD,
		.timeout_ns = INT64_C(60000000000),
		.limit_ns = INT64_C(600000000000),
		.fn = run_rank,
		.arg = &work,
	};
	struct ranks_end *end = malloc(sizeof(*end));
	struct round *rounds = calloc(ROUNDS_MAX, sizeof(*rounds));
	double on, off;

	setlocale(LC_NUMERIC, "C");
	if (!end || !rounds || work.rounds < 2 || work.rounds > ROUNDS_MAX ||
		ranks_run(&options, end))
		return 1;
	for (int r = 0; r < WORLD; r++)
		if (end->exit_status[r])
			return 1;
	memcpy(rounds, end->shared, (size_t)work.rounds * sizeof(*rounds));
	on = median(rounds, work.rounds, 1, offsetof(struct round, exposed_ms));
	off = median(rounds, work.rounds, 0, offsetof(struct round, exposed_ms));
	printf("2 ranks, %" PRId64 " buckets, %" PRId64 " rounds of %" PRId64 " steps, in turn\n",
		rounds[0].n_buckets, work.rounds, work.steps);
	printf("overlap on:  exposed %.3f ms of %.3f ms per step\n", on,
		median(rounds, work.rounds, 1, offsetof(struct round, step_ms)));
	printf("overlap off: exposed %.3f ms of %.3f ms per step\n", off,
		median(rounds, work.rounds, 0, offsetof(struct round, step_ms)));
	printf("exposed on/off %.3f\n", on / off);
	free(rounds);
	free(end);
	return on < off ? 0 : 1;
}
