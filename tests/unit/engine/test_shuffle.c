#include "engine/data/shuffle.h"
#include "tests/unit/test.h"

static void test_permutation(void **state)
{
	static bool seen[2000];
	uint64_t epoch;

	for (int64_t n = 1; n <= 2000; n++) {
		for (epoch = 0; epoch < 2; epoch++) {
			memset(seen, 0, sizeof(seen));
			for (int64_t i = 0; i < n; i++) {
				int64_t to = shuffle_index(42, epoch, i, n);

				assert_true(to >= 0 && to < n);
				assert_false(seen[to]);
				seen[to] = true;
			}
		}
	}
}

static void test_permutations_differ(void **state)
{
	int64_t n = 1000;
	int64_t same_epoch = 0, same_seed = 0, fixed = 0, i;

	for (i = 0; i < n; i++) {
		same_epoch += shuffle_index(42, 0, i, n) == shuffle_index(42, 1, i, n);
		same_seed += shuffle_index(42, 0, i, n) == shuffle_index(43, 0, i, n);
		fixed += shuffle_index(42, 0, i, n) == i;
	}
	/* two random permutations agree in one place on average */
	assert_true(same_epoch < 10);
	assert_true(same_seed < 10);
	assert_true(fixed < 10);
}

static void test_permutation_of_a_large_domain(void **state)
{
	int64_t n = INT64_C(1) << 62;

	for (int64_t i = 0; i < 1000; i++) {
		int64_t to = shuffle_index(1, 1, n - 1 - i, n);

		assert_true(to >= 0 && to < n);
	}
}

TEST_MAIN(cmocka_unit_test(test_permutation), cmocka_unit_test(test_permutations_differ),
	cmocka_unit_test(test_permutation_of_a_large_domain))
