/*
 * gpu_ranks_steps: steps of several ranks, one process and GPU each, as captured graphs.
 *
 *   gpu_ranks_steps bits RANKS      eager, captured and cached steps agree to the bit: losses,
 *                                   norms, parameters; per precision, ZeRO stage, bucket size,
 *                                   overlap, reduce_scatter
 *   gpu_ranks_steps many RANKS [N]  N times 500 graph steps of each of four plans in turn, always
 *                                   with the same result
 *   gpu_ranks_steps times RANKS     GPT-2 124M, bf16, micro 2, T 512, 2 micro-batches: an eager
 *                                   step and a graph step, in turn
 *   gpu_ranks_steps long RANKS      the same in fp32 with 120 micro-batches of 8: steps that take
 *                                   longer than the deadline of a collective, here 4 s
 *
 * Linked with the CPU libraries, which have no graphs, it compares steps that send parameters when
 * the next step begins with steps that send them at once. The last line is "N passed, N failed".
 */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stats/stats.h"
#include "tests/gpu/trial.h"
#include "tests/unit/engine/gpt2_shape.h"

enum { BITS_STEPS = 200, MANY_STEPS = 500, MANY_PLANS = 4, TIMES_STEPS = 60, PAIRS = 5 };
enum { LONG_STEPS = 3, LONG_MICROS = 120, LONG_MICRO = 8 };
static const int64_t timeout_ns = INT64_C(20000000000), limit_ns = INT64_C(600000000000);
static const int64_t long_timeout_ns = INT64_C(4000000000);

struct work {
	enum { BITS, MANY, TIMES, LONG } kind;
	int64_t rounds;
};

static struct spec_config make_config(const struct trial *m, enum spec_precision precision)
{
	struct spec_config c = trial_config(precision, m->w.world);

	c.optimizer_steps = BITS_STEPS;
	return c;
}

/* Eager, captured, cached. */
static bool compare(struct trial *m, const char *what, const struct spec_config *c)
{
	static struct trial_outcome o[3];
	bool ran = trial_run(m, c, false, &o[0]) && trial_run(m, c, true, &o[1]) &&
		trial_run(m, c, true, &o[2]);
	int64_t n = c->optimizer_steps;

	trial_check(m, what, "trains", ran && o[0].loss[n - 1] < o[0].loss[0]);
	if (!ran)
		return false;
	trial_check(m, what, "graph: the bits of single launches", trial_same(&o[0], &o[1]));
	trial_check(m, what, "again, the graph kept", trial_same(&o[0], &o[2]));
	trial_check(m, what, "graphs were launched",
		trial_replayed(m, &o[1], n - 1) && trial_replayed(m, &o[2], n));
	return true;
}

static void test_bits(struct trial *m)
{
	static const struct {
		int64_t stage, bucket;
		bool overlap, reduce_scatter;
	} plans[] = {{0, 1 << 24, true, true}, {0, 50000, true, true}, {1, 1 << 24, true, true},
		{1, 50000, true, true}, {1, 50000, false, true}, {1, 50000, true, false}};
	static const struct {
		const char *name;
		enum spec_precision precision;
	} types[] = {{"fp32", SPEC_FP32}, {"bf16", SPEC_BF16}};

	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < sizeof(plans) / sizeof(plans[0]); k++) {
			struct spec_config c = make_config(m, types[i].precision);
			char what[96];

			if (!m->graphs && types[i].precision != SPEC_FP32)
				continue;
			c.zero_stage = plans[k].stage;
			c.reduce_bucket_elems = plans[k].bucket;
			c.allgather_bucket_elems = 2 * plans[k].bucket;
			c.overlap_comm = plans[k].overlap;
			c.reduce_scatter = plans[k].reduce_scatter;
			if (!m->graphs)
				c.optimizer_steps = 12;
			snprintf(what, sizeof(what), "%s ZeRO %d bucket %" PRId64 "%s%s",
				types[i].name, (int)c.zero_stage, c.reduce_bucket_elems,
				c.overlap_comm ? "" : " no overlap",
				c.reduce_scatter ? "" : " all-reduce");
			if (!compare(m, what, &c))
				return;
		}
}

static void test_many(struct trial *m, int64_t rounds)
{
	struct spec_config c = make_config(m, m->graphs ? SPEC_BF16 : SPEC_FP32);
	static struct trial_outcome first[MANY_PLANS], o;
	bool good = true, replayed = true;

	c.optimizer_steps = m->graphs ? MANY_STEPS : 8;
	for (int64_t i = 0; i < rounds * MANY_PLANS && good; i++) {
		int plan = (int)(i % MANY_PLANS);
		bool kept = i >= MANY_PLANS;

		c.reduce_bucket_elems = c.allgather_bucket_elems = plan == 0 ? 1 << 24 : 50000;
		c.zero_stage = plan != 2;
		c.reduce_scatter = plan != 3;
		good = trial_run(m, &c, true, kept ? &o : &first[plan]) &&
			(!kept || trial_same(&first[plan], &o));
		/* the first plan that needs more memory invalidates earlier plans' graphs */
		if (i >= 2 * MANY_PLANS)
			replayed = replayed && trial_replayed(m, &o, c.optimizer_steps);
		if (m->w.rank == 0)
			printf("%" PRId64 " steps\n", (i + 1) * c.optimizer_steps), fflush(stdout);
	}
	trial_check(m, "many", "the same every time", good);
	trial_check(m, "many", "all as graphs", replayed);
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct spec_config gpt2(const struct trial *m)
{
	struct spec_config c = make_config(m, SPEC_BF16);

	c.model = gpt2_shape();
	c.data_synthetic_tokens = 1 << 20;
	c.seq_len = 512;
	c.reduce_bucket_elems = c.allgather_bucket_elems = 32 << 20;
	c.lr = 1e-4;
	c.optimizer_steps = TIMES_STEPS;
	return c;
}

static void test_times(struct trial *m)
{
	struct spec_config c = m->graphs ? gpt2(m) : make_config(m, SPEC_FP32);
	static struct trial_outcome o[2];
	double ratio[PAIRS];
	bool good = true;

	c.optimizer_steps = m->graphs ? TIMES_STEPS : 8;
	/* the first of each fills the caches */
	good = trial_run(m, &c, false, &o[0]) && trial_run(m, &c, true, &o[1]);
	trial_check(
		m, "times", "graph: the bits of single launches", good && trial_same(&o[0], &o[1]));
	if (m->w.rank == 0)
		printf("capture: %.1f ms\n", (double)o[1].capture_ns / 1e6);
	for (int i = 0; i < PAIRS && good; i++) {
		for (int k = 0; k < 2 && good; k++) {
			int graph = (i + k) % 2;

			good = trial_run(m, &c, graph, &o[graph]);
		}
		ratio[i] = (double)o[0].median_ns / (double)o[1].median_ns;
		if (m->w.rank == 0)
			printf("single %.3f ms (exposed %.3f), graph %.3f ms (exposed %.3f)\n",
				(double)o[0].median_ns / 1e6, (double)o[0].exposed_ns / 1e6,
				(double)o[1].median_ns / 1e6, (double)o[1].exposed_ns / 1e6);
	}
	trial_check(m, "times", "all pairs ran", good);
	if (!good || m->w.rank)
		return;
	qsort(ratio, PAIRS, sizeof(ratio[0]), compare_double);
	printf("graph over single: %.3f (%.3f to %.3f), %d pairs\n", ratio[PAIRS / 2], ratio[0],
		ratio[PAIRS - 1], PAIRS);
}

static void test_long(struct trial *m)
{
	struct spec_config c = m->graphs ? gpt2(m) : make_config(m, SPEC_FP32);
	static struct trial_outcome o;
	bool good;

	c.optimizer_steps = LONG_STEPS;
	if (m->graphs) {
		c.precision = SPEC_FP32;
		c.micro_batch = LONG_MICRO;
		c.accumulation = LONG_MICROS;
		c.batch = LONG_MICRO * LONG_MICROS * m->w.world;
		c.data_synthetic_tokens = 1 << 24;
	}
	good = trial_run(m, &c, true, &o);
	trial_check(m, "long steps", "have an end", good);
	if (!good || !m->graphs)
		return;
	if (m->w.rank == 0)
		printf("a step: %.2f s\n", (double)o.median_ns / 1e9);
	trial_check(m, "long steps", "are longer than the deadline", o.median_ns > long_timeout_ns);
	trial_check(m, "long steps", "were graphs", trial_replayed(m, &o, LONG_STEPS - 1));
}

static int run_rank(struct ranks_self *self)
{
	const struct work *work = self->arg;
	struct trial m;

	if (trial_init(&m, self)) {
		printf("rank %d: no events\n", self->rank);
		return 1;
	}
	if (work->kind == BITS)
		test_bits(&m);
	else if (work->kind == MANY)
		test_many(&m, work->rounds);
	else if (work->kind == TIMES)
		test_times(&m);
	else
		test_long(&m);
	trial_finish(&m, self);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = {"bits", "many", "times", "long"};
	static struct ranks_end end;
	struct work work = {.rounds = argc > 3 ? atoll(argv[3]) : 2};
	struct ranks_options options = {.world = argc > 2 ? atoi(argv[2]) : 0,
		.timeout_ns = timeout_ns,
		.limit_ns = limit_ns,
		.fn = run_rank,
		.arg = &work};
	int passed = 0, failed = 0, kind = 0;

	while (kind < 4 && (argc < 2 || strcmp(argv[1], kinds[kind]) != 0))
		kind++;
	if (kind == 4 || options.world < 1 || options.world > RANKS_MAX) {
		fprintf(stderr, "usage: gpu_ranks_steps bits|many|times|long RANKS [ROUNDS]\n");
		return 2;
	}
	work.kind = kind;
	if (kind == LONG)
		options.timeout_ns = long_timeout_ns;
	setlocale(LC_NUMERIC, "C");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (ranks_run(&options, &end))
		return 1;
	trial_count(&end, options.world, &passed, &failed);
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
