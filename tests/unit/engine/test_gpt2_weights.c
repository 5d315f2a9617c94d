/*
 * Hugging Face's GPT-2 files in the arena: every value in its place, transposed where Conv1D has
 * it so, whatever the prefix, the type and the head; and which files are refused. That transformers
 * means the same by its names: tests/peers.
 */
#include "engine/checkpoint/gpt2_weights.h"
#include "tests/unit/test.h"

enum { C = 4, VOCAB = 10, POSITIONS = 6, TENSORS_MAX = 64 };

struct file {
	char path[64], names[TENSORS_MAX][80];
	struct safetensors_tensor tensor[TENSORS_MAX];
	float first[TENSORS_MAX]; /* the value of its first element; the others count up */
	size_t n;
};

static char error[1024];
static const struct data_roots anywhere = {.n = 0};

static struct spec_model model(bool tied)
{
	return (struct spec_model){.n_layer = 2,
		.n_head = 2,
		.n_embd = C,
		.vocab_size = VOCAB,
		.n_positions = POSITIONS,
		.tied_head = tied};
}

static struct safetensors_tensor *add(
	struct file *f, const char *prefix, const char *name, int64_t rows, int64_t cols)
{
	struct safetensors_tensor *t = &f->tensor[f->n];

	snprintf(f->names[f->n], sizeof(f->names[0]), "%s%s", prefix, name);
	*t = (struct safetensors_tensor){
		.n_dims = rows > 0 ? 2 : 1, .dim = {rows > 0 ? rows : cols, rows > 0 ? cols : 0}};
	f->first[f->n] = (float)(1000 * (f->n + 1));
	f->n++;
	return t;
}

/* As transformers saves it, block after block. */
static struct file gpt2(const char *prefix, int layers)
{
	static const struct {
		const char *name;
		int64_t rows, cols;
	} block[] = {
		{"ln_1.weight", 0, C},
		{"ln_1.bias", 0, C},
		{"attn.c_attn.weight", C, 3 * C},
		{"attn.c_attn.bias", 0, 3 * C},
		{"attn.c_proj.weight", C, C},
		{"attn.c_proj.bias", 0, C},
		{"ln_2.weight", 0, C},
		{"ln_2.bias", 0, C},
		{"mlp.c_fc.weight", C, 4 * C},
		{"mlp.c_fc.bias", 0, 4 * C},
		{"mlp.c_proj.weight", 4 * C, C},
		{"mlp.c_proj.bias", 0, C},
	};
	struct file f = {0};
	char name[64];

	add(&f, prefix, "wte.weight", VOCAB, C);
	add(&f, prefix, "wpe.weight", POSITIONS, C);
	for (int layer = 0; layer < layers; layer++)
		for (size_t i = 0; i < sizeof(block) / sizeof(block[0]); i++) {
			snprintf(name, sizeof(name), "h.%d.%s", layer, block[i].name);
			add(&f, prefix, name, block[i].rows, block[i].cols);
		}
	add(&f, prefix, "ln_f.weight", 0, C);
	add(&f, prefix, "ln_f.bias", 0, C);
	return f;
}

static int64_t elems(const struct safetensors_tensor *t)
{
	return t->n_dims == 1 ? t->dim[0] : t->dim[0] * t->dim[1];
}

static void write_file(struct file *f)
{
	float values[256];
	char out[1024], *header;
	size_t n;
	int fd;

	snprintf(f->path, sizeof(f->path), "/tmp/gpt2d-weights-XXXXXX");
	fd = mkstemp(f->path);
	assert_true(fd >= 0);
	for (size_t i = 0; i < f->n; i++)
		f->tensor[i].name = f->names[i];
	header = safetensors_header(f->tensor, f->n, &n);
	assert_int_equal(write(fd, header, n), n);
	free(header);
	for (size_t i = 0; i < f->n; i++) {
		const struct safetensors_tensor *t = &f->tensor[i];

		n = (size_t)(elems(t) * safetensors_elem_bytes(t->dtype));
		for (int64_t j = 0; j < elems(t); j++)
			values[j] = f->first[i] + (float)j;
		safetensors_convert(t->dtype, values, elems(t), out);
		assert_int_equal(write(fd, out, n), n);
	}
	close(fd);
}

static int put(void *arg, int64_t first, const float *values, int64_t n)
{
	memcpy((float *)arg + first, values, (size_t)n * sizeof(*values));
	return 0;
}

/* The arena as the file fills it; NULL: refused. Removes the file. */
static float *load(struct file *f, const struct arena *a)
{
	float *values = calloc((size_t)a->param_elems, sizeof(*values));
	const struct gpt2_weights_target to = {put, values};
	struct gpt2_weights w;
	int rc;

	assert_non_null(values);
	write_file(f);
	error[0] = '\0';
	rc = gpt2_weights_open(&w, a, f->path, &anywhere, error, sizeof(error));
	if (rc == 0) {
		assert_string_equal(w.identity.path, f->path);
		assert_int_equal(gpt2_weights_load(&w, &to, error, sizeof(error)), 0);
		gpt2_weights_close(&w);
	}
	unlink(f->path);
	if (rc == 0)
		return values;
	assert_non_null(strstr(error, f->path));
	free(values);
	return NULL;
}

static float first_of(const struct file *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++) {
		const char *own = f->names[i];

		if (strcmp(own, name) == 0 ||
			(strncmp(own, "transformer.", 12) == 0 && strcmp(own + 12, name) == 0))
			return f->first[i];
	}
	return -1;
}

static void check_values(const struct file *f, const struct arena *a, const float *values)
{
	for (int64_t i = 0; i < a->n_entries; i++) {
		const struct arena_entry *e = &a->entries[i];
		const bool turned = e->tensor == ARENA_QKV_W || e->tensor == ARENA_PROJ_W ||
			e->tensor == ARENA_FC_W || e->tensor == ARENA_FCPROJ_W;
		char name[64];
		float first;

		snprintf(
			name, sizeof(name), "h.%d.%s", (int)e->layer, arena_tensor_name(e->tensor));
		if (e->tensor >= ARENA_PER_BLOCK)
			snprintf(name, sizeof(name), "%s", arena_tensor_name(e->tensor));
		first = first_of(f, name);
		if (first < 0 && e->tensor == ARENA_HEAD)
			first = first_of(f, "wte.weight");
		assert_true(first > 0);
		for (int64_t r = 0; r < e->rows; r++)
			for (int64_t c = 0; c < e->cols; c++) {
				const int64_t j = turned ? c * e->rows + r : r * e->cols + c;
				const bool padding = e->rows == a->vocab_padded && r >= VOCAB;
				const float found = values[e->first + r * e->cols + c];

				assert_true(found == (padding ? 0 : first + (float)j));
			}
	}
}

static void accepted(struct file f, bool tied)
{
	const struct spec_model m = model(tied);
	struct arena a;
	float *values;

	arena_init(&a, &m);
	values = load(&f, &a);
	if (!values)
		fail_msg("refused: %s", error);
	check_values(&f, &a, values);
	free(values);
	arena_finish(&a);
}

static void test_accepted(void **state)
{
	struct file f = gpt2("", 2);

	accepted(f, true);
	accepted(gpt2("transformer.", 2), true);
	accepted(gpt2("transformer.", 2), false); /* the head begins as a copy */
	/* as transformers 4.29 and OpenAI's own upload have it */
	add(&f, "", "h.0.attn.bias", 3, 3);
	add(&f, "", "h.1.attn.masked_bias", 0, 1);
	accepted(f, true);
	add(&f, "", "lm_head.weight", VOCAB, C);
	accepted(f, false);
	f.first[f.n - 1] = f.first[0];
	accepted(f, true); /* tied, and saved all the same */
}

static void test_types(void **state)
{
	struct file f = gpt2("transformer.", 2);

	for (size_t i = 0; i < f.n; i++) {
		f.tensor[i].dtype = i % 2 ? SAFETENSORS_BF16 : SAFETENSORS_F16;
		f.first[i] = (float)(2 + i); /* whole numbers to 256 are exact in both */
	}
	accepted(f, true);
}

static void refused(struct file f, bool tied, const char *why)
{
	const struct spec_model m = model(tied);
	struct arena a;

	arena_init(&a, &m);
	assert_null(load(&f, &a));
	if (!strstr(error, why))
		fail_msg("\"%s\" is not in: %s", why, error);
	arena_finish(&a);
}

static void test_refused(void **state)
{
	struct file f = gpt2("", 2);

	f.tensor[0].dim[0] = VOCAB + 1;
	refused(f, true, "tensor wte.weight: shape [11, 4], the spec's model needs [10, 4]");
	f = gpt2("transformer.", 2);
	f.tensor[4].dim[0] = 3 * C;
	f.tensor[4].dim[1] = C;
	refused(f, true,
		"tensor transformer.h.0.attn.c_attn.weight: shape [12, 4], the spec's "
		"model needs [4, 12]");
	refused(gpt2("", 1), true, "tensor h.1.mlp.c_proj.weight is missing");
	refused(gpt2("", 3), true, "tensor h.2.");
	f = gpt2("", 2);
	add(&f, "", "score.weight", 2, C);
	refused(f, true, "tensor score.weight: the spec's model (n_layer 2) has no such tensor");
	f = gpt2("", 2);
	add(&f, "", "lm_head.weight", VOCAB, C);
	refused(f, true, "differs from wte.weight: set model.tied_head to false");
	f = gpt2("", 2);
	add(&f, "", "lm_head.weight", VOCAB + 1, C);
	refused(f, false, "tensor lm_head.weight: shape [11, 4]");
}

static void test_places(void **state)
{
	const struct data_roots roots = {.path = {"/nonexistent-root"}, .n = 1};
	const struct spec_model m = model(true);
	struct gpt2_weights w;
	struct arena a;

	arena_init(&a, &m);
	assert_int_equal(
		gpt2_weights_open(&w, &a, "/etc/passwd", &roots, error, sizeof(error)), -EACCES);
	assert_non_null(strstr(error, "not below a data root"));
	assert_int_equal(gpt2_weights_open(&w, &a, "/nonexistent", &anywhere, error, sizeof(error)),
		-ENOENT);
	assert_int_equal(
		gpt2_weights_open(&w, &a, "/tmp", &anywhere, error, sizeof(error)), -EINVAL);
	assert_string_equal(
		error, "/tmp: is a folder (expected a file, such as model.safetensors in it)");
	arena_finish(&a);
}

TEST_MAIN(cmocka_unit_test(test_accepted), cmocka_unit_test(test_types),
	cmocka_unit_test(test_refused), cmocka_unit_test(test_places))
