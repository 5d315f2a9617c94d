/*
 * Initial parameters, and parameters that are put there, where master weights are kept apart from
 * the parameters and of the owned slices alone (mixed precision): the same values as where they are
 * one arena, on every rank of any world.
 */
#include "engine/train/optimizer.h"
#include "tests/unit/test.h"

enum { BUCKET_ELEMS = 5000, SEED = 42 };

struct fixture {
	struct k_context *ctx;
	struct k_stream *stream;
	struct spec_config config;
	struct arena arena;
	bool put; /* other values once they are initialised */
};

static int setup(void **state)
{
	static struct fixture f;
	const struct k_context_options options = {.threads = 1};

	f = (struct fixture){.config = {.model = {.n_layer = 2,
						.n_head = 2,
						.n_embd = 32,
						.vocab_size = 101,
						.n_positions = 17},
				     .zero_stage = 1}};
	assert_int_equal(k_context_create(&options, &f.ctx), 0);
	assert_int_equal(k_stream_create(f.ctx, K_STREAM_COMPUTE, "compute", &f.stream), 0);
	arena_init(&f.arena, &f.config.model);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	arena_finish(&f->arena);
	k_stream_destroy(f->stream);
	k_context_destroy(f->ctx);
	return 0;
}

static void *take(const struct fixture *f, int64_t elems)
{
	void *memory = k_alloc(f->ctx, (size_t)elems * sizeof(k_real));

	assert_non_null(memory);
	memset(memory, 0x7f, (size_t)elems * sizeof(k_real)); /* what is not set shows */
	return memory;
}

/* In two pieces; the first ends within a tensor. */
static void put_values(const struct fixture *f, struct optimizer *o)
{
	const int64_t n = f->arena.param_elems, half = n / 2 + 3;
	k_real *values = take(f, n);

	for (int64_t i = 0; i < n; i++)
		values[i] = (k_real)i / 8;
	assert_int_equal(optimizer_put(o, 0, values, half), 0);
	assert_int_equal(optimizer_put(o, half, values + half, n - half), 0);
	assert_memory_equal(o->adamw.params, values, (size_t)n * sizeof(*values));
	k_free(f->ctx, values);
}

/* Buffers as they are after a reset; master apart when scratch_elems > 0. */
static void reset(const struct fixture *f, const struct plan *plan, int rank, int64_t scratch_elems,
	struct optimizer_buffers *b)
{
	const struct optimizer_options options = {.ctx = f->ctx,
		.stream = f->stream,
		.config = &f->config,
		.arena = &f->arena,
		.plan = plan,
		.rank = rank};
	int64_t owned = zero_owned_elems(plan, f->config.zero_stage, rank);
	struct optimizer o;

	*b = (struct optimizer_buffers){
		.params = take(f, plan->arena_elems),
		.m = take(f, owned),
		.v = take(f, owned),
		.small = k_alloc(f->ctx,
			(size_t)optimizer_small_bytes(&f->arena, plan, f->config.zero_stage)),
		.scratch_elems = scratch_elems,
	};
	b->master = b->params;
	if (scratch_elems > 0) {
		b->master = take(f, owned);
		b->scratch = take(f, scratch_elems);
	}
	assert_int_equal(optimizer_init(&o, &options, b), 0);
	optimizer_reset(&o, &f->arena, &f->config.model, SEED);
	assert_int_equal(k_stream_sync(f->stream, INT64_MAX), 0);
	if (f->put)
		put_values(f, &o);
}

static void release(const struct fixture *f, struct optimizer_buffers *b)
{
	if (b->master != b->params)
		k_free(f->ctx, b->master);
	k_free(f->ctx, b->params);
	k_free(f->ctx, b->m);
	k_free(f->ctx, b->v);
	k_free(f->ctx, b->small);
	k_free(f->ctx, b->scratch);
}

static void check_rank(const struct fixture *f, const struct plan *plan, int rank, int64_t scratch)
{
	struct optimizer_buffers one, apart;
	const k_real *expected, *compact;

	reset(f, plan, rank, 0, &one);
	reset(f, plan, rank, scratch, &apart);
	expected = one.params;
	compact = apart.master;
	assert_memory_equal(apart.params, expected, (size_t)plan->arena_elems * sizeof(*expected));
	for (int64_t i = 0; i < zero_owned_ranges(plan, f->config.zero_stage); i++) {
		struct k_range r = zero_owned_range(plan, f->config.zero_stage, rank, i);

		assert_memory_equal(compact, expected + r.first, (size_t)r.n * sizeof(*compact));
		compact += r.n;
	}
	release(f, &one);
	release(f, &apart);
}

static void check_world(struct fixture *f, int world, int64_t stage)
{
	struct plan plan;
	char error[256];

	f->config.zero_stage = stage;
	assert_int_equal(plan_make(&plan, f->arena.param_elems, world, BUCKET_ELEMS, BUCKET_ELEMS,
				 error, sizeof(error)),
		0);
	for (int rank = 0; rank < world; rank++) {
		check_rank(f, &plan, rank, 1001);
		check_rank(f, &plan, rank, 1 << 20);
	}
}

static void masters_of_slices_hold_what_the_arena_would(void **state)
{
	check_world(*state, 1, 1);
	check_world(*state, 2, 0);
	check_world(*state, 2, 1);
	check_world(*state, 3, 1);
}

static void and_what_is_put_there(void **state)
{
	struct fixture *f = *state;

	f->put = true;
	check_world(f, 1, 1);
	check_world(f, 2, 0);
	check_world(f, 3, 1);
}

TEST_MAIN(cmocka_unit_test_setup_teardown(
		  masters_of_slices_hold_what_the_arena_would, setup, teardown),
	cmocka_unit_test_setup_teardown(and_what_is_put_there, setup, teardown))
