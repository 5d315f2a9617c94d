/*
 * The same work is the same training: losses and parameters over ZeRO stages, bucket sizes, overlap
 * and reduce-scatter or all-reduce bit for bit; over worlds and splits of the batch to 1e-5. The
 * comparison is itself tested with trainings that lose a micro-batch or a bucket: the linker puts
 * the __wrap_ functions below between step and model, zero and collectives.
 */
#include <math.h>

#include "engine/train/training.h"
#include "tests/unit/engine/tiny.h"
#include "tests/unit/test.h"

enum { STEPS = 20, BATCH = 32, TRIALS_MAX = 80 };

static const double TOLERANCE = 1e-5;

enum fault { NO_FAULT, ONLY_LAST_MICRO, LOSE_REDUCTION, LOSE_GATHER };

struct trial {
	int64_t accumulation, micro_batch;
	int64_t stage, reduce_bucket, gather_bucket;
	bool overlap, reduce_scatter;
	enum fault fault;
};

struct outcome {
	double loss[STEPS], norm[STEPS];
	uint64_t params_hash; /* of all ranks, which must agree */
	int64_t disagree;
};

struct trials {
	int world, n;
	struct trial trial[TRIALS_MAX];
	struct outcome outcome[TRIALS_MAX];
};

/* ---- faults ---- */

static enum fault fault;
static const void *lost_buffer; /* the bucket that a fault loses */

void __real_model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);
void __wrap_model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);
void __real_collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
void __wrap_collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
void __real_collectives_all_gather(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
void __wrap_collectives_all_gather(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);

/* Only the last micro-batch has hooks. */
void __wrap_model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks)
{
	if (fault != ONLY_LAST_MICRO || hooks)
		__real_model_backward(m, pass, hooks);
}

void __wrap_collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	if (fault != LOSE_REDUCTION || buf != lost_buffer)
		__real_collectives_reduce_scatter(g, buf, n, s);
}

void __wrap_collectives_all_gather(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	if (fault != LOSE_GATHER || buf != lost_buffer)
		__real_collectives_all_gather(g, buf, n, s);
}

static void set_fault(const struct training *t, enum fault which)
{
	struct k_range second = plan_reduce_bucket(&t->plan, t->plan.n_reduce > 1 ? 1 : 0);
	const char *base = which == LOSE_GATHER ? t->model.params : t->model.grads;

	fault = which;
	lost_buffer = base + second.first * t->elem_bytes;
}

/* ---- one rank ---- */

static struct spec_config make_config(const struct trial *t, int world)
{
	struct spec_config c = tiny_config(world, t->accumulation, t->micro_batch);

	c.zero_stage = t->stage;
	c.reduce_bucket_elems = t->reduce_bucket;
	c.allgather_bucket_elems = t->gather_bucket;
	c.overlap_comm = t->overlap;
	c.reduce_scatter = t->reduce_scatter;
	c.optimizer_steps = STEPS;
	return c;
}

static uint64_t hash_params(const struct training *t)
{
	return tiny_hash(t->model.params, t->plan.param_elems * t->elem_bytes);
}

static int train(struct warm *w, struct collectives_group *group, const struct trial *trial,
	struct outcome *out)
{
	struct spec_config config = make_config(trial, w->world);
	struct training t;
	struct dataset data;
	char error[512] = "";
	uint64_t hashes[RANKS_MAX] = {0}, own;
	int rc;

	rc = tiny_open(&t, &data, w, group, &config);
	if (rc)
		return rc;
	training_reset(&t);
	set_fault(&t, trial->fault);
	for (int step = 0; step < STEPS && !rc; step++) {
		struct step_result r;

		rc = step_run(&t.step, false, &r, error, sizeof(error));
		if (rc)
			break;
		out->loss[step] = r.measure.loss;
		out->norm[step] = r.measure.grad_norm;
	}
	fault = NO_FAULT;
	if (rc)
		fprintf(stderr, "rank %d: %s\n", w->rank, error);
	zero_drain(&w->zero);
	own = hash_params(&t);
	hashes[0] = own;
	if (group) {
		collectives_gather_all(group, hashes, &own, sizeof(own), w->comm);
		k_stream_sync(w->comm, INT64_MAX);
	}
	out->params_hash = own;
	for (int r = 0; r < w->world; r++)
		out->disagree += hashes[r] != hashes[0];
	tiny_close(&t, &data);
	return rc;
}

static int run_rank(struct ranks_self *self)
{
	const struct trials *trials = self->arg;
	struct warm w;
	int rc = tiny_warm(&w, self);

	for (int i = 0; i < trials->n && !rc; i++) {
		struct outcome out = {0};

		rc = train(&w, self->world > 1 ? self->all : NULL, &trials->trial[i], &out);
		if (self->rank == 0)
			memcpy(self->shared + (size_t)i * sizeof(out), &out, sizeof(out));
	}
	warm_finish(&w);
	return rc ? 1 : 0;
}

static void run(struct trials *t, int world)
{
	_Static_assert(sizeof(t->outcome) <= RANKS_SHARED_BYTES, "outcomes fit");
	t->world = world;
	assert_int_equal(ranks_run_well(world, run_rank, t, t->outcome, sizeof(t->outcome)), 0);
	for (int i = 0; i < t->n; i++)
		if (t->trial[i].fault == NO_FAULT)
			assert_int_equal(t->outcome[i].disagree, 0);
}

/* ---- comparing ---- */

static double largest_difference(const struct outcome *a, const struct outcome *b)
{
	double largest = 0;

	for (int step = 0; step < STEPS; step++)
		largest = fmax(largest, fabs(a->loss[step] / b->loss[step] - 1));
	return largest;
}

static void describe(const struct trials *t, int i, char *out, size_t n)
{
	const struct trial *k = &t->trial[i];

	snprintf(out, n, "world %d (%d,%d) ZeRO-%d bucket %d/%d overlap %d reduce_scatter %d",
		t->world, (int)k->accumulation, (int)k->micro_batch, (int)k->stage,
		(int)k->reduce_bucket, (int)k->gather_bucket, k->overlap, k->reduce_scatter);
}

/* Trials of the same world and split as the first of them. */
static void check_identical(const struct trials *t, int first, int n)
{
	char what[128];

	for (int i = first + 1; i < first + n; i++) {
		describe(t, i, what, sizeof(what));
		if (memcmp(t->outcome[i].loss, t->outcome[first].loss, sizeof(t->outcome[i].loss)))
			fail_msg("%s: other losses", what);
		if (memcmp(t->outcome[i].norm, t->outcome[first].norm, sizeof(t->outcome[i].norm)))
			fail_msg("%s: other gradient norms", what);
		if (t->outcome[i].params_hash != t->outcome[first].params_hash)
			fail_msg("%s: other parameters", what);
	}
}

static void check_close(const struct trials *t, int i, const struct outcome *reference)
{
	double off = largest_difference(&t->outcome[i], reference);
	char what[128];

	describe(t, i, what, sizeof(what));
	if (!(off <= TOLERANCE))
		fail_msg("%s: losses differ by %g, at most %g", what, off, TOLERANCE);
}

/* ---- the matrix ---- */

/* Elements: below the smallest (is rounded up to it), odd, the largest tensor's exactly, all. */
static const int64_t bucket_sizes[] = {1, 1111, 128 * 16, 1 << 20};

static void add(struct trials *t, struct trial trial)
{
	assert_true(t->n < TRIALS_MAX);
	t->trial[t->n++] = trial;
}

/* Every way that must give the same bits at this split of the batch; their number. */
static int add_equals(struct trials *t, int64_t accumulation, int64_t micro)
{
	int before = t->n;
	struct trial base = {.accumulation = accumulation, .micro_batch = micro};

	for (size_t i = 0; i < sizeof(bucket_sizes) / sizeof(bucket_sizes[0]); i++) {
		struct trial k = base;

		k.reduce_bucket = bucket_sizes[i];
		k.gather_bucket = bucket_sizes[i];
		k.stage = 1;
		k.overlap = true;
		k.reduce_scatter = true;
		add(t, k);
		k.overlap = false;
		k.reduce_scatter = i % 2;
		add(t, k);
		k.gather_bucket = 1 << 20;
		k.overlap = true;
		k.reduce_scatter = !k.reduce_scatter;
		add(t, k);
		k.stage = 0;
		k.overlap = i % 2;
		add(t, k);
	}
	return t->n - before;
}

static void same_work_is_the_same_training(void **state)
{
	static const int64_t accumulations[] = {1, 4, 8};
	static struct trials trials; /* no leak in a forked rank */
	struct trials *t = &trials;
	struct outcome reference = {0};
	bool known = false;

	for (int world = 1; world <= 4; world *= 2) {
		int n = 0;

		t->n = 0;
		for (size_t a = 0; a < 3; a++)
			n = add_equals(t, accumulations[a], BATCH / accumulations[a] / world);
		run(t, world);
		for (size_t a = 0; a < 3; a++) {
			if (!known)
				reference = t->outcome[0];
			known = true;
			check_identical(t, (int)a * n, n);
			check_close(t, (int)a * n, &reference);
		}
	}
	assert_true(reference.loss[STEPS - 1] < 0.97 * reference.loss[0]); /* it does train */
}

static void a_run_repeats_bit_for_bit(void **state)
{
	static struct trials trials; /* no leak in a forked rank */
	struct trials *t = &trials;
	struct trial k = {.accumulation = 2,
		.micro_batch = 4,
		.stage = 1,
		.reduce_bucket = 3000,
		.gather_bucket = 3000,
		.overlap = true,
		.reduce_scatter = true};
	struct trial other = k;

	other.micro_batch = 7; /* in between, the same memory is used otherwise */
	for (int i = 0; i < 2; i++) {
		add(t, k);
		add(t, other);
	}
	add(t, k);
	run(t, 2);
	t->outcome[1] = t->outcome[2];
	t->outcome[2] = t->outcome[4];
	check_identical(t, 0, 3);
}

/* Each fault must be seen by the comparison above. */
static void lost_work_is_seen(void **state)
{
	static const enum fault faults[] = {ONLY_LAST_MICRO, LOSE_REDUCTION, LOSE_GATHER};
	static struct trials trials; /* no leak in a forked rank */
	struct trials *t = &trials;
	struct trial k = {.accumulation = 4,
		.micro_batch = 4,
		.stage = 1,
		.reduce_bucket = 1111,
		.gather_bucket = 1111,
		.overlap = true,
		.reduce_scatter = true};

	add(t, k);
	for (size_t i = 0; i < 3; i++) {
		k.fault = faults[i];
		add(t, k);
	}
	run(t, 2);
	for (int i = 1; i <= 3; i++) {
		double off = largest_difference(&t->outcome[i], &t->outcome[0]);

		if (!(off > 10 * TOLERANCE))
			fail_msg("fault %d changes losses by %g only", t->trial[i].fault, off);
	}
}

TEST_MAIN(cmocka_unit_test(same_work_is_the_same_training),
	cmocka_unit_test(a_run_repeats_bit_for_bit), cmocka_unit_test(lost_work_is_seen))
