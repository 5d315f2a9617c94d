#include <math.h>
#include <string.h>

#include "tests/unit/kernels/kernels_fixture.h"

/* ---- exact sum ---- */

static struct k_exact_sum sum_of(const double *x, int64_t n)
{
	struct k_exact_sum sum = {0};

	k_sum_squares(fixture.s, &sum, fixture_device(x, n), n);
	return sum;
}

static void add_sum(struct k_exact_sum *to, const struct k_exact_sum *from)
{
	for (int i = 0; i < K_EXACT_LIMBS; i++)
		to->limb[i] += from->limb[i];
	to->nonfinite += from->nonfinite;
}

static void exact_sum_has_the_value(void **state)
{
	for (int64_t n = 1; n < 300000; n = n * 3 + 1) {
		double *x = fixture_random(n, 3);
		long double want = 0;
		double got;
		struct k_exact_sum sum;

		for (int64_t i = 0; i < n; i++)
			want += (long double)x[i] * (long double)x[i];
		sum = sum_of(x, n);
		got = k_exact_value(&sum);
		assert_true(fabsl((long double)got - want) <= 1e-14L * want);
		assert_int_equal(sum.nonfinite, 0);
	}
}

/* Whole numbers below 2^53 are exact in the blocks too: not one unit may be missing. */
static void exact_sum_is_exact(void **state)
{
	double x[1000], want = 0;
	struct k_exact_sum sum;

	for (int i = 0; i < 1000; i++) {
		x[i] = (i * 7919) % 100003;
		want += x[i] * x[i];
	}
	sum = sum_of(x, 1000);
	assert_true(k_exact_value(&sum) == want);
	sum = sum_of(x, 0);
	assert_true(k_exact_value(&sum) == 0);
}

/* Blocks in any order, in any number of calls. */
static void exact_sum_has_no_order(void **state)
{
	enum { BLOCKS = 64, N = BLOCKS * K_SUM_BLOCK_ELEMS };
	double *x = fixture_random(N, 1), *permuted = fixture_host(N);
	struct k_exact_sum whole, shuffled, parts = {0};
	double value;

	for (int i = 0; i < N; i++)
		x[i] = (double)(float)(x[i] * pow(10, i / K_SUM_BLOCK_ELEMS % 37 - 18));
	for (int b = 0; b < BLOCKS; b++)
		memcpy(permuted + b * K_SUM_BLOCK_ELEMS,
			x + (b * 37 + 11) % BLOCKS * K_SUM_BLOCK_ELEMS,
			K_SUM_BLOCK_ELEMS * sizeof *x);
	whole = sum_of(x, N);
	shuffled = sum_of(permuted, N);
	value = k_exact_value(&whole);
	assert_true(value == k_exact_value(&shuffled));
	assert_memory_equal(&whole, &shuffled, sizeof whole);
	for (int at = 0; at < N;) {
		int n = (at / K_SUM_BLOCK_ELEMS % 5 + 1) * K_SUM_BLOCK_ELEMS;
		struct k_exact_sum part;

		n = n < N - at ? n : N - at;
		part = sum_of(x + at, n);
		add_sum(&parts, &part);
		at += n;
	}
	assert_memory_equal(&whole, &parts, sizeof whole);
}

static void exact_sum_holds_extremes(void **state)
{
	double tiny = (double)1.5e-38f, huge = (double)3.0e38f;
	double x[2 * K_SUM_BLOCK_ELEMS] = {0}, least = (double)1.401298464e-45f;
	struct k_exact_sum sum, other;

	x[0] = tiny;
	sum = sum_of(x, 1);
	assert_true(k_exact_value(&sum) == tiny * tiny);
	x[0] = least; /* the least denormal */
	sum = sum_of(x, 1);
	assert_true(k_exact_value(&sum) == least * least);
	for (int i = 0; i < K_SUM_BLOCK_ELEMS; i++)
		x[i] = huge;
	sum = sum_of(x, K_SUM_BLOCK_ELEMS);
	assert_true(k_exact_value(&sum) == huge * huge * K_SUM_BLOCK_ELEMS);
	assert_int_equal(sum.nonfinite, 0);
	/* what is lost beside the huge is still there once the huge is taken away */
	x[K_SUM_BLOCK_ELEMS] = tiny;
	other = sum_of(x, K_SUM_BLOCK_ELEMS + 1);
	for (int i = 0; i < K_EXACT_LIMBS; i++)
		other.limb[i] -= sum.limb[i];
	assert_true(k_exact_value(&other) == tiny * tiny);
}

static void exact_sum_passes_carries_on(void **state)
{
	struct k_exact_sum sum = {0};

	sum.limb[14] = INT64_C(1) << 40;
	sum.limb[15] = 5;
	assert_true(k_exact_value(&sum) == 0x1p40 + 5 * 0x1p32);
	sum.limb[0] = -1; /* as a difference of sums may have it */
	sum.limb[1] = 1;
	sum.limb[14] = sum.limb[15] = 0;
	assert_true(k_exact_value(&sum) == ldexp(4294967295.0, -448));
}

static void exact_sum_counts_what_is_not_finite(void **state)
{
	double *x = fixture_random(1000, 2), *clean = fixture_host(1000);
	struct k_exact_sum sum, want;

	memcpy(clean, x, 1000 * sizeof *x);
	x[3] = INFINITY;
	x[4] = -INFINITY;
	x[700] = NAN;
	clean[3] = clean[4] = clean[700] = 0;
	sum = sum_of(x, 1000);
	want = sum_of(clean, 1000);
	assert_int_equal(sum.nonfinite, 3);
	assert_memory_equal(sum.limb, want.limb, sizeof sum.limb);
	assert_true(isfinite(k_exact_value(&sum)));
}

/* ---- prepare ---- */

static struct k_step_state prepare(double sum, double clip, double loss_scale, int64_t nonfinite)
{
	struct k_step_state step = {.lr = 1,
		.clip = clip,
		.loss_scale = loss_scale,
		.t = 3,
		.grad_norm = -1,
		.grad_mul = -1,
		.skip = 7};
	double root = sqrt(sum);
	struct k_exact_sum exact = sum_of(&root, 1);

	exact.nonfinite += nonfinite;
	k_step_prepare(fixture.s, &step, &exact);
	assert_true(step.lr == 1 && step.clip == clip && step.loss_scale == loss_scale);
	assert_int_equal(step.t, 3);
	return step;
}

static void prepare_clips_once(void **state)
{
	double shard[2] = {3, 4};
	struct k_exact_sum sum = sum_of(&shard[0], 1), other = sum_of(&shard[1], 1);
	struct k_step_state step = {.clip = 1, .loss_scale = 1};

	add_sum(&sum, &other);
	k_step_prepare(fixture.s, &step, &sum);
	assert_true(step.grad_norm == 5);
	assert_true(fabs(step.grad_mul - 1 / 5.000001) < 1e-16);
	assert_int_equal(step.skip, 0);
	step = prepare(25, 5.1, 1, 0);
	assert_true(step.grad_norm == 5 && step.grad_mul == 1);
	step = prepare(25, 0, 1, 0);
	assert_true(step.grad_norm == 5 && step.grad_mul == 1);
	step = prepare(0, 1, 1, 0);
	assert_true(step.grad_norm == 0 && step.grad_mul == 1);
}

/* Clipping is decided on unscaled gradients, for any scale. */
static void prepare_unscales_first(void **state)
{
	const double scales[] = {1, 1024, 65536};

	for (int i = 0; i < 3; i++) {
		double s = scales[i];
		struct k_step_state step = prepare(0.25 * s * s, 1, s, 0);

		assert_true(step.grad_norm == 0.5);
		assert_true(step.grad_mul == 1 / s);
		step = prepare(16 * s * s, 1, s, 0);
		assert_true(step.grad_norm == 4);
		assert_true(step.grad_mul * s == 1 / 4.000001);
	}
}

static void prepare_skips(void **state)
{
	struct k_step_state step = prepare(4, 1, 2, 1);

	assert_int_equal(step.skip, 1);
	assert_true(isnan(step.grad_norm));
}

/* ---- AdamW ---- */

enum { ARENA = 70000 };

struct model {
	double *p, *m, *v; /* as the arena */
};

static bool in_ranges(const struct k_range *ranges, int64_t n, int64_t i)
{
	for (int64_t k = 0; k < n; k++) {
		if (i >= ranges[k].first && i < ranges[k].first + ranges[k].n)
			return true;
	}
	return false;
}

static void reference_step(struct model *x, const double *grads, const struct k_adamw *a,
	const struct k_step_state *step)
{
	for (int64_t i = 0; i < ARENA; i++) {
		double g = grads[i] * step->grad_mul, up;
		double wd = in_ranges(a->decayed, a->n_decayed, i) ? a->weight_decay : 0;

		if (!in_ranges(a->ranges, a->n_ranges, i))
			continue;
		x->m[i] = a->beta1 * x->m[i] + (1 - a->beta1) * g;
		x->v[i] = a->beta2 * x->v[i] + (1 - a->beta2) * g * g;
		up = x->m[i] / (1 - pow(a->beta1, (double)step->t)) /
			(sqrt(x->v[i] / (1 - pow(a->beta2, (double)step->t))) + a->eps);
		x->p[i] -= step->lr * (up + wd * x->p[i]);
	}
}

#ifdef K_DOUBLE
static const double tolerance = 1e-13;
#else
static const double tolerance = 2e-6;
#endif

static const struct k_range ranges[] = {
	{0, 100}, {100, 1}, {300, 4000}, {5000, 45000}, {60000, 0}, {69000, 1000}};
static const struct k_range decayed[] = {
	{50, 30}, {100, 1}, {290, 20}, {1000, 7000}, {9000, 60500}};
enum { N_RANGES = 6, N_DECAYED = 5 };

/* The owned elements of an arena, one after the other. */
static double *compact(const double *arena)
{
	double *out = fixture_host(ARENA), *to = out;

	for (int64_t k = 0; k < N_RANGES; to += ranges[k++].n)
		memcpy(to, arena + ranges[k].first, (size_t)ranges[k].n * sizeof *out);
	return out;
}

/* Three steps, the second of them skipped. */
static void check_adamw(bool own_master, bool master_compact)
{
	struct model x = {fixture_random(ARENA, 1), fixture_host(ARENA), fixture_host(ARENA)};
	k_real *params = fixture_device(x.p, ARENA), *m, *v, *master = params;
	double *before = fixture_copy(params, ARENA), *got;
	struct k_adamw a = {.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.params = params,
		.master_compact = master_compact,
		.ranges = ranges,
		.n_ranges = N_RANGES,
		.decayed = decayed,
		.n_decayed = N_DECAYED};
	int64_t owned = 0;

	for (int k = 0; k < N_RANGES; k++)
		owned += ranges[k].n;
	m = fixture_device(x.m, ARENA);
	v = fixture_device(x.v, ARENA);
	if (master_compact)
		master = fixture_device(compact(x.p), ARENA);
	else if (own_master)
		master = fixture_device(x.p, ARENA);
	a.master = master;
	a.m = m;
	a.v = v;
	for (int t = 1; t <= 3; t++) {
		double *grads = fixture_random(ARENA, 10);
		struct k_step_state step = {
			.lr = 1e-2 * t, .t = t < 3 ? t : 2, .grad_mul = 0.125, .skip = t == 2};

		a.grads = fixture_device(grads, ARENA);
		k_adamw_step(fixture.s, &a, &step);
		if (t != 2)
			reference_step(&x, grads, &a, &step);
	}
	got = fixture_copy(params, ARENA);
	fixture_equal("params", got, x.p, ARENA, tolerance);
	for (int64_t i = 0; i < ARENA; i++)
		assert_true(in_ranges(ranges, N_RANGES, i) || got[i] == before[i]);
	fixture_equal("m", fixture_copy(m, ARENA), compact(x.m), owned, tolerance);
	fixture_equal("v", fixture_copy(v, ARENA), compact(x.v), owned, tolerance);
	assert_true(m[owned] == 0 && v[owned] == 0);
	if (master_compact)
		fixture_equal(
			"master", fixture_copy(master, owned), compact(x.p), owned, tolerance);
}

static void adamw(void **state)
{
	check_adamw(false, false);
	check_adamw(true, false);
	check_adamw(true, true);
}

/* However the owned elements are cut into ranges, each gets the same bits. */
static void adamw_does_not_depend_on_the_cut(void **state)
{
	double *p = fixture_random(ARENA, 1), *g = fixture_random(ARENA, 3);
	struct k_range one = {0, ARENA}, many[ARENA / 333 + 1];
	struct k_step_state step = {.lr = 0.01, .t = 5, .grad_mul = 0.7};
	k_real *params[2];
	int64_t n = 0;

	for (int64_t at = 0; at < ARENA; at += 333, n++)
		many[n] = (struct k_range){at, ARENA - at < 333 ? ARENA - at : 333};
	for (int i = 0; i < 2; i++) {
		params[i] = fixture_device(p, ARENA);
		k_adamw_step(fixture.s,
			&(struct k_adamw){.beta1 = 0.9,
				.beta2 = 0.999,
				.eps = 1e-8,
				.weight_decay = 0.01,
				.master = params[i],
				.params = params[i],
				.grads = fixture_device(g, ARENA),
				.m = fixture_device(g, ARENA),
				.v = fixture_device(fixture_host(ARENA), ARENA),
				.ranges = i ? many : &one,
				.n_ranges = i ? n : 1,
				.decayed = decayed,
				.n_decayed = N_DECAYED},
			&step);
	}
	assert_memory_equal(params[0], params[1], ARENA * sizeof *params[0]);
	assert_true(params[0][9] != (k_real)p[9]);
}

/* ---- sum in order ---- */

static void sum_in_order(void **state)
{
	enum { N = 150001, SOURCES = 20 };
	k_real *srcs[SOURCES], *want = fixture_poison(N);
	struct k_stream *comm;

	assert_int_equal(k_stream_create(fixture.ctx, K_STREAM_COMM, "comm", &comm), 0);
	for (int count = 1; count <= SOURCES; count += count < 4 ? 1 : 16) {
		for (int place = -1; place < count; place += count < 4 ? 1 : 7) {
			struct k_stream *s = place % 2 ? comm : fixture.s;
			k_real *dst = fixture_poison(N);

			for (int k = 0; k < count; k++)
				srcs[k] = fixture_device(fixture_random(N, k + 1), N);
			for (int64_t i = 0; i < N; i++) {
				want[i] = srcs[0][i];
				for (int k = 1; k < count; k++)
					want[i] += srcs[k][i];
			}
			dst = place < 0 ? dst : srcs[place];
			k_sum_in_order(s, dst, (const void *const *)srcs, count, N);
			assert_int_equal(k_stream_sync(s, INT64_MAX), 0);
			assert_memory_equal(dst, want, N * sizeof *dst);
		}
	}
	k_stream_destroy(comm);
}

FIXTURE_MAIN(FIXTURE_TEST(exact_sum_has_the_value), FIXTURE_TEST(exact_sum_is_exact),
	FIXTURE_TEST(exact_sum_has_no_order), FIXTURE_TEST(exact_sum_holds_extremes),
	FIXTURE_TEST(exact_sum_passes_carries_on),
	FIXTURE_TEST(exact_sum_counts_what_is_not_finite), FIXTURE_TEST(prepare_clips_once),
	FIXTURE_TEST(prepare_unscales_first), FIXTURE_TEST(prepare_skips), FIXTURE_TEST(adamw),
	FIXTURE_TEST(adamw_does_not_depend_on_the_cut), FIXTURE_TEST(sum_in_order))
