/*
 * Every collective, on worlds of 1 to 4 processes, against sums taken in rank order in each
 * process; the same bits however a buffer is cut; bytes as the plan says; many small ones from two
 * threads.
 */
#include <math.h>

#include "engine/train/plan.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/test.h"

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "rank %d of %d: line %d: %s\n", self->rank, self->world,   \
				__LINE__, #what);                                                  \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static const int64_t wait_ns = INT64_C(60000000000);

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Magnitudes from 2^-12 to 2^12, both signs: sums of these depend on their order. */
static double number(uint64_t seed, int rank, int64_t i)
{
	uint64_t h = mix(seed * 1000003 + (uint64_t)rank * 101 + mix((uint64_t)i));
	double value = (1.0 + (double)(h >> 12) * 0x1p-52) * (double)(1 << h % 25) * 0x1p-12;

	return h >> 11 & 1 ? -value : value;
}

static float *make_floats(uint64_t seed, int rank, int64_t n)
{
	float *x = malloc((size_t)n * sizeof *x);

	for (int64_t i = 0; x != NULL && i < n; i++)
		x[i] = (float)number(seed, rank, i);
	return x;
}

static float *sum_floats(uint64_t seed, int world, int64_t n)
{
	float *sum = make_floats(seed, 0, n);

	for (int r = 1; sum != NULL && r < world; r++)
		for (int64_t i = 0; i < n; i++)
			sum[i] += (float)number(seed, r, i);
	return sum;
}

static int64_t integer(uint64_t seed, int rank, int64_t i)
{
	return (int64_t)mix(seed + mix((uint64_t)rank) + (uint64_t)i * 7);
}

static bool sync_all(struct ranks_self *self)
{
	return k_stream_sync(self->comm, wait_ns) == 0 &&
		k_stream_sync(self->compute, wait_ns) == 0 && collectives_error(self->c) == NULL;
}

/* Elements of one slice: below, at and above what travels in the head, and one piece; several
 * pieces. */
static const int64_t slices[] = {1, 7, 2039, 2040, 2041, 65536, 65537, 3 * 65536 + 5};
enum { N_SLICES = sizeof slices / sizeof *slices };

static int check_reduce_scatter(
	struct ranks_self *self, int64_t slice, uint64_t seed, struct k_stream *s)
{
	int64_t n = slice * self->world, first = slice * self->rank;
	float *x = make_floats(seed, self->rank, n), *sum = sum_floats(seed, self->world, n);

	CHECK(x != NULL && sum != NULL);
	collectives_reduce_scatter(self->all, x, n, s);
	CHECK(sync_all(self));
	CHECK(memcmp(x + first, sum + first, (size_t)slice * sizeof *x) == 0);
	free(sum);
	free(x);
	return 0;
}

static int check_all_gather(
	struct ranks_self *self, int64_t slice, uint64_t seed, struct k_stream *s)
{
	int64_t n = slice * self->world;
	float *x = calloc((size_t)n, sizeof *x), *all = make_floats(seed, 5, n);

	CHECK(x != NULL && all != NULL);
	memcpy(x + slice * self->rank, all + slice * self->rank, (size_t)slice * sizeof *x);
	collectives_all_gather(self->all, x, n, s);
	CHECK(sync_all(self));
	CHECK(memcmp(x, all, (size_t)n * sizeof *x) == 0);
	free(all);
	free(x);
	return 0;
}

static int check_all_reduce(struct ranks_self *self, int64_t n, uint64_t seed, struct k_stream *s)
{
	float *x = make_floats(seed, self->rank, n), *sum = sum_floats(seed, self->world, n);

	CHECK(x != NULL && sum != NULL);
	collectives_all_reduce(self->all, x, n, COLLECTIVES_ELEM, COLLECTIVES_SUM, s);
	CHECK(sync_all(self));
	CHECK(memcmp(x, sum, (size_t)n * sizeof *x) == 0);
	free(sum);
	free(x);
	return 0;
}

static int elements(struct ranks_self *self)
{
	static const int64_t odd[] = {1, 2, 3, 5, 8191, 8193, (1 << 18) + 3};

	for (int i = 0; i < N_SLICES; i++) {
		struct k_stream *s = i % 2 ? self->comm : self->compute;

		if (check_reduce_scatter(self, slices[i], 10 + (uint64_t)i, s) != 0 ||
			check_all_gather(self, slices[i], 30 + (uint64_t)i, s) != 0)
			return 1;
	}
	for (int i = 0; i < 7; i++)
		if (check_all_reduce(self, odd[i], 50 + (uint64_t)i,
			    i % 2 ? self->comm : self->compute) != 0)
			return 1;
	return 0;
}

static int check_integers(struct ranks_self *self, int64_t n, enum collectives_op op)
{
	int64_t *x = malloc((size_t)n * sizeof *x);

	CHECK(x != NULL);
	for (int64_t i = 0; i < n; i++)
		x[i] = integer(3, self->rank, i);
	collectives_all_reduce(self->all, x, n, COLLECTIVES_INT64, op, self->compute);
	CHECK(sync_all(self));
	for (int64_t i = 0; i < n; i++) {
		uint64_t sum = (uint64_t)integer(3, 0, i);
		int64_t max = integer(3, 0, i);

		for (int r = 1; r < self->world; r++) {
			sum += (uint64_t)integer(3, r, i);
			max = integer(3, r, i) > max ? integer(3, r, i) : max;
		}
		CHECK(x[i] == (op == COLLECTIVES_MAX ? max : (int64_t)sum));
	}
	free(x);
	return 0;
}

static int check_doubles(struct ranks_self *self, int64_t n, enum collectives_op op)
{
	double *x = malloc((size_t)n * sizeof *x);

	CHECK(x != NULL);
	for (int64_t i = 0; i < n; i++)
		x[i] = number(4, self->rank, i);
	collectives_all_reduce(self->all, x, n, COLLECTIVES_DOUBLE, op, self->comm);
	CHECK(sync_all(self));
	for (int64_t i = 0; i < n; i++) {
		double sum = number(4, 0, i), max = sum;

		for (int r = 1; r < self->world; r++) {
			sum += number(4, r, i);
			max = number(4, r, i) > max ? number(4, r, i) : max;
		}
		CHECK(x[i] == (op == COLLECTIVES_MAX ? max : sum));
	}
	free(x);
	return 0;
}

/* A nan on any rank is the maximum everywhere. */
static int check_nan(struct ranks_self *self)
{
	double x = self->rank == self->world / 2 ? (double)NAN : (double)self->rank;

	collectives_all_reduce(
		self->all, &x, 1, COLLECTIVES_DOUBLE, COLLECTIVES_MAX, self->compute);
	CHECK(sync_all(self));
	CHECK(self->world == 1 || x != x);
	return 0;
}

static int numbers(struct ranks_self *self)
{
	/* 1020 are the most that go in one round */
	static const int64_t counts[] = {1, K_EXACT_LIMBS + 1, 1020, 1021, 100003};

	for (int i = 0; i < 5; i++)
		for (int op = COLLECTIVES_SUM; op <= COLLECTIVES_MAX; op++)
			if (check_integers(self, counts[i], (enum collectives_op)op) != 0 ||
				check_doubles(self, counts[i], (enum collectives_op)op) != 0)
				return 1;
	return check_nan(self);
}

static int bytes(struct ranks_self *self)
{
	static const size_t sizes[] = {1, 8160, 8161, 3 * 1024 * 1024 + 1};

	for (int i = 0; i < 4; i++) {
		size_t n = sizes[i], world = (size_t)self->world;
		unsigned char *out = calloc(world, n), *in = malloc(n);

		CHECK(out != NULL && in != NULL);
		for (int root = 0; root < self->world; root++) {
			memset(in, self->rank + 1, n);
			collectives_broadcast(self->all, in, n, root, self->comm);
			CHECK(sync_all(self));
			for (size_t k = 0; k < n; k++)
				CHECK(in[k] == root + 1);
		}
		memset(in, self->rank + 1, n);
		collectives_gather_all(self->all, out, in, n, self->compute);
		collectives_barrier(self->all, self->comm);
		CHECK(sync_all(self));
		for (size_t k = 0; k < n * world; k++)
			CHECK(out[k] == k / n + 1);
		free(in);
		free(out);
	}
	return 0;
}

/* All-reduce by buckets of a given size, as a plan does it: slice r of every bucket is rank r's. */
static int reduce_in_buckets(struct ranks_self *self, float *x, int64_t n, int64_t bucket)
{
	for (int64_t at = 0; at < n; at += bucket)
		collectives_reduce_scatter(
			self->all, x + at, n - at < bucket ? n - at : bucket, self->comm);
	for (int64_t at = 0; at < n; at += bucket)
		collectives_all_gather(
			self->all, x + at, n - at < bucket ? n - at : bucket, self->comm);
	CHECK(sync_all(self));
	return 0;
}

static int buckets(struct ranks_self *self)
{
	enum { N = 12 * 20000 };
	static const int64_t cuts[] = {N, 12, 480, 12 * 4097, 12 * 10000};
	float *sum = sum_floats(77, self->world, N);

	CHECK(sum != NULL);
	for (int i = 0; i < 5; i++) {
		int64_t n = cuts[i] == 12 ? 1200 : N; /* the smallest buckets on a part of it */
		float *x = make_floats(77, self->rank, n);

		CHECK(x != NULL);
		CHECK(reduce_in_buckets(self, x, n, cuts[i]) == 0);
		CHECK(memcmp(x, sum, (size_t)n * sizeof *x) == 0);
		free(x);
	}
	free(sum);
	return 0;
}

/* A step of each kind sends what plan_step_traffic says. */
static int traffic(struct ranks_self *self)
{
	char error[256];
	struct plan plan;
	struct plan_traffic t;
	struct collectives_bytes sent[3];
	struct k_range b;
	double few[3] = {1, 2, 3};
	float *x;

	CHECK(plan_make(&plan, 300001, self->world, 50000, 50000, error, sizeof error) == 0);
	x = make_floats(1, self->rank, plan.arena_elems);
	CHECK(x != NULL);
	collectives_count(self->all, &sent[0]);
	for (int64_t i = 0; i < plan.n_reduce; i++) {
		b = plan_reduce_bucket(&plan, i);
		collectives_reduce_scatter(self->all, x + b.first, b.n, self->comm);
	}
	for (int64_t i = 0; i < plan.n_reduce; i++) {
		b = plan_reduce_bucket(&plan, i);
		collectives_all_gather(self->all, x + b.first, b.n, self->comm);
	}
	CHECK(sync_all(self));
	collectives_count(self->all, &sent[1]);
	for (int64_t i = 0; i < plan.n_reduce; i++) {
		b = plan_reduce_bucket(&plan, i);
		collectives_all_reduce(
			self->all, x + b.first, b.n, COLLECTIVES_ELEM, COLLECTIVES_SUM, self->comm);
	}
	/* what the engine adds up for itself is no part of the plan */
	collectives_all_reduce(self->all, few, 3, COLLECTIVES_DOUBLE, COLLECTIVES_SUM, self->comm);
	CHECK(sync_all(self));
	collectives_count(self->all, &sent[2]);
	CHECK(sent[2].other - sent[1].other == (int64_t)sizeof few * (self->world - 1));
	t = plan_step_traffic(&plan, 1, 1);
	CHECK(sent[1].reduce_scatter - sent[0].reduce_scatter == t.reduce_scatter_elems * 4);
	CHECK(sent[1].all_gather - sent[0].all_gather == t.all_gather_elems * 4);
	CHECK(sent[1].all_reduce == sent[0].all_reduce);
	t = plan_step_traffic(&plan, 0, 1);
	CHECK(sent[2].all_reduce - sent[1].all_reduce == t.all_reduce_elems * 4);
	CHECK(sent[2].reduce_scatter == sent[1].reduce_scatter);
	free(x);
	return 0;
}

/* Small collectives on the communication stream and from the caller, unsynchronised with each
 * other. */
static int interleaved(struct ranks_self *self)
{
	enum { ROUNDS = 200, N = 48 };
	static float x[ROUNDS][N];
	int64_t flags[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		flags[i] = i == 140 && self->rank == self->world - 1;
		for (int k = 0; k < N; k++)
			x[i][k] = (float)number((uint64_t)i, self->rank, k);
		collectives_reduce_scatter(self->all, x[i], N, self->comm);
		collectives_all_gather(self->all, x[i], N, self->comm);
		collectives_all_reduce(self->all, &flags[i], 1, COLLECTIVES_INT64, COLLECTIVES_MAX,
			i % 3 ? self->comm : self->compute);
		if (i % 7 == 0)
			collectives_barrier(self->all, self->compute);
	}
	CHECK(sync_all(self));
	for (int i = 0; i < ROUNDS; i++) {
		float *sum = sum_floats((uint64_t)i, self->world, N);

		CHECK(sum != NULL && memcmp(sum, x[i], sizeof x[i]) == 0);
		CHECK(flags[i] == (i == 140));
		free(sum);
	}
	return 0;
}

/* The first two of the ranks by themselves, and all of them, in turn. */
static int groups(struct ranks_self *self)
{
	struct collectives_group *two = NULL, *again = NULL;
	int64_t x = self->rank + 1;
	int status = collectives_group(self->c, 2, &two);

	CHECK(collectives_group(self->c, self->world + 1, &again) == -EINVAL);
	CHECK(status == (self->rank < 2 ? 0 : -EINVAL));
	if (self->rank < 2) {
		CHECK(collectives_group(self->c, 2, &again) == 0 && again == two);
		CHECK(collectives_world(two) == 2 && collectives_rank(two) == self->rank);
	}
	for (int i = 0; i < 20; i++) {
		x = self->rank + 1;
		for (int k = 0; k < 3 && two != NULL; k++) {
			int64_t y = self->rank + i;

			collectives_all_reduce(
				two, &y, 1, COLLECTIVES_INT64, COLLECTIVES_SUM, self->comm);
			CHECK(sync_all(self));
			CHECK(y == 2 * i + 1);
		}
		collectives_all_reduce(
			self->all, &x, 1, COLLECTIVES_INT64, COLLECTIVES_SUM, self->compute);
		CHECK(sync_all(self));
		CHECK(x == self->world * (self->world + 1) / 2);
	}
	return 0;
}

/* test_NAME: the function in worlds of least to 4 ranks. */
#define TEST(name, least)                                                                          \
	static void test_##name(void **state)                                                      \
	{                                                                                          \
		for (int world = least; world <= 4; world++)                                       \
			assert_int_equal(ranks_run_well(world, name, NULL, NULL, 0), 0);           \
	}

TEST(elements, 1)
TEST(numbers, 1)
TEST(bytes, 1)
TEST(buckets, 1)
TEST(traffic, 1)
TEST(interleaved, 2)
TEST(groups, 2)

/* What the comparisons above rest on: the numbers' sums differ when taken in another order. */
static void test_order_matters(void **state)
{
	float *a = make_floats(9, 0, 1000), *b = make_floats(9, 1, 1000),
	      *c = make_floats(9, 2, 1000);
	int differ = 0;

	for (int i = 0; i < 1000; i++) {
		volatile float forward = a[i] + b[i], backward = c[i] + b[i];

		forward += c[i];
		backward += a[i];
		differ += forward != backward;
	}
	assert_true(differ > 100);
	free(c);
	free(b);
	free(a);
}

TEST_MAIN(cmocka_unit_test(test_order_matters), cmocka_unit_test(test_elements),
	cmocka_unit_test(test_numbers), cmocka_unit_test(test_bytes),
	cmocka_unit_test(test_buckets), cmocka_unit_test(test_traffic),
	cmocka_unit_test(test_interleaved), cmocka_unit_test(test_groups))
