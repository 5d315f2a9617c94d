#include "engine/train/arena.h"
#include "engine/train/plan.h"
#include "tests/unit/engine/gpt2_shape.h"
#include "tests/unit/test.h"

static char error[512];

static void check_slices(const struct plan *p, int64_t bucket)
{
	struct k_range b = plan_reduce_bucket(p, bucket);
	int64_t next = b.first;

	for (int rank = 0; rank < p->world; rank++) {
		struct k_range s = plan_owned_slice(p, bucket, rank);

		assert_int_equal(s.first, next);
		assert_int_equal(s.n, b.n / p->world);
		assert_int_equal(s.first % PLAN_ALIGN_ELEMS, 0);
		assert_true(s.n > 0);
		next += s.n;
	}
	assert_int_equal(next, b.first + b.n);
}

static void check_reduce_buckets(const struct plan *p)
{
	int64_t next = 0;

	for (int64_t i = 0; i < p->n_reduce; i++) {
		struct k_range b = plan_reduce_bucket(p, i);

		assert_int_equal(b.first, next);
		assert_true(b.n > 0 && b.n <= p->reduce_elems);
		assert_true(i + 1 == p->n_reduce || b.n == p->reduce_elems);
		check_slices(p, i);
		next = b.first + b.n;
	}
	assert_int_equal(next, p->arena_elems);
}

static void check_owners(const struct plan *p)
{
	int64_t owned = 0;

	for (int rank = 0; rank < p->world; rank++) {
		int64_t mine = 0;

		for (int64_t i = 0; i < p->n_reduce; i++)
			mine += plan_owned_slice(p, i, rank).n;
		assert_int_equal(mine, plan_owned_elems(p, rank));
		owned += mine;
	}
	assert_int_equal(owned, p->arena_elems);
}

static void check_gather_buckets(const struct plan *p)
{
	int64_t gathered = 0;

	for (int64_t i = 0; i < p->n_gather; i++) {
		struct k_range b = plan_gather_bucket(p, i);

		assert_int_equal(b.first, gathered);
		assert_true(b.n > 0);
		assert_int_equal(b.first % p->reduce_elems, 0);
		gathered = b.first + b.n;
		assert_true(gathered == p->arena_elems || gathered % p->reduce_elems == 0);
	}
	assert_int_equal(gathered, p->arena_elems);
}

/* Those, and only those, whose elements are all among the first that are complete. */
static void check_complete(const struct plan *p)
{
	int64_t before = 0;

	for (int64_t complete = 0; complete <= p->arena_elems;
		complete += p->arena_elems / 997 + 1) {
		int64_t n = plan_complete_buckets(p, complete);
		struct k_range b;

		assert_true(n >= before && n <= p->n_reduce);
		if (n > 0 && complete < p->param_elems) {
			b = plan_reduce_bucket(p, n - 1);
			assert_true(b.first + b.n <= complete);
		}
		if (n < p->n_reduce) {
			b = plan_reduce_bucket(p, n);
			assert_true(b.first + b.n > complete);
		}
		before = n;
	}
	assert_int_equal(plan_complete_buckets(p, 0), 0);
	assert_int_equal(plan_complete_buckets(p, p->param_elems), p->n_reduce);
}

/* Every element in exactly one range, in order, none empty; owners share each bucket equally. */
static void check_plan(const struct plan *p)
{
	assert_int_equal(p->arena_elems % ((int64_t)p->world * PLAN_ALIGN_ELEMS), 0);
	assert_true(p->arena_elems >= p->param_elems);
	assert_true(p->arena_elems - p->param_elems < (int64_t)p->world * PLAN_ALIGN_ELEMS);
	assert_in_range(p->n_reduce, 1, PLAN_BUCKETS_MAX);
	check_reduce_buckets(p);
	check_owners(p);
	check_gather_buckets(p);
	check_complete(p);
}

static int64_t largest_tensor(const struct arena *a)
{
	int64_t largest = 0;

	for (int64_t i = 0; i < a->n_entries; i++) {
		int64_t n = a->entries[i].rows * a->entries[i].cols;

		largest = n > largest ? n : largest;
	}
	return largest;
}

static void check_caps(int64_t total, int64_t s, int world)
{
	const int64_t caps[] = {1, s - 1, s, s + 1, total - 1, total, 10 * total, INT64_MAX};

	for (size_t r = 0; r < sizeof(caps) / sizeof(caps[0]); r++) {
		for (size_t g = 0; g < sizeof(caps) / sizeof(caps[0]); g++) {
			struct plan p;
			int rc =
				plan_make(&p, total, world, caps[r], caps[g], error, sizeof(error));

			if (caps[r] < plan_smallest_bucket_elems(total, world)) {
				assert_int_equal(rc, -EINVAL);
				continue;
			}
			if (caps[g] < caps[r] && rc == -EINVAL) {
				assert_non_null(strstr(error, "allgather_bucket_size"));
				continue;
			}
			assert_int_equal(rc, 0);
			check_plan(&p);
			assert_true(p.reduce_elems >= caps[r] || p.reduce_elems == p.arena_elems);
			assert_true(p.reduce_elems - caps[r] < (int64_t)world * PLAN_ALIGN_ELEMS);
		}
	}
}

static void test_caps_of_a_model(void **state)
{
	struct spec_model models[] = {
		gpt2_shape(),
		{.n_layer = 2, .n_head = 2, .n_embd = 24, .vocab_size = 97, .n_positions = 16},
	};
	int world;

	for (size_t m = 0; m < 2; m++) {
		struct arena a;

		arena_init(&a, &models[m]);
		for (world = 1; world <= 8; world++)
			check_caps(a.param_elems, largest_tensor(&a), world);
		arena_finish(&a);
	}
}

/* every size from 1 to beyond the arena, for small arenas */
static void test_all_sizes_of_small_arenas(void **state)
{
	static const int64_t totals[] = {1, 127, 128, 129, 1000, 2048, 5000};
	int world;

	for (size_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++) {
		for (world = 1; world <= 8; world++) {
			int64_t cap;

			for (cap = 1; cap <= totals[t] + 1100; cap += cap < 300 ? 1 : 37) {
				struct plan p;

				assert_int_equal(plan_make(&p, totals[t], world, cap, cap, error,
							 sizeof(error)),
					0);
				check_plan(&p);
				assert_int_equal(p.gather_elems, p.reduce_elems);
			}
		}
	}
}

static void test_smallest_is_accepted_and_one_less_is_not(void **state)
{
	static const int64_t totals[] = {
		1, 128 * 4096, 128 * 4096 + 1, 124475904, 163110000, 1557686400};
	int world;

	for (size_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++) {
		for (world = 1; world <= 8; world++) {
			int64_t smallest = plan_smallest_bucket_elems(totals[t], world);
			char expected[64];
			struct plan p;

			assert_true(smallest >= 1);
			assert_int_equal(plan_make(&p, totals[t], world, smallest, INT64_MAX, error,
						 sizeof(error)),
				0);
			assert_true(p.n_reduce <= PLAN_BUCKETS_MAX);
			assert_int_equal(p.n_gather, 1);
			assert_int_equal(plan_make(&p, totals[t], world, smallest - 1, INT64_MAX,
						 error, sizeof(error)),
				-EINVAL);
			if (smallest > 1) {
				snprintf(expected, sizeof(expected), "at least %lld elements",
					(long long)smallest);
				assert_non_null(strstr(error, expected));
			}
		}
	}
}

static void test_refused(void **state)
{
	struct plan p = {.world = 77};

	assert_int_equal(plan_make(&p, 1000, 1, 0, 1, error, sizeof(error)), -EINVAL);
	assert_int_equal(plan_make(&p, 1000, 1, 1, -1, error, sizeof(error)), -EINVAL);
	assert_int_equal(plan_make(&p, 1000, 0, 1, 1, error, sizeof(error)), -EINVAL);
	assert_int_equal(plan_make(&p, 10000, 2, 1024, 768, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "768 elements"));
	assert_non_null(strstr(error, "at least 769 elements"));
	assert_int_equal(p.world, 77); /* outputs only on success */
	assert_int_equal(plan_make(&p, 10000, 2, 1024, 769, error, sizeof(error)), 0);
	assert_int_equal(p.gather_elems, 1024);
	assert_int_equal(plan_make(&p, 10000, 2, 1024, 1025, error, sizeof(error)), 0);
	assert_int_equal(p.gather_elems, 2048);
}

static void test_gpt2_buckets(void **state)
{
	struct plan p;

	/* 5e8 and 2e8 elements are the same single bucket */
	assert_int_equal(
		plan_make(&p, 163110000, 8, 500000000, 500000000, error, sizeof(error)), 0);
	assert_int_equal(p.n_reduce, 1);
	assert_int_equal(
		plan_make(&p, 163110000, 8, 200000000, 200000000, error, sizeof(error)), 0);
	assert_int_equal(p.n_reduce, 1);
	assert_int_equal(plan_make(&p, 124475904, 4, 20000000, 20000000, error, sizeof(error)), 0);
	assert_int_equal(p.n_reduce, 7);
	assert_int_equal(p.reduce_elems, 20000256);
}

static void test_traffic(void **state)
{
	struct plan p;
	struct plan_traffic t;

	assert_int_equal(plan_make(&p, 10000, 4, 2048, 4096, error, sizeof(error)), 0);
	assert_int_equal(p.arena_elems, 10240);
	t = plan_step_traffic(&p, 1, 1);
	assert_int_equal(t.reduce_scatter_elems, 7680);
	assert_int_equal(t.all_gather_elems, 7680);
	assert_int_equal(t.all_reduce_elems, 0);
	t = plan_step_traffic(&p, 1, 0);
	assert_int_equal(t.reduce_scatter_elems, 0);
	assert_int_equal(t.all_gather_elems, 7680);
	assert_int_equal(t.all_reduce_elems, 15360);
	t = plan_step_traffic(&p, 0, 1);
	assert_int_equal(t.reduce_scatter_elems, 0);
	assert_int_equal(t.all_gather_elems, 0);
	assert_int_equal(t.all_reduce_elems, 15360);
	assert_int_equal(plan_make(&p, 10000, 1, 2048, 4096, error, sizeof(error)), 0);
	t = plan_step_traffic(&p, 1, 1);
	assert_int_equal(t.reduce_scatter_elems + t.all_gather_elems + t.all_reduce_elems, 0);
}

TEST_MAIN(cmocka_unit_test(test_caps_of_a_model), cmocka_unit_test(test_all_sizes_of_small_arenas),
	cmocka_unit_test(test_smallest_is_accepted_and_one_less_is_not),
	cmocka_unit_test(test_refused), cmocka_unit_test(test_gpt2_buckets),
	cmocka_unit_test(test_traffic))
