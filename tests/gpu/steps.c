/*
 * gpu_steps: a training of some steps, launched operation by operation and as a captured graph,
 * must agree to the bit: losses, norms, parameters. Per precision, with and without dropout, with
 * accumulation, with skipped steps, and when several trainings use their graphs in turn. So must
 * trainings that keep all activations and those that recompute some. Linked with the CPU library,
 * which has no graphs, it compares trainings with themselves. The last line is "N passed, N
 * failed".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/small_training.h"
#include "tests/unit/engine/tiny.h"

enum { STEPS = 12, OUTCOMES = 4 };

struct machine {
	struct warm w;
	bool graphs;
	int passed, failed;
};

struct outcome {
	double loss[STEPS], norm[STEPS], val_loss;
	int64_t skipped, replayed;
	uint64_t params;
	char no_graph[256];
};

static void check(struct machine *m, const char *what, const char *part, bool good)
{
	printf("%-36s %-34s %s\n", what, part, good ? "ok" : "FAILED");
	fflush(stdout);
	if (good)
		m->passed++;
	else
		m->failed++;
}

static struct spec_config make_config(enum spec_precision precision)
{
	struct spec_config c = small_training_config(precision);

	/* so that parameter gradients run beside backward, and wait for each other */
	c.model.n_layer = 4;
	c.model.vocab_size = 2400;
	c.optimizer_steps = STEPS;
	return c;
}

static int run_steps(struct machine *m, struct training *t, const struct dataset *data,
	struct outcome *out, char *error, size_t error_bytes)
{
	const struct step_asked asked = {.stop = small_training_never};

	training_reset(t);
	for (int i = 0; i < STEPS; i++) {
		struct step_result r;
		int rc = step_run(&t->step, false, &r, error, error_bytes);

		if (rc)
			return rc;
		out->loss[i] = r.measure.loss;
		out->norm[i] = r.measure.skipped ? 0 : r.measure.grad_norm;
		out->skipped += r.measure.skipped;
	}
	out->replayed = t->step.replayed;
	out->params = small_training_hash(&m->w, t);
	snprintf(out->no_graph, sizeof(out->no_graph), "%s", t->step.no_graph);
	return step_validate(&t->step, data, 8, &asked, &out->val_loss, error, error_bytes);
}

static bool train(struct machine *m, const struct spec_config *c, bool graphs, struct outcome *out)
{
	struct dataset data;
	struct training t;
	char error[512] = "";
	int rc;

	memset(out, 0, sizeof(*out));
	m->w.no_graphs = !graphs;
	if (tiny_open(&t, &data, &m->w, NULL, c))
		return false;
	rc = run_steps(m, &t, &data, out, error, sizeof(error));
	if (rc)
		printf("%s\n", error);
	tiny_close(&t, &data);
	return rc == 0;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
	bool good = memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
		memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 && a->params == b->params &&
		a->val_loss == b->val_loss && a->skipped == b->skipped;

	for (int i = 0; i < STEPS && !good; i++)
		printf("step %d: loss %.9g %.9g norm %.9g %.9g\n", i + 1, a->loss[i], b->loss[i],
			a->norm[i], b->norm[i]);
	return good;
}

static bool was_replayed(const struct machine *m, const struct outcome *o, int64_t steps)
{
	if (o->replayed == (m->graphs ? steps : 0) && !o->no_graph[0])
		return true;
	printf("%" PRId64 " steps as a graph, %" PRId64 " expected; %s\n", o->replayed, steps,
		o->no_graph);
	return false;
}

/* Eager, captured, from the cache. */
static void compare(struct machine *m, const char *what, const struct spec_config *c, bool skips)
{
	struct outcome o[3];
	bool ran =
		train(m, c, false, &o[0]) && train(m, c, true, &o[1]) && train(m, c, true, &o[2]);

	check(m, what, "trains", ran && o[0].loss[STEPS - 1] < o[0].loss[0] + 1);
	if (!ran)
		return;
	check(m, what, "graph: the bits of single launches", same(&o[0], &o[1]));
	check(m, what, "again, the graph kept", same(&o[0], &o[2]));
	check(m, what, "a graph was launched",
		/* a graph holds no loss scale: the earlier training's graph is found */
		was_replayed(m, &o[1], skips ? STEPS : STEPS - 1) && was_replayed(m, &o[2], STEPS));
	if (skips)
		check(m, what, "some steps were skipped, some not",
			o[0].skipped > 0 && o[0].skipped < STEPS);
}

static void test_precisions(struct machine *m)
{
	static const struct {
		const char *name;
		enum spec_precision precision;
		enum k_dtype dtype;
	} types[] = {{"fp32", SPEC_FP32, K_FP32}, {"tf32", SPEC_TF32, K_TF32},
		{"bf16", SPEC_BF16, K_BF16}, {"fp16", SPEC_FP16, K_FP16}};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct spec_config c = make_config(types[i].precision);
		char what[64];

		if (!m->graphs && types[i].precision != SPEC_FP32)
			continue;
		compare(m, types[i].name, &c, false);
		c.accumulation = 3;
		c.batch = c.accumulation * c.micro_batch;
		c.model.dropout = 0.1;
		snprintf(what, sizeof(what), "%s, dropout, accumulation 3", types[i].name);
		compare(m, what, &c, false);
		if (types[i].precision != SPEC_FP16)
			continue;
		c.fp16_initial_scale_power = 26;
		compare(m, "fp16, scale too large at first", &c, true);
	}
}

/* Trainings that share memory but no graphs, in turn. */
static void test_in_turn(struct machine *m)
{
	struct spec_config a = make_config(SPEC_FP32), b = a;
	struct outcome o[OUTCOMES];
	bool ran;

	a.seed = 9;
	b.lr = 3e-3; /* not part of the graph */
	b.seed = 9;
	b.weight_decay = 0;
	ran = train(m, &b, false, &o[0]) && train(m, &a, true, &o[1]) &&
		train(m, &b, true, &o[2]) && train(m, &a, true, &o[3]);
	check(m, "in turn", "trains", ran);
	if (!ran)
		return;
	check(m, "in turn", "A is A again", same(&o[1], &o[3]));
	check(m, "in turn", "B is not A, and as launched singly",
		same(&o[0], &o[2]) && o[2].loss[STEPS - 1] != o[1].loss[STEPS - 1]);
}

/* The three settings of activation_checkpointing, eager and as a graph. */
static void compare_settings(struct machine *m, const char *what, const struct spec_config *c)
{
	static struct outcome none, other;
	struct spec_config with = *c;
	bool ran = train(m, c, false, &none);

	check(m, what, "trains", ran && none.loss[STEPS - 1] < none.loss[0] + 1);
	for (int r = SPEC_RECOMPUTE_NONE; r <= SPEC_RECOMPUTE_FULL && ran; r++)
		for (int graphs = 0; graphs < 2 && ran; graphs++) {
			char part[64];

			with.recompute = (enum spec_recompute)r;
			ran = train(m, &with, graphs, &other);
			snprintf(part, sizeof(part), "%s%s: the bits of none",
				spec_recompute_name(with.recompute), graphs ? ", graph" : "");
			check(m, what, part, ran && same(&none, &other));
			if (ran && graphs)
				check(m, what, "a graph of its own was launched",
					was_replayed(m, &other, STEPS - 1));
		}
}

static void test_recompute(struct machine *m)
{
	static const struct {
		const char *name;
		enum spec_precision precision;
	} types[] = {
		{"fp32", SPEC_FP32}, {"tf32", SPEC_TF32}, {"bf16", SPEC_BF16}, {"fp16", SPEC_FP16}};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct spec_config c = make_config(types[i].precision);
		char what[64];

		if (!m->graphs && types[i].precision != SPEC_FP32)
			continue;
		c.model.n_layer = 4;
		c.accumulation = 2;
		c.batch = c.accumulation * c.micro_batch;
		snprintf(what, sizeof(what), "recompute, %s", types[i].name);
		compare_settings(m, what, &c);
		c.model.dropout = 0.1;
		c.model.gelu = SPEC_GELU_EXACT;
		snprintf(what, sizeof(what), "recompute, %s, dropout, erf", types[i].name);
		compare_settings(m, what, &c);
		if (!m->graphs)
			continue;
		/* products so large that they are fused with GELU where possible */
		c.model.n_embd = 768;
		c.model.n_head = 12;
		c.model.n_layer = 2;
		c.model.n_positions = c.seq_len = 512;
		c.model.gelu = SPEC_GELU_TANH;
		snprintf(what, sizeof(what), "recompute, %s, 768 wide, T 512", types[i].name);
		compare_settings(m, what, &c);
	}
}

static bool start(struct machine *m)
{
	struct k_context_options options = {.threads = 1};
	struct k_device_info info;

	m->w = (struct warm){.world = 1, .threads = 1};
	if (k_context_create(&options, &m->w.ctx) ||
		k_stream_create(m->w.ctx, K_STREAM_COMPUTE, "compute", &m->w.compute) ||
		k_stream_create(m->w.ctx, K_STREAM_COMM, "comm", &m->w.comm) || warm_init(&m->w))
		return false;
	k_context_info(m->w.ctx, &info);
	m->graphs = info.graphs;
	return true;
}

int main(void)
{
	struct machine m = {0};

	if (!start(&m)) {
		fprintf(stderr, "steps: no device\n");
		return 1;
	}
	test_precisions(&m);
	test_in_turn(&m);
	test_recompute(&m);
	check(&m, "scratch", "no operation took memory beyond the plan",
		k_stream_grown(m.w.compute) == 0);
	check(&m, "the device", "has not failed", !k_context_error(m.w.ctx));
	if (k_context_error(m.w.ctx))
		printf("%s\n", k_context_error(m.w.ctx));
	warm_finish(&m.w);
	k_stream_destroy(m.w.comm);
	k_stream_destroy(m.w.compute);
	k_context_destroy(m.w.ctx);
	printf("%d passed, %d failed\n", m.passed, m.failed);
	return m.failed ? 1 : 0;
}
