#include "tests/gpu/big.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t wait_ns = 60000000000;
static const double peak = 8; /* as in kernels_gpu */
enum {
	DRAWS = 1 << 24,
	HOST_BYTES = 1 << 26,
};

int big_init(
	struct big *b, enum k_dtype dtype, enum k_attention way, bool small, int64_t allowed_bytes)
{
	int rc;

	*b = (struct big){.small = small, .allowed_bytes = allowed_bytes};
	rc = harness_init(&b->h, dtype, way, false);
	if (rc < 0)
		return rc;
	b->s = b->h.s;
	b->draws = k_alloc(b->h.ctx, DRAWS * sizeof *b->draws);
	for (int i = 0; i < 2; i++)
		b->host[i] = k_alloc_host(b->h.ctx, HOST_BYTES);
	if (!b->draws || !b->host[0] || !b->host[1]) {
		fprintf(stderr, "large: no memory to compare with\n");
		big_finish(b);
		return -ENOMEM;
	}
	return 0;
}

void big_finish(struct big *b)
{
	for (int i = 0; i < 2; i++)
		k_free_host(b->h.ctx, b->host[i]);
	k_free(b->h.ctx, b->draws);
	harness_finish(&b->h);
}

int64_t big_rows(const struct big *b, int64_t columns)
{
	/* so far beyond 2^31 that the last piece has all rows */
	int64_t elems = ((int64_t)1 << 31) + (1 << 24);

	return b->small ? 64 : (elems / columns + 7) / 8 * 8;
}

bool big_begin(struct big *b, const char *name, int64_t elems, int64_t reals)
{
	int64_t wanted = elems * (int64_t)k_elem_bytes(b->h.ctx) + reals * (int64_t)sizeof(k_real);
	struct k_device_info info;
	int64_t there;

	k_stream_sync(b->s, wait_ns);
	harness_restart(&b->h, 1);
	k_context_info(b->h.ctx, &info);
	there = info.memory_free_bytes < b->allowed_bytes ? info.memory_free_bytes
							  : b->allowed_bytes;
	printf("%s: %.1f GB\n", name, (double)wanted * 1e-9);
	if (wanted <= there)
		return true;
	printf("%s: skipped: %.1f GB of memory needed, %.1f GB free or allowed\n", name,
		(double)wanted * 1e-9, (double)there * 1e-9);
	b->skipped++;
	return false;
}

static void *room(struct big *b, size_t bytes)
{
	struct harness *h = &b->h;
	/* k_fill writes whole fp32 elements */
	void *x = k_alloc(h->ctx, (bytes + 3) / 4 * 4);

	if (!x || h->n_blocks == HARNESS_BLOCKS_MAX) {
		fprintf(stderr, "large: no device memory for %zu bytes\n", bytes);
		exit(2);
	}
	h->blocks[h->n_blocks++] = x;
	k_fill(b->s, x, (int64_t)((bytes + 3) / 4), (double)NAN);
	return x;
}

void *big_room(struct big *b, int64_t n)
{
	return room(b, (size_t)n * k_elem_bytes(b->h.ctx));
}

k_real *big_room_real(struct big *b, int64_t n)
{
	return room(b, (size_t)n * sizeof(k_real));
}

void *big_at(const struct big *b, void *x, int64_t n)
{
	return (char *)x + (size_t)n * k_elem_bytes(b->h.ctx);
}

void big_draw(struct big *b, void *x, int64_t first, int64_t n, uint32_t sequence, double mean,
	double std)
{
	for (int64_t i = 0; i < n; i += DRAWS) {
		int64_t some = n - i < DRAWS ? n - i : DRAWS;

		k_init_normal(b->s, b->draws, some, 42, sequence, first + i, mean, std);
		k_cast(b->s, big_at(b, x, i), b->draws, some);
	}
}

void *big_tensor(struct big *b, int64_t n, uint32_t sequence, double mean, double std)
{
	void *x = big_room(b, n);

	big_draw(b, x, 0, n, sequence, mean, std);
	return x;
}

int64_t big_last_rows(const struct big *b)
{
	return b->small ? 8 : 128;
}

void *big_zeros(struct big *b, int64_t n)
{
	void *x = big_room(b, n);

	k_zero(b->s, x, (size_t)n * k_elem_bytes(b->h.ctx));
	return x;
}

void big_draw_last(struct big *b, void *x, int64_t all, int64_t n, uint32_t sequence)
{
	k_zero(b->s, x, (size_t)all * k_elem_bytes(b->h.ctx));
	big_draw(b, big_at(b, x, all - n), all - n, n, sequence, 0, 1);
}

double big_tolerance(const struct big *b)
{
	return 2 * harness_tolerance(&b->h);
}

struct big_check big_check_begin(const char *name, double tolerance)
{
	return (struct big_check){
		.name = name, .tolerance = tolerance, .first = -1, .number = true};
}

/* bf16 is the upper half of fp32 */
static float value(const char *x, size_t elem, int64_t i)
{
	uint32_t bits;
	uint16_t half;
	float f;

	if (elem == 4) {
		memcpy(&f, x + i * 4, sizeof f);
		return f;
	}
	memcpy(&half, x + i * 2, sizeof half);
	bits = (uint32_t)half << 16;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* n is at most HOST_BYTES / elem: sums per block in fp32, over blocks in double */
static void compare_values(
	struct big_check *c, const char *got, const char *want, size_t elem, int64_t n)
{
	double differences = 0, squares = 0;
	float worst = 0, largest = 0;

	for (int64_t first = 0; first < n; first += 64) {
		int64_t end = first + 64 < n ? first + 64 : n;
		float d2 = 0, w2 = 0;

		for (int64_t i = first; i < end; i++) {
			float w = value(want, elem, i), d = fabsf(value(got, elem, i) - w);

			d2 += d * d;
			w2 += w * w;
			worst = d > worst ? d : worst;
			largest = fabsf(w) > largest ? fabsf(w) : largest;
		}
		differences += (double)d2;
		squares += (double)w2;
	}
	/* NaN and inf are in the sums */
	c->number = c->number && isfinite(differences) && isfinite(squares);
	c->differences += differences;
	c->squares += squares;
	c->worst = fmax(c->worst, (double)worst);
	c->largest = fmax(c->largest, (double)largest);
}

static bool all_numbers(const char *x, size_t elem, int64_t n)
{
	int bad = 0;

	for (int64_t i = 0; i < n; i++) {
		uint32_t word;
		uint16_t half;

		if (elem == 4) {
			memcpy(&word, x + i * 4, sizeof word);
			bad |= (word & 0x7f800000) == 0x7f800000;
		} else {
			memcpy(&half, x + i * 2, sizeof half);
			bad |= (half & 0x7f80) == 0x7f80;
		}
	}
	return !bad;
}

static void compare_bits(
	struct big_check *c, const char *got, const char *want, size_t elem, int64_t n)
{
	c->number = c->number && all_numbers(want, elem, n);
	if (memcmp(got, want, (size_t)n * elem) == 0)
		return;
	for (int64_t i = 0; i < n; i++) {
		if (memcmp(got + (size_t)i * elem, want + (size_t)i * elem, elem) == 0)
			continue;
		if (c->first < 0)
			c->first = c->compared + i;
		c->differ++;
	}
}

static void compare(struct big *b, struct big_check *c, const char *got, const char *want,
	size_t elem, int64_t n)
{
	const int64_t most = (int64_t)(HOST_BYTES / elem);

	for (int64_t i = 0; i < n; i += most) {
		int64_t some = n - i < most ? n - i : most;
		size_t at = (size_t)i * elem, bytes = (size_t)some * elem;

		k_copy_out(b->s, b->host[0], got + at, bytes);
		k_copy_out(b->s, b->host[1], want + at, bytes);
		if (k_stream_sync(b->s, wait_ns) < 0) {
			c->number = false;
			return;
		}
		if (c->tolerance > 0)
			compare_values(c, b->host[0], b->host[1], elem, some);
		else
			compare_bits(c, b->host[0], b->host[1], elem, some);
		c->compared += some;
	}
}

void big_compare(
	struct big *b, struct big_check *check, const void *got, const void *want, int64_t n)
{
	compare(b, check, got, want, k_elem_bytes(b->h.ctx), n);
}

void big_compare_real(
	struct big *b, struct big_check *check, const k_real *got, const k_real *want, int64_t n)
{
	compare(b, check, (const char *)got, (const char *)want, sizeof *got, n);
}

void big_verdict(struct big *b, const char *name, bool good)
{
	if (good && k_context_error(b->h.ctx))
		good = false;
	printf("%-66s %s\n", name, good ? "ok" : "FAILED");
	fflush(stdout);
	*(good ? &b->passed : &b->failed) += 1;
}

void big_compare_once(struct big *b, const char *name, double tolerance, const void *got,
	const void *want, int64_t n)
{
	struct big_check check = big_check_begin(name, tolerance);

	big_compare(b, &check, got, want, n);
	big_check_end(b, &check);
}

void big_check_end(struct big *b, const struct big_check *c)
{
	double off = sqrt(c->differences / (c->squares > 0 ? c->squares : 1));
	double worst = c->worst / (c->largest > 0 ? c->largest : 1);
	bool good = c->number && c->compared > 0;
	char line[160];

	if (c->tolerance > 0) {
		good = good && c->squares > 0 && off <= c->tolerance &&
			worst <= peak * c->tolerance;
		snprintf(line, sizeof line, "%s: off by %.1e, %.1e at most", c->name, off, worst);
	} else {
		good = good && c->differ == 0;
		snprintf(line, sizeof line, "%s: the same bits", c->name);
	}
	if (c->differ > 0)
		printf("  %lld of %lld elements differ, first %lld\n", (long long)c->differ,
			(long long)c->compared, (long long)c->first);
	if (!c->number)
		printf("  not all of them are numbers\n");
	big_verdict(b, line, good);
}

uint32_t big_philox(uint64_t seed, uint64_t place, uint64_t i)
{
	uint64_t block = i / 4;
	uint32_t x[4] = {
		(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)place, (uint32_t)(place >> 32)};
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

	for (int round = 0; round < 10; round++) {
		uint64_t p = (uint64_t)x[0] * 0xd2511f53, q = (uint64_t)x[2] * 0xcd9e8d57;

		x[0] = (uint32_t)(q >> 32) ^ x[1] ^ key[0];
		x[1] = (uint32_t)q;
		x[2] = (uint32_t)(p >> 32) ^ x[3] ^ key[1];
		x[3] = (uint32_t)p;
		key[0] += 0x9e3779b9;
		key[1] += 0xbb67ae85;
	}
	return x[i % 4];
}
