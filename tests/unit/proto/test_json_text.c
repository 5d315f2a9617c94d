/* json_text.h: JSON is read whole or not at all, and written so, whatever allocation fails. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/json_text.h"
#include "proto/protocol.h"

/* ---- malloc that fails (the linker sends json_text.c's calls here) ---- */

static bool armed;
static long calls, failing; /* the number of the call that fails; 0: none */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	if (armed && ++calls == failing)
		return NULL;
	return __real_malloc(bytes);
}

/* ---- tests ---- */

static const char *const texts[] = {
	"{\"jsonrpc\":\"2.0\",\"id\":17,\"method\":\"submit\",\"params\":{\"spec\":{\"name\":"
	"\"a name that is longer than sixteen bytes, and than thirty-two\",\"x\":[1,2,3.25e-7,"
	"-12345678901234567,true,null,\"\\u00e4\\ud83d\\ude00 escaped\"]}}}",
	"[[[[[[1234567890.12345678901234567890123456789012345]]]]],{},[],\"\"]",
};

static void test_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		json_t *expected = NULL, *got;
		long n = 0;
		int rc = -ENOMEM;

		assert_int_equal(json_text_read(texts[i], strlen(texts[i]), 0, &expected, NULL), 0);
		while (rc != 0) {
			got = NULL;
			calls = 0;
			failing = ++n;
			armed = true;
			rc = json_text_read(texts[i], strlen(texts[i]), 0, &got, NULL);
			armed = false;
			assert_true(rc == 0 || rc == -ENOMEM);
			assert_int_equal(rc == 0, got != NULL);
		}
		assert_true(n > 20); /* each of them was an error, and no other */
		assert_true(json_equal(got, expected));
		json_decref(got);
		json_decref(expected);
	}
}

/* A token that grows over many pieces. */
static void test_read_long(void **state)
{
	size_t bytes = 3 << 20;
	char *text = test_malloc(bytes + 3);
	json_t *got = NULL;
	long n = 0;
	int rc = -ENOMEM;

	(void)state;
	memset(text, 'x', bytes + 2);
	text[0] = '[';
	text[1] = text[bytes] = '"';
	text[bytes + 1] = ']';
	while (rc != 0) {
		calls = 0;
		failing = ++n;
		armed = true;
		rc = json_text_read(text, bytes + 2, 0, &got, NULL);
		armed = false;
		assert_true(rc == 0 || rc == -ENOMEM);
	}
	assert_int_equal(json_string_length(json_array_get(got, 0)), bytes - 2);
	json_decref(got);
	test_free(text);
}

static void test_write(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		json_t *json = json_text_value(texts[i]);
		char *expected = json_dumps(json, JSON_COMPACT), *got = NULL;
		size_t length = 0;

		for (long n = 1; got == NULL; n++) {
			calls = 0;
			failing = n;
			armed = true;
			got = json_text_write(json, JSON_COMPACT, &length);
			armed = false;
		}
		assert_string_equal(got, expected);
		assert_int_equal(length, strlen(expected));
		free(got);
		free(expected);
		json_decref(json);
	}
}

static void test_wrong_text(void **state)
{
	static const char *const wrong[] = {
		"", "{", "[1,]", "{\"a\":1,\"a\":2}", "\"\\ud800\"", "[01]"};
	json_t *got = NULL;
	json_error_t where;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(json_text_read(wrong[i], strlen(wrong[i]), JSON_REJECT_DUPLICATES,
					 &got, &where),
			-EINVAL);
	assert_null(json_text_value(NULL));
	assert_int_equal(
		json_text_read("[]", (size_t)PROTOCOL_LINE_MAX + 1, 0, &got, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_read_long),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_wrong_text),
	};

	json_text_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
