/*
 * gpu_ranks_matrix: settings that must not change a training do not.
 *
 *   gpu_ranks_matrix RANKS
 *
 * In worlds of 1, 2, 4 ... up to RANKS processes with a GPU each: 200 steps (3 on the CPU) of the
 * same global batch as graphs, with ZeRO 0 and 1, reduce buckets of 1e6 and 2e6 elements and a
 * single one, overlap on and off, reduce_scatter on and off. All loss traces, within a world and
 * between worlds, agree with the first one to the tolerance below. Each plan, trained again after
 * all the others, gives the same bits, and so do the other settings of activation_checkpointing
 * with overlapped buckets. In fp32 and bf16.
 *
 * Tolerance: |loss - loss of the first plan| / loss at each step. Ranks change the order of the
 * gradients' sums, so the first steps differ only by rounding; 200 steps of a model that learns
 * fast amplify that. Linked with the CPU libraries, whose sums are in rank order, the traces of one
 * world are equal to the bit. The last line is "N passed, N failed".
 */
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/trial.h"

enum { STEPS = 200, STEPS_CPU = 3, ROWS = 16, ROWS_CPU = 8 };
enum { TYPES = 2, PLANS = 18, TRACE_OFFSET = 1024 };
static const int64_t timeout_ns = INT64_C(20000000000), limit_ns = INT64_C(600000000000);

static const struct {
	const char *name;
	enum spec_precision precision;
	double tolerance;
} types[TYPES] = {{"fp32", SPEC_FP32, 1e-3}, {"bf16", SPEC_BF16, 1e-2}};

/* The first trace of each type, for the other worlds. */
struct traces {
	double loss[TYPES][STEPS];
};

struct plan_of {
	int64_t stage, bucket;
	bool overlap, reduce_scatter;
};

/* Returns their number; ZeRO-0 has no reduce_scatter. */
static int list_plans(bool graphs, struct plan_of out[PLANS])
{
	const int64_t buckets[] = {1 << 30, graphs ? 1000000 : 50000, 2000000};
	int n = 0;

	for (int kind = 0; kind < 3; kind++)
		for (int b = 0; b < (graphs ? 3 : 2); b++)
			for (int overlap = 1; overlap >= 0; overlap--)
				out[n++] = (struct plan_of){.stage = kind > 0,
					.bucket = buckets[b],
					.overlap = overlap,
					.reduce_scatter = kind == 1};
	return n;
}

static struct spec_config make_config(const struct trial *m, int type, const struct plan_of *plan)
{
	struct spec_config c = trial_config(types[type].precision, m->w.world);

	if (m->graphs) {
		/* 3.4 million parameters: a million are a part of them */
		c.model.n_layer = 4;
		c.model.n_head = 4;
		c.model.n_embd = 256;
	}
	c.optimizer_steps = m->graphs ? STEPS : STEPS_CPU;
	c.batch = m->graphs ? ROWS : ROWS_CPU;
	c.accumulation = c.batch / (c.micro_batch * m->w.world);
	c.zero_stage = plan->stage;
	c.reduce_bucket_elems = c.allgather_bucket_elems = plan->bucket;
	c.overlap_comm = plan->overlap;
	c.reduce_scatter = plan->reduce_scatter;
	return c;
}

static double largest_difference(const double *a, const double *b, int64_t n)
{
	double largest = 0;

	for (int64_t i = 0; i < n; i++) {
		double d = fabs(a[i] - b[i]) / fabs(b[i]);

		largest = d > largest || isnan(d) ? d : largest;
	}
	return largest;
}

static void describe(int type, const struct trial *m, const struct plan_of *p, char out[96])
{
	snprintf(out, 96, "%s world %d ZeRO %d bucket %" PRId64 "%s%s", types[type].name,
		m->w.world, (int)p->stage, p->bucket, p->overlap ? "" : " no overlap",
		p->stage && !p->reduce_scatter ? " all-reduce" : "");
}

/* Recomputation in backward does not change the result, even with overlapped buckets. */
static void test_recompute(
	struct trial *m, int type, const struct plan_of *plan, const struct trial_outcome *first)
{
	static struct trial_outcome o;
	char what[96], part[64];

	describe(type, m, plan, what);
	for (int r = SPEC_RECOMPUTE_SELECTIVE; r <= SPEC_RECOMPUTE_FULL; r++) {
		struct spec_config c = make_config(m, type, plan);

		c.recompute = (enum spec_recompute)r;
		snprintf(part, sizeof(part), "activation_checkpointing %s: same bits",
			spec_recompute_name(c.recompute));
		trial_check(m, what, part, trial_run(m, &c, true, &o) && trial_same(first, &o));
	}
}

static bool test_type(struct trial *m, int type, double *trace)
{
	static struct trial_outcome first[PLANS], again;
	struct plan_of plans[PLANS];
	int n = list_plans(m->graphs, plans);
	char what[96], part[64];

	if (m->w.world == 1)
		n = 2; /* one rank has nothing to reduce */
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < n; i++) {
			struct spec_config c = make_config(m, type, &plans[i]);
			struct trial_outcome *o = round ? &again : &first[i];
			double off;

			describe(type, m, &plans[i], what);
			if (!trial_run(m, &c, true, o)) {
				trial_check(m, what, "trains", false);
				return false;
			}
			if (round) {
				trial_check(m, what, "again, after the others: same bits",
					trial_same(&first[i], o));
				continue;
			}
			off = largest_difference(o->loss, first[0].loss, c.optimizer_steps);
			snprintf(part, sizeof(part), "off the first plan by %.1e", off);
			trial_check(m, what, part,
				off <= (m->graphs ? types[type].tolerance : 0) &&
					o->loss[c.optimizer_steps - 1] < o->loss[0]);
		}
	for (int i = 0; i < n; i++)
		if (m->w.world == 1 ? i == 0 : plans[i].bucket < 2000000 && plans[i].overlap)
			test_recompute(m, type, &plans[i], &first[i]);
	memcpy(trace, first[0].loss, STEPS * sizeof(*trace));
	return true;
}

static int run_rank(struct ranks_self *self)
{
	struct traces *traces = (struct traces *)(void *)(self->shared + TRACE_OFFSET), unused;
	struct trial m;
	bool good = true;

	if (trial_init(&m, self)) {
		printf("rank %d: no events\n", self->rank);
		return 1;
	}
	for (int type = 0; type < TYPES && good; type++)
		if (m.graphs || types[type].precision == SPEC_FP32)
			good = test_type(
				&m, type, (self->rank == 0 ? traces : &unused)->loss[type]);
	trial_finish(&m, self);
	return 0;
}

/* Worlds of more than one rank. */
static void compare_worlds(
	const struct traces *one, const struct traces *many, int world, int *passed, int *failed)
{
	for (int type = 0; type < TYPES; type++) {
		int64_t n = 0;
		double off;

		while (n < STEPS && one->loss[type][n] != 0)
			n++;
		if (n == 0)
			continue; /* unsupported here */
		off = largest_difference(many->loss[type], one->loss[type], n);
		printf("%s world %d off world 1 by %.1e in %" PRId64 " steps %s\n",
			types[type].name, world, off, n,
			off <= types[type].tolerance ? "ok" : "FAILED");
		if (off <= types[type].tolerance)
			++*passed;
		else
			++*failed;
	}
}

int main(int argc, char **argv)
{
	struct ranks_options options = {
		.timeout_ns = timeout_ns, .limit_ns = limit_ns, .fn = run_rank};
	int most = argc == 2 ? atoi(argv[1]) : 0, passed = 0, failed = 0;
	static struct ranks_end end;
	struct traces one, now;

	if (most < 1 || most > ROWS_CPU / 2) {
		fprintf(stderr, "usage: gpu_ranks_matrix RANKS\n");
		return 2;
	}
	setlocale(LC_NUMERIC, "C");
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (options.world = 1; options.world <= most && failed == 0; options.world *= 2) {
		if (ranks_run(&options, &end))
			return 1;
		trial_count(&end, options.world, &passed, &failed);
		memcpy(&now, end.shared + TRACE_OFFSET, sizeof(now));
		if (options.world == 1)
			one = now;
		else if (failed == 0)
			compare_worlds(&one, &now, options.world, &passed, &failed);
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
