/*
 * gpu_ranks_steps: steps of two ranks, each a process with its GPU, as captured graphs.
 *
 *   gpu_ranks_steps bits      launched singly, captured and kept agree to the bit: losses, norms,
 *                             parameters; per precision, ZeRO stage, bucket size, overlap,
 *                             reduce_scatter
 *   gpu_ranks_steps many [N]  N times 500 graph steps of two bucket plans in turn, always with the
 *                             same result
 *   gpu_ranks_steps times     GPT-2 124M, bf16, micro 2, T 512, 2 micro-batches: a step launched
 *                             singly and as a graph, in turn
 *
 * Linked with the CPU libraries, which have no graphs, steps whose parameters travel when the next
 * one begins are compared with steps that send them at once. The last line is "N passed, N failed".
 */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stats.h"
#include "tests/gpu/small_training.h"
#include "tests/unit/ranks.h"

enum {
	WORLD = 2,
	BITS_STEPS = 200,
	MANY_STEPS = 500,
	TIMES_STEPS = 60,
	STEPS_MAX = 512,
	PAIRS = 5
};
static const int64_t timeout_ns = INT64_C(20000000000), limit_ns = INT64_C(600000000000);

struct work {
	enum { BITS, MANY, TIMES } kind;
	int64_t rounds;
};

struct machine {
	struct warm w;
	struct collectives_group *group;
	bool graphs;
	int passed, failed;
};

struct outcome {
	double loss[STEPS_MAX], norm[STEPS_MAX], val_loss;
	int64_t replayed, median_ns, capture_ns, exposed_ns;
	uint64_t params;
	struct collectives_bytes sent;
	char no_graph[256];
};

static void check(struct machine *m, const char *what, const char *part, bool good)
{
	if (m->w.rank == 0 || !good)
		printf("rank %d %-44s %-34s %s\n", m->w.rank, what, part, good ? "ok" : "FAILED");
	fflush(stdout);
	if (good)
		m->passed++;
	else
		m->failed++;
}

static struct spec_config make_config(enum spec_precision precision)
{
	struct spec_config c = small_training_config(precision);

	c.gpus = WORLD;
	c.accumulation = 2;
	c.batch = 2 * 2 * WORLD;
	c.zero_stage = 1;
	c.overlap_comm = true;
	c.reduce_scatter = true;
	c.optimizer_steps = BITS_STEPS;
	return c;
}

static int run_steps(struct machine *m, struct training *t, const struct dataset *data,
	struct outcome *out, char *error, size_t error_bytes)
{
	const struct step_asked asked = {.stop = small_training_never};
	struct collectives_bytes before;
	int64_t n = t->config->optimizer_steps, ns[STEPS_MAX];
	int rc;

	training_reset(t);
	collectives_count(m->group, &before);
	for (int64_t i = 0; i < n; i++) {
		struct step_result r;

		/* validation finds the parameters that the last update made, in the middle too */
		if (i == n / 2) {
			rc = step_validate(
				&t->step, data, 2, &asked, &out->val_loss, error, error_bytes);
			if (rc)
				return rc;
		}
		rc = step_run(&t->step, false, &r, error, error_bytes);
		if (rc)
			return rc;
		out->loss[i] = r.measure.loss;
		out->norm[i] = r.measure.grad_norm;
		out->exposed_ns = r.measure.exposed_comm_ns;
		ns[i] = r.measure.step_ns;
	}
	zero_drain(&m->w.zero);
	collectives_count(m->group, &out->sent);
	out->sent.reduce_scatter -= before.reduce_scatter;
	out->sent.all_reduce -= before.all_reduce;
	out->replayed = t->step.replayed;
	out->capture_ns = t->step.capture_ns;
	out->params = small_training_hash(&m->w, t);
	stats_percentile(ns + n / 4, (size_t)(n - n / 4), 50, &out->median_ns);
	snprintf(out->no_graph, sizeof(out->no_graph), "%s", t->step.no_graph);
	return 0;
}

static bool train(struct machine *m, const struct spec_config *c, bool graphs, struct outcome *out)
{
	struct dataset data;
	struct training t;
	char error[512] = "";
	int rc;

	memset(out, 0, sizeof(*out));
	m->w.ranks_graphs = graphs;
	rc = dataset_open(&data, c, false, error, sizeof(error));
	if (rc)
		goto out;
	rc = training_init(&t, &m->w, c, &data, error, sizeof(error));
	if (rc)
		goto out_data;
	rc = training_join(&t, m->group);
	if (!rc)
		rc = run_steps(m, &t, &data, out, error, sizeof(error));
	training_finish(&t);
out_data:
	dataset_close(&data);
out:
	if (rc)
		printf("rank %d: %s\n", m->w.rank, error);
	return rc == 0;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
	if (memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
		memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 && a->params == b->params &&
		a->val_loss == b->val_loss && a->sent.reduce_scatter == b->sent.reduce_scatter &&
		a->sent.all_reduce == b->sent.all_reduce)
		return true;
	for (int i = 0; i < STEPS_MAX; i++)
		if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i]) {
			printf("step %d: loss %.9g %.9g norm %.9g %.9g\n", i + 1, a->loss[i],
				b->loss[i], a->norm[i], b->norm[i]);
			break;
		}
	printf("validation %.9g %.9g, parameters %" PRIx64 " %" PRIx64 ", sent %" PRId64 "+%" PRId64
	       " %" PRId64 "+%" PRId64 "\n",
		a->val_loss, b->val_loss, a->params, b->params, a->sent.reduce_scatter,
		a->sent.all_reduce, b->sent.reduce_scatter, b->sent.all_reduce);
	return false;
}

static bool was_replayed(const struct machine *m, const struct outcome *o, int64_t steps)
{
	if (o->replayed == (m->graphs ? steps : 0) && !o->no_graph[0])
		return true;
	printf("rank %d: %" PRId64 " steps as a graph, %" PRId64 " expected; %s\n", m->w.rank,
		o->replayed, steps, o->no_graph);
	return false;
}

/* Launched singly, captured, from the cache. */
static bool compare(struct machine *m, const char *what, const struct spec_config *c)
{
	static struct outcome o[3];
	bool ran =
		train(m, c, false, &o[0]) && train(m, c, true, &o[1]) && train(m, c, true, &o[2]);
	int64_t n = c->optimizer_steps;

	check(m, what, "trains", ran && o[0].loss[n - 1] < o[0].loss[0]);
	if (!ran)
		return false;
	check(m, what, "graph: the bits of single launches", same(&o[0], &o[1]));
	check(m, what, "again, the graph kept", same(&o[0], &o[2]));
	check(m, what, "graphs were launched",
		was_replayed(m, &o[1], n - 1) && was_replayed(m, &o[2], n));
	return true;
}

static void test_bits(struct machine *m)
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
			struct spec_config c = make_config(types[i].precision);
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

static void test_many(struct machine *m, int64_t rounds)
{
	struct spec_config c = make_config(m->graphs ? SPEC_BF16 : SPEC_FP32);
	static struct outcome first[2], o;
	bool good = true, replayed = true;

	c.optimizer_steps = m->graphs ? MANY_STEPS : 8;
	for (int64_t i = 0; i < rounds && good; i++) {
		c.reduce_bucket_elems = c.allgather_bucket_elems = i % 2 ? 50000 : 1 << 24;
		good = train(m, &c, true, i < 2 ? &first[i] : &o) &&
			(i < 2 || same(&first[i % 2], &o));
		if (i >= 2)
			replayed = replayed && was_replayed(m, &o, c.optimizer_steps);
		if (m->w.rank == 0)
			printf("%" PRId64 " steps\n", (i + 1) * c.optimizer_steps), fflush(stdout);
	}
	check(m, "many", "the same every time", good);
	check(m, "many", "all as graphs", replayed);
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct spec_config gpt2(void)
{
	struct spec_config c = make_config(SPEC_BF16);

	c.model = (struct spec_model){.n_layer = 12,
		.n_head = 12,
		.n_embd = 768,
		.vocab_size = 50257,
		.n_positions = 1024,
		.tied_head = true};
	c.data_synthetic_tokens = 1 << 20;
	c.seq_len = 512;
	c.reduce_bucket_elems = c.allgather_bucket_elems = 32 << 20;
	c.lr = 1e-4;
	c.optimizer_steps = TIMES_STEPS;
	return c;
}

static void test_times(struct machine *m)
{
	struct spec_config c = m->graphs ? gpt2() : make_config(SPEC_FP32);
	static struct outcome o[2];
	double ratio[PAIRS];
	bool good = true;

	c.optimizer_steps = m->graphs ? TIMES_STEPS : 8;
	/* the first of each makes what is kept */
	good = train(m, &c, false, &o[0]) && train(m, &c, true, &o[1]);
	check(m, "times", "graph: the bits of single launches", good && same(&o[0], &o[1]));
	if (m->w.rank == 0)
		printf("capture: %.1f ms\n", (double)o[1].capture_ns / 1e6);
	for (int i = 0; i < PAIRS && good; i++) {
		for (int k = 0; k < 2 && good; k++) {
			int graph = (i + k) % 2;

			good = train(m, &c, graph, &o[graph]);
		}
		ratio[i] = (double)o[0].median_ns / (double)o[1].median_ns;
		if (m->w.rank == 0)
			printf("single %.3f ms (exposed %.3f), graph %.3f ms (exposed %.3f)\n",
				(double)o[0].median_ns / 1e6, (double)o[0].exposed_ns / 1e6,
				(double)o[1].median_ns / 1e6, (double)o[1].exposed_ns / 1e6);
	}
	check(m, "times", "all pairs ran", good);
	if (!good || m->w.rank)
		return;
	qsort(ratio, PAIRS, sizeof(ratio[0]), compare_double);
	printf("graph over single: %.3f (%.3f to %.3f), %d pairs\n", ratio[PAIRS / 2], ratio[0],
		ratio[PAIRS - 1], PAIRS);
}

static int run_rank(struct ranks_self *self)
{
	const struct work *work = self->arg;
	struct machine m = {.group = self->all,
		.w = {.rank = self->rank,
			.world = self->world,
			.threads = 1,
			.ctx = self->ctx,
			.compute = self->compute,
			.comm = self->comm,
			.collectives = self->c}};
	struct k_device_info info;

	if (warm_init(&m.w)) {
		printf("rank %d: no events\n", self->rank);
		return 1;
	}
	k_context_info(self->ctx, &info);
	m.graphs = info.graphs;
	if (self->rank == 0)
		printf("%s, %s, %s\n", info.name, info.library, collectives_library(self->c));
	if (work->kind == BITS)
		test_bits(&m);
	else if (work->kind == MANY)
		test_many(&m, work->rounds);
	else
		test_times(&m);
	check(&m, "device and collectives", "have not failed",
		!k_context_error(self->ctx) && !collectives_error(self->c));
	memcpy(self->shared + (size_t)self->rank * 2 * sizeof(int), &m.passed, sizeof(int));
	memcpy(self->shared + ((size_t)self->rank * 2 + 1) * sizeof(int), &m.failed, sizeof(int));
	if (m.failed)
		_Exit(1); /* a peer may be gone, and nothing is to wait for it */
	warm_finish(&m.w);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = {"bits", "many", "times"};
	static struct ranks_end end;
	struct work work = {.rounds = argc > 2 ? atoll(argv[2]) : 8};
	const struct ranks_options options = {.world = WORLD,
		.timeout_ns = timeout_ns,
		.limit_ns = limit_ns,
		.fn = run_rank,
		.arg = &work};
	int counts[WORLD][2], passed = 0, failed = 0, kind = 0;

	while (kind < 3 && (argc < 2 || strcmp(argv[1], kinds[kind]) != 0))
		kind++;
	if (kind == 3) {
		fprintf(stderr, "usage: gpu_ranks_steps bits | many [ROUNDS] | times\n");
		return 2;
	}
	work.kind = kind;
	setlocale(LC_NUMERIC, "C");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (ranks_run(&options, &end))
		return 1;
	memcpy(counts, end.shared, sizeof(counts));
	for (int r = 0; r < WORLD; r++) {
		passed += counts[r][0];
		failed += counts[r][1];
		if (end.exit_status[r]) {
			printf("rank %d ended with %d FAILED\n", r, end.exit_status[r]);
			failed += counts[r][1] == 0;
		}
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
