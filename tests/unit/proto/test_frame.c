/* Case H5: frames split, merged, or too big. */
#include "proto/frame.h"
#include "tests/unit/test.h"

static void expect_line(struct frame *f, const char *text)
{
	char *line = NULL;
	size_t n = 0;

	assert_int_equal(frame_next(f, &line, &n), FRAME_LINE);
	assert_int_equal(n, strlen(text));
	assert_string_equal(line, text);
}

static void expect(struct frame *f, enum frame_status status)
{
	char *line = NULL;
	size_t n = 0;

	assert_int_equal(frame_next(f, &line, &n), status);
}

static void test_bytewise(void **state)
{
	const char *text = "{\"a\":1}\n\nsecond\n";
	struct frame *f = frame_create(64);

	for (size_t i = 0; i < 7; i++) {
		frame_feed(f, text + i, 1);
		expect(f, FRAME_MORE);
		assert_int_equal(frame_pending(f), i + 1);
	}
	frame_feed(f, text + 7, 1);
	expect_line(f, "{\"a\":1}");
	assert_int_equal(frame_pending(f), 0);
	frame_feed(f, text + 8, 1);
	expect_line(f, "");
	frame_feed(f, text + 9, strlen(text) - 9);
	expect_line(f, "second");
	expect(f, FRAME_MORE);
	frame_destroy(f);
}

static void test_merged(void **state)
{
	struct frame *f = frame_create(64);

	frame_feed(f, "one\ntwo\nthree\nhal", 17);
	expect_line(f, "one");
	expect_line(f, "two");
	frame_feed(f, "f\n", 2);
	expect_line(f, "three");
	expect_line(f, "half");
	expect(f, FRAME_MORE);
	frame_destroy(f);
	frame_destroy(NULL);
}

static void test_line_max(void **state)
{
	struct frame *f = frame_create(8);

	frame_feed(f, "12345678\n", 9);
	expect_line(f, "12345678");
	frame_feed(f, "12345678", 8);
	expect(f, FRAME_MORE);
	frame_feed(f, "9", 1);
	expect(f, FRAME_TOO_LONG);
	/* what follows is not taken for a line of its own, and not kept */
	frame_feed(f, "\nlater\n", 7);
	expect(f, FRAME_TOO_LONG);
	assert_int_equal(frame_pending(f), 0);
	frame_destroy(f);

	f = frame_create(8);
	frame_feed(f, "ok\n123456789\n", 13);
	expect_line(f, "ok");
	expect(f, FRAME_TOO_LONG);
	frame_destroy(f);
}

static void test_nul(void **state)
{
	struct frame *f = frame_create(64);

	frame_feed(f, "fine\nab\0c\n", 10);
	expect_line(f, "fine");
	expect(f, FRAME_BAD);
	frame_feed(f, "x\n", 2);
	expect(f, FRAME_BAD);
	frame_destroy(f);

	/* seen before the line has ended, and after a part without one */
	f = frame_create(64);
	frame_feed(f, "abc", 3);
	expect(f, FRAME_MORE);
	frame_feed(f, "d\0", 2);
	expect(f, FRAME_BAD);
	frame_destroy(f);
}

/* Every cut of a stream into two reads gives the same lines. */
static void test_every_cut(void **state)
{
	char text[3 * 5000 + 4];
	size_t n = 0;

	for (int line = 0; line < 3; line++) {
		memset(text + n, 'a' + line, 5000);
		n += 5000;
		text[n++] = '\n';
	}
	for (size_t cut = 0; cut <= n; cut += 7) {
		struct frame *f = frame_create(5000);
		char *line;
		size_t length;
		int lines = 0;

		frame_feed(f, text, cut);
		while (frame_next(f, &line, &length) == FRAME_LINE) {
			assert_int_equal(length, 5000);
			assert_int_equal(line[4999], 'a' + lines++);
		}
		frame_feed(f, text + cut, n - cut);
		while (frame_next(f, &line, &length) == FRAME_LINE) {
			assert_int_equal(length, 5000);
			assert_int_equal(line[4999], 'a' + lines++);
		}
		assert_int_equal(lines, 3);
		frame_destroy(f);
	}
}

/*
 * 4 MB in reads of one byte, asked after each: work that grows with the square of the length would
 * take hours and run into the test's time-out.
 */
static void test_long_line_bytewise(void **state)
{
	const size_t n = 4 << 20;
	struct frame *f = frame_create(n);
	char *line;
	size_t length;

	for (size_t i = 0; i < n; i++) {
		frame_feed(f, "x", 1);
		if (frame_next(f, &line, &length) != FRAME_MORE)
			fail();
	}
	frame_feed(f, "\nnext\n", 6);
	assert_int_equal(frame_next(f, &line, &length), FRAME_LINE);
	assert_int_equal(length, n);
	expect_line(f, "next");
	frame_destroy(f);
}

TEST_MAIN(cmocka_unit_test(test_bytewise), cmocka_unit_test(test_merged),
	cmocka_unit_test(test_line_max), cmocka_unit_test(test_nul),
	cmocka_unit_test(test_every_cut), cmocka_unit_test(test_long_line_bytewise))
