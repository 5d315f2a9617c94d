#include "proto/spec/spec.h"
#include "proto/suggest.h"
#include "tests/unit/test.h"

static struct spec *make(size_t arms, int64_t repetitions, bool mirrored, int64_t seed)
{
	struct spec *spec = calloc(1, sizeof(*spec));

	assert_non_null(spec);
	spec->n_arms = arms;
	spec->has_arms = true;
	spec->repetitions = repetitions;
	spec->mirrored = mirrored;
	spec->design_seed = seed;
	return spec;
}

static struct design_segment *order_of(const struct spec *spec, size_t *n)
{
	struct design_segment *out;

	*n = spec_segments(spec);
	out = calloc(*n, sizeof(*out));
	assert_non_null(out);
	spec_order(spec, out);
	return out;
}

static void test_without_arms(void **state)
{
	struct spec *spec = make(1, 5, true, 1);
	struct design_segment *order;
	size_t n;

	spec->has_arms = false;
	order = order_of(spec, &n);
	assert_int_equal(n, 1);
	assert_int_equal(order[0].block + order[0].position + (int64_t)order[0].arm, 0);
	free(order);
	free(spec);
}

static void test_two_arms_are_abba_or_baab(void **state)
{
	struct spec *spec = make(2, 64, true, 7);
	struct design_segment *order;
	size_t n, starts_with_a = 0;

	order = order_of(spec, &n);
	assert_int_equal(n, 256);
	for (size_t i = 0; i < n; i += 4) {
		assert_int_equal(order[i].arm, order[i + 3].arm);
		assert_int_equal(order[i + 1].arm, order[i + 2].arm);
		assert_int_equal(order[i].arm + order[i + 1].arm, 1);
		starts_with_a += order[i].arm == 0;
	}
	/* 64 fair coins: outside of this once in 50,000 seeds */
	assert_in_range(starts_with_a, 16, 48);
	free(order);
	free(spec);
}

static void test_every_arm_once_per_half(void **state)
{
	for (size_t arms = 1; arms <= SPEC_ARMS_MAX; arms++) {
		for (int mirrored = 0; mirrored < 2; mirrored++) {
			struct spec *spec = make(arms, 9, mirrored, 3);
			size_t n, length = arms * (mirrored ? 2 : 1);
			struct design_segment *order = order_of(spec, &n);

			assert_int_equal(n, 9 * length);
			for (size_t half = 0; half < n; half += arms) {
				unsigned seen = 0;

				for (size_t i = half; i < half + arms; i++) {
					assert_int_equal(order[i].block, i / length);
					assert_int_equal(order[i].position, i % length);
					assert_true(order[i].arm < arms);
					seen |= 1U << order[i].arm;
				}
				assert_int_equal(seen, (1U << arms) - 1);
			}
			free(order);
			free(spec);
		}
	}
}

static void test_seed_decides(void **state)
{
	struct spec *a = make(4, 8, true, 1), *b = make(4, 8, true, 2);
	size_t n;
	struct design_segment *x = order_of(a, &n), *y = order_of(a, &n), *z = order_of(b, &n);

	assert_memory_equal(x, y, n * sizeof(*x));
	assert_memory_not_equal(x, z, n * sizeof(*x));
	free(x);
	free(y);
	free(z);
	free(a);
	free(b);
}

/* Orders are stored nowhere: a later version must give the same for the same seed. */
static void test_order_is_kept_over_versions(void **state)
{
	static const size_t expected[] = {1, 2, 0, 0, 2, 1, 2, 1, 0, 0, 1, 2, 0, 2, 1, 1, 2, 0};
	struct spec *spec = make(3, 3, true, 7);
	size_t n;
	struct design_segment *order = order_of(spec, &n);

	assert_int_equal(n, sizeof(expected) / sizeof(expected[0]));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(order[i].arm, expected[i]);
	free(order);
	free(spec);
}

static void test_all_orders_occur(void **state)
{
	struct spec *spec = make(3, 600, false, 11);
	size_t n, counts[27] = {0}, kinds = 0;
	struct design_segment *order = order_of(spec, &n);

	for (size_t i = 0; i < n; i += 3)
		counts[order[i].arm * 9 + order[i + 1].arm * 3 + order[i + 2].arm]++;
	for (size_t i = 0; i < 27; i++) {
		kinds += counts[i] > 0;
		assert_true(counts[i] == 0 || (counts[i] > 60 && counts[i] < 140));
	}
	assert_int_equal(kinds, 6);
	free(order);
	free(spec);
}

static void test_distance(void **state)
{
	char longest[SUGGEST_WORD_MAX + 2];

	assert_int_equal(suggest_distance("", ""), 0);
	assert_int_equal(suggest_distance("abc", ""), 3);
	assert_int_equal(suggest_distance("submit", "submit"), 0);
	assert_int_equal(suggest_distance("sumbit", "submit"), 1);
	assert_int_equal(suggest_distance("kitten", "sitting"), 3);
	assert_int_equal(suggest_distance("Seed", "seed"), 0);
	assert_int_equal(suggest_distance("ca", "abc"), 3);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(suggest_distance(longest, "a"), SUGGEST_WORD_MAX + 1);
	longest[SUGGEST_WORD_MAX] = '\0';
	assert_int_equal(suggest_distance(longest, "a"), SUGGEST_WORD_MAX - 1);
}

static void test_nearest(void **state)
{
	static const char *const verbs[] = {"submit", "status", "list", "show", "follow", "wait"};

	assert_string_equal(suggest_nearest("sumbit", verbs, 6), "submit");
	assert_string_equal(suggest_nearest("stats", verbs, 6), "status");
	assert_string_equal(suggest_nearest("wiat", verbs, 6), "wait");
	assert_string_equal(suggest_nearest("stat", verbs, 6), "status");
	assert_string_equal(suggest_nearest("FOLL", verbs, 6), "follow");
	assert_null(suggest_nearest("explode", verbs, 6));
	assert_null(suggest_nearest("", verbs, 6));
	assert_null(suggest_nearest("xy", verbs, 6));
	assert_null(suggest_nearest("submit", verbs, 0));
}

TEST_MAIN(cmocka_unit_test(test_without_arms), cmocka_unit_test(test_two_arms_are_abba_or_baab),
	cmocka_unit_test(test_every_arm_once_per_half), cmocka_unit_test(test_seed_decides),
	cmocka_unit_test(test_order_is_kept_over_versions), cmocka_unit_test(test_all_orders_occur),
	cmocka_unit_test(test_distance), cmocka_unit_test(test_nearest))
