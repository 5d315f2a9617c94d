#include "engine/train/arena.h"
#include "tests/unit/engine/gpt2_shape.h"
#include "tests/unit/test.h"

static struct spec_model gpt2(bool tied)
{
	struct spec_model model = gpt2_shape();

	model.tied_head = tied;
	return model;
}

static void test_published_counts(void **state)
{
	struct spec_model model = gpt2(true);
	struct arena a;
	int64_t block;

	arena_init(&a, &model);
	assert_int_equal(a.model_params, 124439808);
	assert_int_equal(a.vocab_padded, 50304);
	assert_int_equal(a.param_elems, 124475904); /* the alignment of tensors adds nothing here */
	block = arena_find(&a, ARENA_FCPROJ_W, 4)->first - arena_find(&a, ARENA_FCPROJ_W, 5)->first;
	assert_int_equal(block, 7087872);
	arena_finish(&a);

	model = gpt2(false);
	arena_init(&a, &model);
	assert_int_equal(a.model_params, 163037184);
	assert_int_equal(a.param_elems, 124475904 + 50304 * 768);
	arena_finish(&a);
}

static void test_vocabulary_padding(void **state)
{
	assert_int_equal(arena_vocab_padded(50257), 50304);
	assert_int_equal(arena_vocab_padded(50304), 50304);
	assert_int_equal(arena_vocab_padded(1), 128);
	assert_int_equal(arena_vocab_padded(128), 128);
	assert_int_equal(arena_vocab_padded(129), 256);
}

/* entries follow one another without overlap, with less than 64 elements between them */
static void check_layout(const struct arena *a)
{
	int64_t next = 0;
	int64_t params = 0;

	for (int64_t i = 0; i < a->n_entries; i++) {
		const struct arena_entry *e = &a->entries[i];
		int64_t n = e->rows * e->cols;

		assert_int_equal(e->first % 64, 0);
		assert_true(e->first >= next && e->first - next < 64);
		assert_true(n > 0);
		assert_ptr_equal(arena_find(a, e->tensor, e->layer), e);
		next = e->first + n;
		params += n;
		if (e->tensor == ARENA_WTE || e->tensor == ARENA_HEAD) {
			assert_int_equal(e->rows, a->vocab_padded);
			params -= (a->vocab_padded - a->vocab) * e->cols;
		}
	}
	assert_true(a->param_elems >= next && a->param_elems - next < 64);
	assert_int_equal(params, a->model_params);
}

static void test_every_element_once(void **state)
{
	static const int64_t widths[] = {1, 3, 63, 64, 65, 100, 768};
	int64_t layers;
	int tied;

	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
		for (layers = 1; layers <= 4; layers++) {
			for (tied = 0; tied <= 1; tied++) {
				struct spec_model model = {.n_layer = layers,
					.n_head = 1,
					.n_embd = widths[w],
					.vocab_size = 257,
					.n_positions = 33,
					.tied_head = tied != 0};
				struct arena a;

				arena_init(&a, &model);
				assert_int_equal(
					a.n_entries, layers * ARENA_PER_BLOCK + (tied ? 4 : 5));
				check_layout(&a);
				arena_finish(&a);
			}
		}
	}
}

static void test_order_of_completion(void **state)
{
	struct spec_model model = gpt2(false);
	struct arena a;
	int64_t layer;

	arena_init(&a, &model);
	assert_int_equal(a.entries[0].tensor, ARENA_HEAD);
	assert_int_equal(a.entries[a.n_entries - 1].tensor, ARENA_WTE);
	assert_int_equal(arena_complete_after(&a, 12), arena_find(&a, ARENA_FCPROJ_W, 11)->first);
	assert_int_equal(arena_complete_after(&a, 12), 50304 * 768 + 2 * 768);
	for (layer = 12; layer > 0; layer--)
		assert_int_equal(
			arena_complete_after(&a, layer - 1) - arena_complete_after(&a, layer),
			7087872);
	assert_int_equal(arena_complete_after(&a, 0), arena_find(&a, ARENA_WPE, 0)->first);
	assert_int_equal(arena_complete_after(&a, -1), a.param_elems);
	/* inside a block, what comes last in forward comes first */
	assert_true(
		arena_find(&a, ARENA_FCPROJ_W, 3)->first < arena_find(&a, ARENA_QKV_W, 3)->first);
	assert_true(arena_find(&a, ARENA_QKV_W, 3)->first < arena_find(&a, ARENA_LN1_W, 3)->first);
	arena_finish(&a);

	model = gpt2(true);
	arena_init(&a, &model);
	assert_null(arena_find(&a, ARENA_HEAD, 0));
	assert_int_equal(arena_complete_after(&a, 12), 2 * 768);
	arena_finish(&a);
}

static void test_names(void **state)
{
	assert_string_equal(arena_tensor_name(ARENA_QKV_W), "attn.c_attn.weight");
	for (int t = 0; t <= ARENA_HEAD; t++) {
		assert_non_null(arena_tensor_name((enum arena_tensor)t));
		for (int u = 0; u < t; u++)
			assert_string_not_equal(arena_tensor_name((enum arena_tensor)t),
				arena_tensor_name((enum arena_tensor)u));
	}
}

TEST_MAIN(cmocka_unit_test(test_published_counts), cmocka_unit_test(test_vocabulary_padding),
	cmocka_unit_test(test_every_element_once), cmocka_unit_test(test_order_of_completion),
	cmocka_unit_test(test_names))
