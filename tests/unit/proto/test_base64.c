/* Base64 against RFC 4648's own vectors, both ways, and what is none; digests in pieces. */
#include "proto/artifact.h"
#include "proto/base64.h"
#include "proto/digest.h"
#include "tests/unit/test.h"

static void test_vectors(void **state)
{
	static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
		{"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"}};
	unsigned char back[16];
	char text[16];
	size_t n;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		const char *plain = pairs[i][0], *coded = pairs[i][1];

		base64_encode(plain, strlen(plain), text);
		assert_string_equal(text, coded);
		assert_int_equal(base64_length(strlen(plain)), strlen(coded));
		assert_int_equal(base64_decode(coded, strlen(coded), back, &n), 0);
		assert_int_equal(n, strlen(plain));
		assert_memory_equal(back, plain, n);
	}
}

static void test_every_byte(void **state)
{
	unsigned char bytes[256 * 3], back[256 * 3 + 3];
	char text[1100];
	size_t n;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7 % 256);
	for (size_t length = 0; length <= sizeof(bytes); length++) {
		base64_encode(bytes, length, text);
		assert_int_equal(base64_decode(text, strlen(text), back, &n), 0);
		assert_int_equal(n, length);
		assert_memory_equal(back, bytes, length);
	}
}

static void test_what_is_none(void **state)
{
	static const char *const texts[] = {"Z", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zm9v\n",
		"Zm 9", "Zm-_", "=m9v", "Zh==", "Zm9=", "Zg=A", "\xc3\xa4\xc3\xa4"};
	unsigned char out[64];
	size_t n;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(base64_decode(texts[i], strlen(texts[i]), out, &n), -EINVAL);
	assert_int_equal(base64_decode("Zm\0v", 4, out, &n), -EINVAL);
}

static void test_digest(void **state)
{
	static const char text[] = "what comes in pieces has the hash of the whole";
	char whole[65], pieces[65];

	assert_int_equal(artifact_sha256(text, sizeof(text), whole), 0);
	for (size_t cut = 0; cut <= sizeof(text); cut++) {
		struct digest *d = digest_create();

		assert_non_null(d);
		assert_int_equal(digest_add(d, text, cut), 0);
		assert_int_equal(digest_add(d, text + cut, sizeof(text) - cut), 0);
		assert_int_equal(digest_finish(d, pieces), 0);
		assert_string_equal(pieces, whole);
		digest_destroy(d);
	}
}

TEST_MAIN(cmocka_unit_test(test_vectors), cmocka_unit_test(test_every_byte),
	cmocka_unit_test(test_what_is_none), cmocka_unit_test(test_digest))
