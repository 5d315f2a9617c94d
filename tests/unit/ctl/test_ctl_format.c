/* Figures and foreign text as gpt2ctl prints them. */
#include <math.h>

#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/print/progress.h"
#include "ctl/print/term.h"
#include "proto/host/clock.h"
#include "tests/unit/test.h"

static void test_si(void **state)
{
	static const struct {
		double value;
		const char *text;
	} golden[] = {{0, "0"}, {0.5, "0.5"}, {12, "12"}, {999, "999"}, {999.4, "999"},
		{999.6, "1.00 k"}, {1000, "1.00 k"}, {12345, "12.3 k"}, {999499, "999 k"},
		{999500, "1.00 M"}, {1840000, "1.84 M"}, {3e12, "3.00 T"}, {999.4e15, "999 P"},
		{1e18, "1e+18"}, {1e300, "1e+300"}};
	char out[FORMAT_BYTES];

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++)
		assert_string_equal(format_si(golden[i].value, out), golden[i].text);
	assert_string_equal(format_si((double)NAN, out), "-");
}

static void test_count_and_size(void **state)
{
	char out[FORMAT_BYTES];

	assert_string_equal(format_count(0, out), "0");
	assert_string_equal(format_count(999, out), "999");
	assert_string_equal(format_count(1000, out), "1,000");
	assert_string_equal(format_count(-1234567, out), "-1,234,567");
	assert_string_equal(format_count(INT64_MIN, out), "-9,223,372,036,854,775,808");
	assert_string_equal(format_size(0, out), "0 B");
	assert_string_equal(format_size(999, out), "999 B");
	assert_string_equal(format_size(999499, out), "999 kB");
	assert_string_equal(format_size(999500, out), "1.00 MB");
	assert_string_equal(format_size(40000000, out), "40.0 MB");
	assert_string_equal(format_size(-40000000, out), "-40.0 MB");
	assert_string_equal(format_size(INT64_MAX, out), "9.22 EB");
}

static void test_duration(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} golden[] = {{0, "0 s"}, {5.31e-3, "5.31 ms"}, {2.5e-6, "2.50 us"}, {0.9994e-3, "999 us"},
		{0.9996e-3, "1.00 ms"}, {0.9996, "1.00 s"}, {59.94, "59.9 s"}, {59.96, "1m00s"},
		{123, "2m03s"}, {3599.6, "1h00m"}, {3720, "1h02m"}, {1e18, "1e+18 s"}};
	char out[FORMAT_BYTES];

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++)
		assert_string_equal(format_duration(golden[i].seconds, out), golden[i].text);
	assert_string_equal(format_duration((double)INFINITY, out), "-");
}

static void test_change(void **state)
{
	char out[FORMAT_BYTES];

	assert_string_equal(format_signed(19.5, out), "+19.50%");
	assert_string_equal(format_signed(-0.001, out), "+0.00%");
	assert_string_equal(format_signed((double)NAN, out), "-");
	assert_string_equal(format_interval(-1.234, 5, out), "[-1.23, +5.00]");
	assert_string_equal(format_p(0.0078, out), ".0078");
	assert_string_equal(format_p(1, out), "1.0000");
	assert_string_equal(format_p(1e-9, out), "<.0001");
	assert_string_equal(format_loss(4.29776, out), "4.2978");
	assert_string_equal(format_loss(10.8249, out), "10.8249");
	assert_string_equal(format_loss(0.00012345678, out), "0.0001235");
	assert_string_equal(format_loss(0, out), "0");
	assert_string_equal(format_loss(-1e300, out), "-1e+300");
	assert_string_equal(format_loss((double)INFINITY, out), "-");
}

static void test_numbers_that_cannot_be(void **state)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:f}", "most", (json_int_t)1 << 53, "more",
		((json_int_t)1 << 53) + 1, "least", -((json_int_t)1 << 53), "less",
		(json_int_t)INT64_MIN, "real", 1.0);

	assert_true(format_int(o, "most", 7) == INT64_C(1) << 53);
	assert_int_equal(format_int(o, "more", 7), 7);
	assert_true(format_int(o, "least", 7) == -(INT64_C(1) << 53));
	assert_int_equal(format_int(o, "less", 7), 7);
	assert_int_equal(format_int(o, "real", 7), 7);
	assert_int_equal(format_int(o, "none", 7), 7);
	json_decref(o);
	assert_int_equal(format_product(3, -4), -12);
	assert_true(format_product(INT64_MAX, 2) == INT64_MAX);
	assert_true(format_product(INT64_MAX, -2) == INT64_MIN);
	assert_int_equal(format_percent(0.378), 37);
	assert_int_equal(format_percent(1e300), 100);
	assert_int_equal(format_percent(-5.0), 0);
	assert_int_equal(format_percent((double)NAN), 0);
}

static void test_bar(void **state)
{
	struct term t = {.bars = true};
	char out[64];

	term_bar(&t, 0.5, 4, out, sizeof(out));
	assert_string_equal(out, "##--");
	term_bar(&t, 7.0, 4, out, sizeof(out));
	assert_string_equal(out, "####");
	term_bar(&t, (double)NAN, 2, out, sizeof(out));
	assert_string_equal(out, "--");
	t.utf8 = true;
	term_bar(&t, 0.375, 2, out, sizeof(out)); /* six eighths of the first column */
	assert_string_equal(out, "\u258a ");
	term_bar(&t, 1.0, 1, out, sizeof(out));
	assert_string_equal(out, "\u2588");
	term_bar(&t, 1.0, 40, out, 8); /* whole columns only, whatever the room */
	assert_string_equal(out, "\u2588\u2588");
	t.bars = false; /* a dumb terminal */
	term_bar(&t, 1.0, 1, out, sizeof(out));
	assert_string_equal(out, "");
}

static void test_clean(void **state)
{
	char out[8];

	term_clean("a\033[2J", out, sizeof(out));
	assert_string_equal(out, "a?[2J");
	term_clean("a\302\233b", out, sizeof(out)); /* U+009B: CSI in one character */
	assert_string_equal(out, "a?b");
	term_clean("123456\303\251", out, sizeof(out)); /* the last one does not fit whole */
	assert_string_equal(out, "123456");
	term_clean("12345\303\251", out, sizeof(out));
	assert_string_equal(out, "12345\303\251");
	term_clean("\302", out, sizeof(out));
	assert_string_equal(out, "\302");
}

static void test_members(void **state)
{
	static const char *const golden[][2] = {
		{"run {id} {name|}: {state}", "run 7 a?b: ?"},
		{"{state|-}, {empty|-}, {none.of.it|}.", "-, -, ."},
		{"{of.bytes:size}, {of.bytes:count}", "1.50 kB, 1,500"},
		{"{of.seconds:duration}, {of.state:duration|-}", "2m03s, -"},
		{"{at:time}, {hash:4}, {name:size}", "2026-01-31 12:00:03Z, 0123, a?b"},
		{"{of.seconds:.2}, {of.seconds:ns}, {of.half:share}", "123.00, 0.12 us, 50.0%"},
		{"{of.half:signed} {of.half:p} {of.none:signed|-}", "+0.50% .5000 -"},
		{"{id} run{id:s}, {one} run{one:s}", "7 runs, 1 run"},
		{"a[, {name}][, {state}][, {one} of {empty}]z", "a, a?bz"},
	};
	json_t *object = json_pack("{s:i, s:s, s:i, s:s, s:s, s:s, s:n, s:{s:i, s:f, s:f}}", "id",
		7, "name", "a\033b", "one", 1, "empty", "", "at", "2026-01-31T12:00:03.123Z",
		"hash", "0123456789", "state", "of", "bytes", 1500, "seconds", 123.0, "half", 0.5);

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		char *text = members_text(object, golden[i][0]);

		assert_string_equal(text, golden[i][1]);
		free(text);
	}
	json_decref(object);
}

static void test_table(void **state)
{
	json_t *rows = json_pack("[{s:i, s:s}, {s:i}]", "id", 7, "name", "long name", "id", 12345);
	struct term t = {.width = 80};
	char *text;
	size_t n;

	t.file = open_memstream(&text, &n);
	members_table(&t, "  ", rows, ">ID\tNAME\t>X", "{id}\t{name|}\t{none|-}");
	fclose(t.file);
	assert_string_equal(text,
		"     ID  NAME       X\n"
		"      7  long name  -\n"
		"  12345             -\n");
	free(text);
	json_decref(rows);
}

/* A loss means something only with its step: as much of the segment as 80 columns hold. */
static void test_progress_line(void **state)
{
	json_t *step = json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:i, s:i}", "id", 1,
		"name", "a", "arm", "small", "segment", 5, "segments", 72, "step", 12, "steps", 25,
		"loss", 3.4595, "tokens_per_sec", 6710, "eta_s", 427);
	char *text = NULL;
	size_t bytes = 0;
	struct term t = {.file = open_memstream(&text, &bytes), .width = 80};
	struct progress p;

	progress_init(&p, &t);
	progress_show(&p, step, 0);
	json_object_set_new(step, "segments", json_integer(2000000000000));
	progress_show(&p, step, 11 * CLOCK_S_NS);
	json_object_set_new(step, "name", json_string("a-name-of-a-run"));
	json_object_set_new(step, "segments", json_integer(72));
	progress_show(&p, step, 22 * CLOCK_S_NS);
	json_object_set_new(step, "name", json_string("a-name-of-a-run-that-is-long"));
	progress_show(&p, step, 33 * CLOCK_S_NS);
	fclose(t.file);
	assert_string_equal(text,
		"segment 5/2000000000000  step 12/25  loss 3.4595  6.71 k tok/s  7m07s left\n"
		"segment 5/72  step 12/25  loss 3.4595  6.71 k tok/s  7m07s left\n"
		"segment 5/72  step 12/25  loss 3.4595  6.71 k tok/s  7m07s left\n");
	assert_int_equal((int)(progress_fraction(step) * 72 * 25 + 0.5), 4 * 25 + 12);
	json_decref(step);
	free(text);
}

TEST_MAIN(cmocka_unit_test(test_si), cmocka_unit_test(test_count_and_size),
	cmocka_unit_test(test_duration), cmocka_unit_test(test_change),
	cmocka_unit_test(test_numbers_that_cannot_be), cmocka_unit_test(test_bar),
	cmocka_unit_test(test_clean), cmocka_unit_test(test_members), cmocka_unit_test(test_table),
	cmocka_unit_test(test_progress_line))
