/* The next token: the most likely one, or drawn from some as often as they are likely. */
#include <math.h>

#include "engine/sample.h"
#include "tests/unit/test.h"

enum { VOCAB = 5, DRAWS = 20000 };
/* Probabilities 1/16, 8/16, 4/16, 2/16, 1/16. */
static const float logits[VOCAB] = {0, 2.0794415F, 1.3862944F, 0.6931472F, 0};

static void test_greedy(void **state)
{
	struct sample s = {.random = 7};
	const float equal[] = {1, 3, 3};
	float scratch[VOCAB];
	double log_prob;

	assert_int_equal(sample_next(&s, logits, VOCAB, scratch, &log_prob), 1);
	assert_true(fabs(log_prob - log(0.5)) < 1e-6);
	assert_int_equal(sample_next(&s, equal, 3, scratch, &log_prob), 1);
}

static void count(struct sample *s, int64_t counts[VOCAB])
{
	float scratch[VOCAB];
	double log_prob;

	for (int i = 0; i < VOCAB; i++)
		counts[i] = 0;
	for (int i = 0; i < DRAWS; i++) {
		const int64_t token = sample_next(s, logits, VOCAB, scratch, &log_prob);

		assert_in_range(token, 0, VOCAB - 1);
		assert_true(fabs(log_prob - ((double)logits[token] - log(16))) < 1e-6);
		counts[token]++;
	}
}

/* Five deviations of a binomial distribution around its mean. */
static void assert_likely(int64_t found, double p)
{
	assert_true(fabs((double)found - DRAWS * p) < 5 * sqrt(DRAWS * p * (1 - p)) + 1e-9);
}

static void test_draws(void **state)
{
	struct sample s = {.temperature = 1, .random = 1};
	int64_t counts[VOCAB];

	count(&s, counts);
	assert_likely(counts[0], 1.0 / 16);
	assert_likely(counts[1], 8.0 / 16);
	assert_likely(counts[2], 4.0 / 16);
	s = (struct sample){.temperature = 0.5, .random = 2}; /* squares: 1 64 16 4 1 of 86 */
	count(&s, counts);
	assert_likely(counts[1], 64.0 / 86);
	assert_likely(counts[3], 4.0 / 86);
}

static void test_top_k(void **state)
{
	struct sample s = {.temperature = 1, .top_k = 2, .random = 3};
	int64_t counts[VOCAB];

	count(&s, counts);
	assert_likely(counts[1], 8.0 / 12);
	assert_likely(counts[2], 4.0 / 12);
	assert_int_equal(counts[0] + counts[3] + counts[4], 0);
	s = (struct sample){.temperature = 1, .top_k = 1, .random = 3};
	count(&s, counts);
	assert_int_equal(counts[1], DRAWS);
	s = (struct sample){.temperature = 1, .top_k = 99, .random = 3};
	count(&s, counts);
	assert_likely(counts[0], 1.0 / 16);
}

static void test_seed(void **state)
{
	struct sample a = {.temperature = 1, .random = 5}, b = a, c = a;
	float scratch[VOCAB];
	double log_prob;
	int differ = 0;

	c.random = 6;
	for (int i = 0; i < 100; i++) {
		const int64_t token = sample_next(&a, logits, VOCAB, scratch, &log_prob);

		assert_int_equal(sample_next(&b, logits, VOCAB, scratch, &log_prob), token);
		differ += sample_next(&c, logits, VOCAB, scratch, &log_prob) != token;
	}
	assert_true(differ > 0);
}

static void test_not_finite(void **state)
{
	const float bad[2][3] = {{0, NAN, 1}, {INFINITY, 0, 1}};
	struct sample s = {0};
	float scratch[3];
	double log_prob;

	for (int i = 0; i < 2; i++)
		assert_int_equal(sample_next(&s, bad[i], 3, scratch, &log_prob), -1);
}

TEST_MAIN(cmocka_unit_test(test_greedy), cmocka_unit_test(test_draws), cmocka_unit_test(test_top_k),
	cmocka_unit_test(test_seed), cmocka_unit_test(test_not_finite))
