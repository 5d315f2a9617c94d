#include "tests/gpu/harness.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t wait_ns = 60000000000;

#ifdef K_DOUBLE
static const enum k_dtype real_dtype = K_FP64;
#else
static const enum k_dtype real_dtype = K_FP32;
#endif

static const struct {
	const char *name;
	enum k_dtype dtype;
	int mantissa_bits, exponent_min; /* of the smallest normal number: 2^exponent_min */
	double tolerance;
} types[] = {
	{"fp32", K_FP32, 23, -126, 4e-6},
	{"tf32", K_TF32, 23, -126, 1e-3},
	{"bf16", K_BF16, 7, -126, 8e-3},
	{"fp16", K_FP16, 10, -14, 1e-3},
};
enum { TYPES = sizeof types / sizeof types[0] };

int harness_dtype(const char *name)
{
	for (int i = 0; i < TYPES; i++) {
		if (strcmp(types[i].name, name) == 0)
			return (int)types[i].dtype;
	}
	return -1;
}

double harness_tolerance(const struct harness *h)
{
	for (int i = 0; i < TYPES; i++) {
		if (types[i].dtype == h->under_test)
			return types[i].tolerance;
	}
	return 0;
}

int harness_way(const char *name)
{
	static const char *const names[] = {"best", "plain", "tiled", "wmma", "mma", "wgmma"};

	for (int i = 0; i < 6; i++) {
		if (strcmp(name, names[i]) == 0)
			return (int)K_ATTENTION_BEST + i;
	}
	return -1;
}

int harness_init(
	struct harness *h, enum k_dtype under_test, enum k_attention way, bool own_products)
{
	struct k_device_info info;
	int rc;

	*h = (struct harness){.under_test = under_test};
	rc = k_context_create(
		&(struct k_context_options){
			.threads = 2, .attention = way, .own_products = own_products},
		&h->ctx);
	if (rc < 0) {
		fprintf(stderr, "context: %s\n", strerror(-rc));
		return rc;
	}
	k_context_info(h->ctx, &info);
	if (strcmp(info.backend, "cpu") != 0)
		rc = k_context_set_dtype(h->ctx, under_test);
	if (rc == 0)
		rc = k_stream_create(h->ctx, K_STREAM_COMPUTE, "compute", &h->s);
	if (rc < 0) {
		fprintf(stderr, "%s: %s\n", info.name, strerror(-rc));
		harness_finish(h);
	}
	return rc;
}

static void forget(struct harness *h)
{
	while (h->n_blocks > 0)
		k_free(h->ctx, h->blocks[--h->n_blocks]);
}

void harness_finish(struct harness *h)
{
	forget(h);
	k_stream_destroy(h->s);
	k_context_destroy(h->ctx);
}

void harness_restart(struct harness *h, uint64_t seed)
{
	forget(h);
	h->random = UINT64_C(88172645463325252) ^ seed * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t next_random(struct harness *h)
{
	h->random ^= h->random << 13;
	h->random ^= h->random >> 7;
	h->random ^= h->random << 17;
	return h->random;
}

/* To the type's nearest value, ties to even. */
static double rounded(enum k_dtype dtype, double x)
{
	int exponent, bits = 23, lowest = -126;

	for (int i = 0; i < TYPES; i++) {
		if (types[i].dtype == dtype) {
			bits = types[i].mantissa_bits;
			lowest = types[i].exponent_min;
		}
	}
	frexp(x, &exponent);
	exponent = exponent - 1 < lowest ? lowest : exponent - 1;
	return ldexp(rint(ldexp(x, bits - exponent)), exponent - bits);
}

static size_t elem_bytes(enum k_dtype dtype)
{
	if (dtype == K_FP64)
		return 8;
	return dtype == K_BF16 || dtype == K_FP16 ? 2 : 4;
}

static uint16_t fp16_bits(double x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	int exponent;

	x = fabs(x);
	if (x < 6.103515625e-5) /* 2^-14: smaller numbers are subnormal, in steps of 2^-24 */
		return (uint16_t)(sign | (uint16_t)ldexp(x, 24));
	frexp(x, &exponent);
	return (uint16_t)(sign | (uint16_t)((exponent + 14) << 10) |
		(uint16_t)(ldexp(x, 11 - exponent) - 1024));
}

static double fp16_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31, mantissa = bits & 1023;
	double x;

	if (exponent == 31)
		x = mantissa ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		x = ldexp(mantissa, -24);
	else
		x = ldexp(mantissa + 1024, exponent - 25);
	return bits & 0x8000 ? -x : x;
}

/* x is a value of the type */
void harness_encode(enum k_dtype dtype, double x, void *to)
{
	float f = (float)x;
	uint32_t bits;
	uint16_t half;

	switch (dtype) {
	case K_FP64:
		memcpy(to, &x, sizeof x);
		break;
	case K_BF16:
		memcpy(&bits, &f, sizeof bits);
		half = (uint16_t)(bits >> 16);
		memcpy(to, &half, sizeof half);
		break;
	case K_FP16:
		half = fp16_bits(x);
		memcpy(to, &half, sizeof half);
		break;
	default:
		memcpy(to, &f, sizeof f);
	}
}

static double decode(enum k_dtype dtype, const void *from)
{
	double d;
	float f;
	uint32_t bits;
	uint16_t half;

	switch (dtype) {
	case K_FP64:
		memcpy(&d, from, sizeof d);
		return d;
	case K_BF16:
		memcpy(&half, from, sizeof half);
		bits = (uint32_t)half << 16;
		memcpy(&f, &bits, sizeof f);
		return (double)f;
	case K_FP16:
		memcpy(&half, from, sizeof half);
		return fp16_value(half);
	default:
		memcpy(&f, from, sizeof f);
		return (double)f;
	}
}

static void *host(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	if (!memory) {
		fprintf(stderr, "no memory for %zu bytes\n", bytes);
		exit(2);
	}
	return memory;
}

void *harness_bytes(struct harness *h, const void *from, size_t bytes)
{
	void *device = k_alloc(h->ctx, bytes);

	if (!device || h->n_blocks == HARNESS_BLOCKS_MAX) {
		fprintf(stderr, "no device memory for %zu bytes\n", bytes);
		exit(2);
	}
	h->blocks[h->n_blocks++] = device;
	k_copy_in(h->s, device, from, bytes);
	k_stream_sync(h->s, wait_ns);
	return device;
}

static void *make(struct harness *h, enum k_dtype held, enum k_dtype round_to, int64_t n,
	double mean, double by)
{
	size_t elem = elem_bytes(held);
	char *x = host((size_t)n * elem);
	void *device;

	for (int64_t i = 0; i < n; i++) {
		double unit = (double)(next_random(h) >> 11) / 4503599627370496.0 - 1;

		harness_encode(held, rounded(round_to, mean + by * unit), x + (size_t)i * elem);
	}
	device = harness_bytes(h, x, (size_t)n * elem);
	free(x);
	return device;
}

void *harness_tensor(struct harness *h, int64_t n, double mean, double by)
{
	return make(h, k_context_dtype(h->ctx), h->under_test, n, mean, by);
}

k_real *harness_real(struct harness *h, int64_t n, double mean, double by)
{
	return make(h, real_dtype, K_FP32, n, mean, by);
}

/* All bits set is a NaN in every type. */
static void *poison(struct harness *h, size_t bytes)
{
	void *x = host(bytes), *device;

	memset(x, 0xff, bytes);
	device = harness_bytes(h, x, bytes);
	free(x);
	return device;
}

void *harness_poison(struct harness *h, int64_t n)
{
	return poison(h, (size_t)n * k_elem_bytes(h->ctx));
}

k_real *harness_poison_real(struct harness *h, int64_t n)
{
	return poison(h, (size_t)n * sizeof(k_real));
}

int32_t *harness_tokens(struct harness *h, int64_t n, int32_t below)
{
	int32_t *x = host((size_t)n * sizeof *x);
	void *device;

	for (int64_t i = 0; i < n; i++)
		x[i] = (int32_t)(next_random(h) % (uint64_t)below);
	device = harness_bytes(h, x, (size_t)n * sizeof *x);
	free(x);
	return device;
}

static void hand_out(struct harness *h, const char *name, enum k_dtype held, const void *tensor,
	int64_t n, double tolerance)
{
	size_t elem = elem_bytes(held);
	char *x = host((size_t)n * elem);
	double *values = host((size_t)n * sizeof *values);

	k_copy_out(h->s, x, tensor, (size_t)n * elem);
	k_stream_sync(h->s, wait_ns);
	for (int64_t i = 0; i < n; i++)
		values[i] = decode(held, x + (size_t)i * elem);
	h->result(h, name, values, n, tolerance);
	free(values);
	free(x);
}

void harness_result(
	struct harness *h, const char *name, const void *tensor, int64_t n, double tolerance)
{
	hand_out(h, name, k_context_dtype(h->ctx), tensor, n, tolerance);
}

void harness_result_real(
	struct harness *h, const char *name, const k_real *tensor, int64_t n, double tolerance)
{
	hand_out(h, name, real_dtype, tensor, n, tolerance);
}

void harness_same(struct harness *h, const char *name, const void *a, const void *b, int64_t n)
{
	size_t elem = k_elem_bytes(h->ctx), bytes = (size_t)n * elem;
	char *x = host(bytes), *y = host(bytes);
	double differ = 0;

	k_copy_out(h->s, x, a, bytes);
	k_copy_out(h->s, y, b, bytes);
	k_stream_sync(h->s, wait_ns);
	for (size_t i = 0; i < bytes; i += elem)
		differ += memcmp(x + i, y + i, elem) != 0;
	h->result(h, name, &differ, 1, 0);
	free(x);
	free(y);
}
