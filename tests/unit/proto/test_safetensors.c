/*
 * Files of weights: what is written is read again; values of 16 bits are rounded as IEEE 754 says;
 * a file that is cut, or made to mislead, is refused by its name. Any bytes: tests/fuzz.
 */
#include <math.h>
#include <sys/mman.h>

#include "proto/half.h"
#include "proto/safetensors.h"
#include "tests/unit/test.h"

static char error[1024];

static int make_file(const void *bytes, size_t n)
{
	int fd = memfd_create("weights", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	return fd;
}

/* The header, then data_bytes zeros. */
static int open_text(struct safetensors *f, const char *header, size_t data_bytes)
{
	const uint64_t n = strlen(header);
	char *bytes = calloc(1, 8 + n + data_bytes + 1);
	int rc;

	assert_non_null(bytes);
	memcpy(bytes, &n, 8);
	memcpy(bytes + 8, header, n);
	error[0] = '\0';
	rc = safetensors_open(
		f, make_file(bytes, 8 + n + data_bytes), "w.safetensors", error, sizeof(error));
	free(bytes);
	return rc;
}

static void refused(const char *header, size_t data_bytes, const char *why)
{
	struct safetensors f;

	assert_int_not_equal(open_text(&f, header, data_bytes), 0);
	assert_non_null(strstr(error, "w.safetensors: "));
	if (!strstr(error, why))
		fail_msg("\"%s\" is not in: %s", why, error);
}

static void test_round_trip(void **state)
{
	const struct safetensors_tensor tensors[] = {
		{.name = "a", .dtype = SAFETENSORS_F32, .n_dims = 2, .dim = {2, 3}},
		{.name = "b", .dtype = SAFETENSORS_BF16, .n_dims = 1, .dim = {2}},
		{.name = "c", .dtype = SAFETENSORS_F16, .n_dims = 1, .dim = {2}},
	};
	const float values[] = {1, -2.5F, 0, 1e30F, 3, 4, 1.5F, -0.75F, 65504, 0x1p-24F};
	char shape[SAFETENSORS_SHAPE_BYTES], bytes[512];
	float out[6];
	struct safetensors f;
	size_t n;
	char *header = safetensors_header(tensors, 3, &n);

	memcpy(bytes, header, n);
	safetensors_convert(SAFETENSORS_F32, values, 6, bytes + n);
	safetensors_convert(SAFETENSORS_BF16, values + 6, 2, bytes + n + 24);
	safetensors_convert(SAFETENSORS_F16, values + 8, 2, bytes + n + 28);
	free(header);
	assert_int_equal(
		safetensors_open(&f, make_file(bytes, n + 32), "w", error, sizeof(error)), 0);
	assert_int_equal(f.n, 3);
	assert_string_equal(safetensors_shape(safetensors_find(&f, "a"), shape), "[2, 3]");
	assert_null(safetensors_find(&f, "d"));
	assert_int_equal(
		safetensors_read(&f, safetensors_find(&f, "a"), 1, 4, out, error, sizeof(error)),
		0);
	assert_memory_equal(out, values + 1, 4 * sizeof(*out));
	for (int i = 1; i < 3; i++) {
		assert_int_equal(
			safetensors_read(&f, &f.tensor[i], 0, 2, out, error, sizeof(error)), 0);
		assert_memory_equal(out, values + 4 + 2 * i, 2 * sizeof(*out));
	}
	safetensors_close(&f);
}

/* The last tensor is read after another process has cut the file. */
static void test_shortened(void **state)
{
	const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
	struct safetensors f;
	float out[4];

	assert_int_equal(open_text(&f, header, 16), 0);
	assert_int_equal(ftruncate(f.fd, f.data_first + 10), 0);
	assert_int_equal(safetensors_read(&f, &f.tensor[0], 0, 4, out, error, sizeof(error)), -EIO);
	assert_non_null(strstr(error, "tensor a: the file ends in it"));
	safetensors_close(&f);
}

static void test_hostile(void **state)
{
#define TENSOR(shape, from, to)                                                                    \
	"{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
	refused("{\"a\":" TENSOR("[4]", "0", "16") "}", 10, "not within the 10 bytes");
	refused("{\"a\":" TENSOR("[2]", "0", "8") ",\"b\":" TENSOR("[2]", "4", "12") "}", 12,
		"tensor b: begins at byte 4");
	refused("{\"a\":" TENSOR("[1]", "0", "4") ",\"b\":" TENSOR("[1]", "8", "12") "}", 12,
		"tensor b: begins at byte 8");
	refused("{\"a\":" TENSOR("[1]", "0", "4") "}", 5, "the tensors take 4");
	refused("{\"a\":" TENSOR("[1]", "9223372036854775804", "9223372036854775807") "}", 4,
		"not within");
	refused("{\"a\":" TENSOR("[1]", "9223372036854775808", "9223372036854775812") "}", 4,
		"too big integer");
	refused("{\"a\":" TENSOR("[1]", "-4", "0") "}", 4, "not within");
	refused("{\"a\":" TENSOR("[4294967296,4294967296]", "0", "0") "}", 0, "2^63 elements");
	refused("{\"a\":" TENSOR("[4611686018427387905]", "0", "4") "}", 4, "2^63 bytes");
	refused("{\"a\":" TENSOR("[-1]", "0", "4") "}", 4, "no whole number");
	refused("{\"a\":" TENSOR("[2]", "0", "4") "}", 4, "its shape and type take 8");
	refused("{\"a\":" TENSOR("[1]", "0", "4") ",\"a\":" TENSOR("[1]", "4", "8") "}", 8,
		"duplicate");
	refused("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		"\"F33\" is unknown");
	refused("{\"a\":7}", 0, "an object with dtype");
	refused("[]", 0, "a JSON object expected");
	refused("{", 0, "header: ");
#undef TENSOR
}

static void test_length(void **state)
{
	const uint64_t lengths[] = {UINT64_MAX, UINT64_C(1) << 63, 9, SAFETENSORS_HEADER_MAX + 1};
	char bytes[16] = {0};
	struct safetensors f;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		memcpy(bytes, &lengths[i], 8);
		assert_int_equal(
			safetensors_open(&f, make_file(bytes, 16), "w", error, sizeof(error)),
			-EINVAL);
		assert_non_null(strstr(error, "w: a header of "));
	}
	assert_int_equal(
		safetensors_open(&f, make_file(bytes, 7), "w", error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "w: 7 bytes are no safetensors file");
}

/* All values of 16 bits survive; what lies between two goes to the nearer, ties to even. */
static void test_half(void **state)
{
	for (uint32_t i = 0; i <= UINT16_MAX; i++) {
		const uint16_t h = (uint16_t)i;
		const float f16 = half_from_f16(h), bf16 = half_from_bf16(h);

		if (isnan(f16))
			assert_true(isnan(half_from_f16(half_to_f16(f16))));
		else
			assert_int_equal(half_to_f16(f16), h);
		if (isnan(bf16))
			assert_true(isnan(half_from_bf16(half_to_bf16(bf16))));
		else
			assert_int_equal(half_to_bf16(bf16), h);
	}
	assert_int_equal(half_to_f16(65519.99F), 0x7bff);
	assert_int_equal(half_to_f16(65520), 0x7c00);
	assert_int_equal(half_to_f16(1 + 0x1p-11F), 0x3c00);
	assert_int_equal(half_to_f16(1 + 0x1.8p-10F), 0x3c02);
	assert_int_equal(half_to_f16(0x1p-25F), 0);
	assert_int_equal(half_to_f16(0x1.000002p-25F), 1);
	assert_int_equal(half_to_f16(-0x1.8p-24F), 0x8002);
	assert_int_equal(half_to_bf16(1 + 0x1p-8F), 0x3f80);
	assert_int_equal(half_to_bf16(1 + 0x1.8p-7F), 0x3f82);
}

TEST_MAIN(cmocka_unit_test(test_round_trip), cmocka_unit_test(test_shortened),
	cmocka_unit_test(test_hostile), cmocka_unit_test(test_length), cmocka_unit_test(test_half))
