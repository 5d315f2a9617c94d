/* What a golden pair cannot show. Arguments: the folder of example specs, the manual page. */
#include <dirent.h>
#include <locale.h>

#include <jansson.h>

#include "proto/spec/spec.h"
#include "proto/spec/spec_json.h"
#include "proto/spec/spec_table.h"
#include "tests/unit/test.h"

static const char *examples, *manual;
static struct spec_errors errors;

static const char nano[] =
	"{\"model\": \"nano\", \"data\": {\"kind\": \"synthetic\"}, \"seq_len\": 64,"
	" \"train_micro_batch_size_per_gpu\": 4,"
	" \"work\": {\"optimizer_steps\": 10}%s}";

static int parse_with(const char *more, int world, struct spec **out)
{
	struct spec_options options = {.world = world, .base_dir = "/specs"};
	char text[4096];

	snprintf(text, sizeof(text), nano, more);
	return spec_parse(text, strlen(text), &options, out, &errors);
}

static void assert_same_specs(const struct spec *a, const struct spec *b)
{
	assert_memory_equal(a, b, offsetof(struct spec, arms));
	assert_memory_equal(a->arms, b->arms, a->n_arms * sizeof(*a->arms));
}

static char *slurp(const char *path, size_t *n)
{
	FILE *in = fopen(path, "r");
	char *text = calloc(1, SPEC_BYTES_MAX);

	assert_non_null(in);
	assert_non_null(text);
	*n = fread(text, 1, SPEC_BYTES_MAX, in);
	fclose(in);
	return text;
}

/* ---- the table ---- */

static void test_every_key_has_a_row(void **state)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];

		assert_non_null(row->key);
		assert_non_null(row->help);
		assert_ptr_equal(spec_table_find(row->key), row);
		assert_true(row->type != SPEC_TYPE_CHOICE || row->choices);
	}
	assert_null(spec_table_find("seq_le"));
}

/* Canonical order is table order, so an object's keys must not be interrupted. */
static void test_keys_of_an_object_stand_together(void **state)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		bool inside = true;

		if (row->type != SPEC_TYPE_OBJECT)
			continue;
		assert_true(i + 1 < SPEC_KEY_COUNT);
		assert_true(spec_table_inside(&spec_table[i + 1], row->key));
		for (size_t j = i + 1; j < SPEC_KEY_COUNT; j++) {
			bool below = !strncmp(spec_table[j].key, row->key, strlen(row->key)) &&
				spec_table[j].key[strlen(row->key)] == '.';

			assert_true(inside || !below);
			inside = below;
		}
	}
}

/* A default that its own row refuses would be dropped without a word. */
static void test_defaults_are_kept(void **state)
{
	struct spec *spec = NULL;
	const struct spec_config *c;

	assert_int_equal(parse_with("", 1, &spec), 0);
	c = &spec->arms[0].config;
	assert_string_equal(spec->name, "run");
	assert_string_equal(spec->arms[0].name, "run");
	assert_int_equal(spec->n_arms, 1);
	assert_false(spec->has_arms);
	assert_int_equal(spec->repetitions, 12);
	assert_true(spec->mirrored);
	assert_int_equal(c->seed, 1);
	assert_int_equal(c->reduce_bucket_elems, 500000000);
	assert_int_equal(c->allgather_bucket_elems, 500000000);
	assert_int_equal(c->fp16_skips_max, 50);
	assert_int_equal(c->data_synthetic_tokens, 1 << 20);
	assert_true(c->lr == 1e-3 && c->beta1 == 0.9 && c->beta2 == 0.999 && c->eps == 1e-8);
	assert_int_equal(c->decay, SPEC_DECAY_ALL);
	assert_int_equal(c->grad_dtype, SPEC_FP32);
	assert_string_equal(c->model.preset, "nano");
	assert_int_equal(spec_work_tokens(c), 10 * 4 * 64);
	spec_free(spec);
}

/* ---- parsing ---- */

static void test_examples_parse(void **state)
{
	struct spec_options options = {.world = 4, .base_dir = "/specs"};
	DIR *dir = opendir(examples);
	struct dirent *d;
	int n_specs = 0;

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		struct spec *spec = NULL;
		char path[4096];
		char *text;
		size_t n;

		if (!strstr(d->d_name, ".json"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", examples, d->d_name);
		text = slurp(path, &n);
		if (spec_parse(text, n, &options, &spec, &errors))
			spec_errors_print(&errors, path, stderr);
		assert_non_null(spec);
		spec_free(spec);
		free(text);
		n_specs++;
	}
	closedir(dir);
	assert_true(n_specs >= 3);
}

/* The manual's examples are displays that begin with a brace. */
static void test_manual_parses(void **state)
{
	struct spec_options options = {.world = 2, .base_dir = "/specs"};
	size_t n;
	char *text = slurp(manual, &n), *at = text;
	int n_specs = 0;

	while ((at = strstr(at, "indent\n{"))) {
		char *start = strchr(at, '{'), *end = strstr(start, ".Ed");
		struct spec *spec = NULL;

		assert_non_null(end);
		if (spec_parse(start, (size_t)(end - start), &options, &spec, &errors))
			spec_errors_print(&errors, manual, stderr);
		assert_non_null(spec);
		spec_free(spec);
		n_specs++;
		at = end;
	}
	assert_int_equal(n_specs, 3);
	free(text);
}

static void test_out_is_left_alone_on_error(void **state)
{
	struct spec *mark = (struct spec *)state, *spec = mark;

	assert_int_equal(parse_with(", \"seq_le\": 1", 1, &spec), -EINVAL);
	assert_ptr_equal(spec, mark);
	assert_int_equal(errors.n, 1);
	assert_int_equal(errors.error[0].at.line, 1);
	assert_string_equal(errors.error[0].key, "seq_le");
	spec_free(NULL);
}

static void test_errors_are_counted_anew(void **state)
{
	struct spec *spec = NULL;

	assert_int_equal(parse_with(", \"a\": 1, \"b\": 1", 1, &spec), -EINVAL);
	assert_int_equal(errors.n, 2);
	assert_int_equal(parse_with(", \"a\": 1", 1, &spec), -EINVAL);
	assert_int_equal(errors.n, 1);
}

static void test_more_errors_than_are_kept(void **state)
{
	char keys[1024] = "", *printed = NULL;
	struct spec *spec = NULL;
	size_t n = 0, bytes;
	FILE *out;

	for (int i = 0; i < 80; i++)
		n += (size_t)snprintf(keys + n, sizeof(keys) - n, ", \"k%d\": 1", i);
	assert_int_equal(parse_with(keys, 1, &spec), -EINVAL);
	assert_int_equal(errors.n, 64);
	assert_string_equal(errors.error[63].key, "k63");
	out = open_memstream(&printed, &bytes);
	spec_errors_print(&errors, "run.json", out);
	fclose(out);
	assert_non_null(strstr(printed, "\nrun.json: 16 more errors\n"));
	free(printed);
}

static void test_size_limit(void **state)
{
	struct spec_options options = {.world = 1};
	size_t n = SPEC_BYTES_MAX;
	char *text = malloc(n + 1);
	struct spec *spec = NULL;

	assert_non_null(text);
	memset(text, ' ', n + 1);
	memcpy(text, nano, strlen(nano) - 3);
	text[strlen(nano) - 3] = '}';
	assert_int_equal(spec_parse(text, n, &options, &spec, &errors), 0);
	spec_free(spec);
	assert_int_equal(spec_parse(text, n + 1, &options, &spec, &errors), -EINVAL);
	assert_string_equal(errors.error[0].message, "1048577 bytes, at most 1048576");
	free(text);
}

/*
 * Text of the largest size, made of what a quadratic reader would be slowest at: ends in no time.
 */
static void large_text(const char *before, const char *after)
{
	struct spec_options options = {.world = 1};
	char *text = malloc(SPEC_BYTES_MAX);
	struct spec *spec = NULL;
	size_t n = 0;

	assert_non_null(text);
	text[n++] = '{';
	for (size_t i = 0; n < SPEC_BYTES_MAX - 64; i++)
		n += (size_t)snprintf(text + n, 64, "\"%s%06zu%s,", before, i, after);
	text[n - 1] = '}';
	assert_int_equal(spec_parse(text, n, &options, &spec, &errors), -EINVAL);
	assert_true(errors.n > 0);
	free(text);
}

static void test_large_texts(void **state)
{
	large_text("x_", "\": 1");
	large_text("k", "\": 1");
	large_text("zero_optimization.reduce_bucket_sise", "\": 1");
	large_text("\\u0061", "\": [{}]");
	large_text("", "\": 1, \"a\": 2");
}

/* Random changes of good specs: never a crash, and what is accepted has a canonical form that is,
 * too. */
static void test_mutations(void **state)
{
	struct spec_options options = {.world = 4, .base_dir = "/specs"};
	static const char bytes[] = "{}[]\",:.-+eE0123456789\\utfn \n\xc3\xa4";
	char path[4096];
	uint64_t random = 12345;
	char *text, *copy;
	size_t n;

	snprintf(path, sizeof(path), "%s/bucket200.json", examples);
	text = slurp(path, &n);
	copy = malloc(n);
	assert_non_null(copy);
	for (int round = 0; round < 5000; round++) {
		struct spec *spec = NULL;
		size_t length = n;

		memcpy(copy, text, n);
		for (int k = 0; k <= round % 4; k++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
			if (random >> 60 == 0)
				length = (random >> 20) % (n + 1);
			else if (random >> 60 < 4)
				copy[(random >> 20) % n] = (char)(random >> 12);
			else
				copy[(random >> 20) % n] =
					bytes[(random >> 12) % (sizeof(bytes) - 1)];
		}
		if (!spec_parse(copy, length, &options, &spec, &errors)) {
			struct spec *again = NULL;
			char *canonical = spec_canonical(spec);

			assert_non_null(canonical);
			assert_int_equal(
				spec_parse(canonical, strlen(canonical), &options, &again, &errors),
				0);
			assert_same_specs(spec, again);
			spec_free(again);
			free(canonical);
		} else {
			assert_true(errors.n > 0);
		}
		spec_free(spec);
	}
	free(copy);
	free(text);
}

/* ---- canonical form ---- */

static void hash_of(const struct spec *spec, char out[SPEC_HASH_HEX + 1])
{
	char *text = spec_canonical(spec);

	spec_hash(text, out);
	free(text);
}

static void test_a_copy_has_its_own_arms(void **state)
{
	struct spec *spec = NULL, *copy;

	assert_int_equal(parse_with(", \"arms\": {\"a\": {}, \"b\": {\"seed\": 2}}", 2, &spec), 0);
	copy = spec_copy(spec);
	assert_same_specs(copy, spec);
	assert_ptr_not_equal(copy->arms, spec->arms);
	spec_free(spec);
	assert_int_equal(copy->arms[1].config.seed, 2);
	spec_free(copy);
}

static void test_hash_is_the_identity(void **state)
{
	struct spec *a = NULL, *b = NULL, *c = NULL;
	char x[SPEC_HASH_HEX + 1], y[SPEC_HASH_HEX + 1], z[SPEC_HASH_HEX + 1];

	assert_int_equal(parse_with(", \"seed\": 1.0, \"comment\": 5", 2, &a), 0);
	assert_int_equal(parse_with(", \"gradient_accumulation_steps\": 1, \"gpus\": 2", 2, &b), 0);
	assert_int_equal(parse_with(", \"seed\": 2", 2, &c), 0);
	hash_of(a, x);
	hash_of(b, y);
	hash_of(c, z);
	assert_int_equal(strlen(x), SPEC_HASH_HEX);
	assert_string_equal(x, y);
	assert_string_not_equal(x, z);
	spec_free(a);
	spec_free(b);
	spec_free(c);
}

/* The daemon hands the text through jansson, which writes 2e8 as 200000000.0. */
static void test_canonical_survives_jansson(void **state)
{
	struct spec_options options = {.world = 2, .base_dir = "/specs"};
	struct spec *spec = NULL, *again = NULL;
	char path[4096], *text, *canonical, *dump, *after;
	json_t *json;
	size_t n;

	snprintf(path, sizeof(path), "%s/bucket200.json", examples);
	text = slurp(path, &n);
	assert_int_equal(spec_parse(text, n, &options, &spec, &errors), 0);
	canonical = spec_canonical(spec);
	json = json_loads(text, 0, NULL);
	assert_non_null(json);
	dump = json_dumps(json, JSON_COMPACT);
	assert_int_equal(spec_parse(dump, strlen(dump), &options, &again, &errors), 0);
	after = spec_canonical(again);
	assert_string_equal(canonical, after);
	spec_free(again);
	free(after);
	free(dump);
	json_decref(json);
	json = json_loads(canonical, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(json);
	json_decref(json);
	free(canonical);
	free(text);
	spec_free(spec);
}

/* A client does not know the ranks; the daemon resolves what the client wrote to the same as the
 * file. */
static void test_client_then_daemon(void **state)
{
	struct spec_options client = {.base_dir = "/specs"}, daemon = {.world = 4};
	struct spec *seen = NULL, *resolved = NULL, *direct = NULL;
	char *text;

	assert_int_equal(parse_with(", \"gradient_accumulation_steps\": 2", 0, &seen), 0);
	assert_int_equal(seen->arms[0].config.gpus, 0);
	assert_int_equal(seen->arms[0].config.batch, 0);
	text = spec_canonical(seen);
	assert_int_equal(spec_parse(text, strlen(text), &daemon, &resolved, &errors), 0);
	assert_int_equal(resolved->arms[0].config.batch, 32);
	assert_int_equal(parse_with(", \"gradient_accumulation_steps\": 2", 4, &direct), 0);
	assert_same_specs(direct, resolved);
	assert_null(client.sets);
	free(text);
	spec_free(seen);
	spec_free(resolved);
	spec_free(direct);
}

static void test_numbers_ignore_the_locale(void **state)
{
	static const char *const locales[] = {
		"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
	char text[SPEC_JSON_REAL_BYTES];
	double v;

	for (size_t i = 0; i < 4 && !setlocale(LC_ALL, locales[i]); i++)
		;
	spec_json_format_real(0.1, text);
	assert_string_equal(text, "0.1");
	assert_int_equal(spec_json_real("2.5e-1", &v), 0);
	assert_true(v == 0.25);
	setlocale(LC_ALL, "C");
}

static void test_reals_round_trip(void **state)
{
	static const double values[] = {0, 1, 0.1, 1e-8, 1.0 / 3, 5e-324, 1.7976931348623157e308,
		123456789, 1e22, 0.30000000000000004, -2.5};
	char text[SPEC_JSON_REAL_BYTES];
	double v;

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		spec_json_format_real(values[i], text);
		if (values[i] < 0 || values[i] > 1e-300)
			assert_int_equal(spec_json_real(text, &v), 0);
		else
			v = strtod(text, NULL);
		assert_memory_equal(&v, &values[i], sizeof(v));
	}
	spec_json_format_real(0.30000000000000004, text);
	assert_string_equal(text, "0.30000000000000004");
}

static void test_integers(void **state)
{
	static const struct {
		const char *text;
		enum spec_json_integer what;
		int64_t value;
	} cases[] = {
		{"0", SPEC_JSON_WHOLE, 0},
		{"-0.0e5", SPEC_JSON_WHOLE, 0},
		{"9223372036854775807", SPEC_JSON_WHOLE, INT64_MAX},
		{"-9223372036854775808", SPEC_JSON_WHOLE, INT64_MIN},
		{"9223372036854775808", SPEC_JSON_TOO_BIG, 0},
		{"-9223372036854775809", SPEC_JSON_TOO_BIG, 0},
		{"9.223372036854775807e18", SPEC_JSON_WHOLE, INT64_MAX},
		{"92233720368547758070e-1", SPEC_JSON_WHOLE, INT64_MAX},
		{"1e18", SPEC_JSON_WHOLE, INT64_C(1000000000000000000)},
		{"1e19", SPEC_JSON_TOO_BIG, 0},
		{"1E+2", SPEC_JSON_WHOLE, 100},
		{"0.001e3", SPEC_JSON_WHOLE, 1},
		{"0.001e2", SPEC_JSON_FRACTION, 0},
		{"1e-1", SPEC_JSON_FRACTION, 0},
		{"1e99999999999999999999", SPEC_JSON_TOO_BIG, 0},
		{"1e-99999999999999999999", SPEC_JSON_FRACTION, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t v = 0;

		assert_int_equal(spec_json_int64(cases[i].text, &v), cases[i].what);
		assert_true(cases[i].what != SPEC_JSON_WHOLE || v == cases[i].value);
	}
}

static void test_docs(void **state)
{
	char *text = NULL;
	size_t n = 0, items = 0;
	FILE *out = open_memstream(&text, &n);
	json_t *schema, *properties;

	assert_non_null(out);
	spec_print_schema(out);
	fclose(out);
	schema = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(schema);
	properties = json_object_get(schema, "properties");
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (!strchr(spec_table[i].key, '.'))
			assert_non_null(json_object_get(properties, spec_table[i].key));
	json_decref(schema);
	free(text);
	out = open_memstream(&text, &n);
	assert_non_null(out);
	spec_print_man(out);
	fclose(out);
	for (const char *p = text; (p = strstr(p, ".It ")); p++)
		items++;
	assert_int_equal(items, SPEC_KEY_COUNT);
	free(text);
}

static void test_names_of_values(void **state)
{
	assert_string_equal(spec_recompute_name(SPEC_RECOMPUTE_NONE), "none");
	assert_string_equal(spec_recompute_name(SPEC_RECOMPUTE_SELECTIVE), "selective");
	assert_string_equal(spec_recompute_name(SPEC_RECOMPUTE_FULL), "full");
	assert_string_equal(spec_precision_name(SPEC_FP32), "fp32");
	assert_string_equal(spec_precision_name(SPEC_TF32), "tf32");
	assert_string_equal(spec_precision_name(SPEC_BF16), "bf16");
	assert_string_equal(spec_precision_name(SPEC_FP16), "fp16");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_of_values),
		cmocka_unit_test(test_every_key_has_a_row),
		cmocka_unit_test(test_keys_of_an_object_stand_together),
		cmocka_unit_test(test_defaults_are_kept),
		cmocka_unit_test(test_examples_parse),
		cmocka_unit_test(test_manual_parses),
		cmocka_unit_test(test_out_is_left_alone_on_error),
		cmocka_unit_test(test_errors_are_counted_anew),
		cmocka_unit_test(test_more_errors_than_are_kept),
		cmocka_unit_test(test_size_limit),
		cmocka_unit_test(test_large_texts),
		cmocka_unit_test(test_mutations),
		cmocka_unit_test(test_a_copy_has_its_own_arms),
		cmocka_unit_test(test_hash_is_the_identity),
		cmocka_unit_test(test_canonical_survives_jansson),
		cmocka_unit_test(test_client_then_daemon),
		cmocka_unit_test(test_numbers_ignore_the_locale),
		cmocka_unit_test(test_reals_round_trip),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_docs),
	};

	if (argc != 3)
		return 2;
	examples = argv[1];
	manual = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
