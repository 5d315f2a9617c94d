/* The cache of captured steps: found by all bytes of the key, the longest unused one goes. */
#include "engine/train/graphs.h"
#include "tests/unit/test.h"

/* A graph is a number here; destroyed ones are counted. */
struct k_graph {
	int destroyed;
};

void k_graph_destroy(struct k_graph *g)
{
	if (g)
		g->destroyed++;
}

static struct graphs_key key_of(int64_t number)
{
	struct graphs_key key = {0};

	graphs_key_add(&key, &number, sizeof(number));
	return key;
}

static void found_by_its_key(void **state)
{
	const enum timeline_phase phases[] = {TIMELINE_FORWARD, TIMELINE_BACKWARD};
	struct k_graph one = {0}, two = {0};
	struct graphs_key a = key_of(1), b = key_of(2), longer = key_of(1);
	const struct graphs_entry *found;
	struct graphs g;

	graphs_init(&g);
	assert_null(graphs_find(&g, &a));
	assert_non_null(graphs_add(&g, &a, &one, phases, 2));
	assert_non_null(graphs_add(&g, &b, &two, NULL, 0));
	found = graphs_find(&g, &a);
	assert_non_null(found);
	assert_ptr_equal(found->graph, &one);
	assert_int_equal(found->n_phases, 2);
	assert_memory_equal(found->phases, phases, sizeof(phases));
	assert_ptr_equal(graphs_find(&g, &b)->graph, &two);
	graphs_key_add(&longer, "", 1);
	assert_null(graphs_find(&g, &longer));
	graphs_finish(&g);
	assert_int_equal(one.destroyed, 1);
	assert_int_equal(two.destroyed, 1);
}

static void the_longest_unused_goes(void **state)
{
	struct k_graph graph[GRAPHS_MAX + 1] = {{0}};
	struct graphs_key key;
	struct graphs g;

	graphs_init(&g);
	for (int i = 0; i < GRAPHS_MAX; i++) {
		key = key_of(i);
		assert_non_null(graphs_add(&g, &key, &graph[i], NULL, 0));
	}
	key = key_of(0);
	assert_non_null(graphs_find(&g, &key));
	key = key_of(GRAPHS_MAX);
	assert_non_null(graphs_add(&g, &key, &graph[GRAPHS_MAX], NULL, 0));
	for (int i = 0; i <= GRAPHS_MAX; i++) {
		key = key_of(i);
		assert_int_equal(graph[i].destroyed, i == 1);
		assert_true((graphs_find(&g, &key) == NULL) == (i == 1));
	}
	graphs_finish(&g);
}

static void a_key_may_be_too_long(void **state)
{
	unsigned char bytes[GRAPHS_KEY_BYTES] = {0};
	struct graphs_key key = {0};

	graphs_key_add(&key, bytes, sizeof(bytes));
	assert_true(graphs_key_fits(&key));
	graphs_key_add(&key, bytes, 1);
	assert_false(graphs_key_fits(&key));
	graphs_key_add(&key, bytes, 1);
	assert_false(graphs_key_fits(&key));
}

TEST_MAIN(cmocka_unit_test(found_by_its_key), cmocka_unit_test(the_longest_unused_goes),
	cmocka_unit_test(a_key_may_be_too_long))
