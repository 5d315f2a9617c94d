#include "kernels/cuda/product.cuh"

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/turn.cuh"

/* Of column sums over so many elements, with a second kernel. */
static double sums_seconds(const struct k_context *ctx, int64_t elems)
{
	return context_pass_seconds(ctx, elems) + 2 * context_launch_seconds;
}

/* Turn neither operand, either, or both. */
enum { WAYS = 4 };

/* ---- an operand as rows of memory ---- */

struct operand {
	const void *memory;
	int64_t rows, width;
};

static struct operand operand_a(const struct gemm_call *c)
{
	if (c->transpose_a)
		return (struct operand){c->a, c->m, c->k};
	return (struct operand){c->a, c->k, c->m};
}

static struct operand operand_b(const struct gemm_call *c)
{
	if (c->transpose_b)
		return (struct operand){c->b, c->k, c->n};
	return (struct operand){c->b, c->n, c->k};
}

static size_t align(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

static size_t turned_bytes(const struct operand &o)
{
	return align((size_t)(o.rows * o.width) * sizeof(float));
}

static bool can_turn(const struct operand &o)
{
	return turn_fits(o.memory, o.rows, o.width) && turned_bytes(o) <= PRODUCT_TURNED_BYTES_MAX;
}

/* The call with turned operands; a, b: their addresses. */
static struct gemm_call turned_call(const struct product *p, const void *a, const void *b)
{
	struct gemm_call c = p->call;

	if (p->turn_a) {
		c.a = a;
		c.transpose_a = !c.transpose_a;
	}
	if (p->turn_b) {
		c.b = b;
		c.transpose_b = !c.transpose_b;
	}
	return c;
}

/* ---- the choice ---- */

static double seconds_of(struct k_stream *s, const struct product *p, bool sums)
{
	/* only alignment matters: scratch memory's */
	const void *there = (const void *)(uintptr_t)256;
	struct gemm_call c = turned_call(p, there, there);
	double seconds = gemm_seconds(s, &c);

	if (p->turn_a)
		seconds += context_pass_seconds(s->ctx, 2 * c.m * c.k);
	if (p->turn_b)
		seconds += context_pass_seconds(s->ctx, 2 * c.k * c.n);
	else if (sums)
		seconds += sums_seconds(s->ctx, c.k * c.n);
	return seconds;
}

/* All possible ways; the first turns nothing. */
static int find_ways(enum k_dtype dtype, const struct gemm_call *call, struct product out[WAYS])
{
	struct operand a = operand_a(call), b = operand_b(call);
	bool tf32 = dtype == K_TF32, may_a, may_b;
	int n = 1;

	out[0] = {*call, false, false, 0};
	if (dtype != K_TF32 && dtype != K_FP32)
		return n;
	may_a = call->transpose_a != tf32 && can_turn(a);
	may_b = call->transpose_b == tf32 && can_turn(b);
	for (int way = 1; way < WAYS; way++) {
		struct product p = {*call, (way & 1) != 0, (way & 2) != 0, 0};

		if ((p.turn_a && !may_a) || (p.turn_b && !may_b) ||
			(p.turn_a && p.turn_b &&
				turned_bytes(a) + turned_bytes(b) > PRODUCT_TURNED_BYTES_MAX))
			continue;
		out[n++] = p;
	}
	return n;
}

struct product product_choose(struct k_stream *s, const struct gemm_call *call, bool sums)
{
	struct product ways[WAYS];
	int n = find_ways(s->ctx->dtype, call, ways), best = 0;

	for (int i = 0; i < n; i++) {
		ways[i].seconds = seconds_of(s, &ways[i], sums);
		if (ways[i].seconds < ways[best].seconds)
			best = i;
	}
	return ways[best];
}

/* ---- its scratch memory ---- */

struct turned_sizes {
	size_t a, b, partial;
};

static struct turned_sizes sizes_of(const struct product *p, bool sums)
{
	struct operand a = operand_a(&p->call), b = operand_b(&p->call);
	struct turned_sizes sizes = {};

	if (p->turn_a)
		sizes.a = turned_bytes(a);
	if (p->turn_b)
		sizes.b = turned_bytes(b);
	if (p->turn_b && sums)
		sizes.partial = (size_t)(turn_parts(b.rows) * b.width) * sizeof(float);
	return sizes;
}

size_t product_scratch_bytes(enum k_dtype dtype, const struct gemm_call *call, bool sums)
{
	struct product ways[WAYS];
	int n = find_ways(dtype, call, ways);
	size_t most = 0;

	for (int i = 0; i < n; i++) {
		struct turned_sizes sizes = sizes_of(&ways[i], sums);

		if (sizes.a + sizes.b + sizes.partial > most)
			most = sizes.a + sizes.b + sizes.partial;
	}
	return most;
}

/* ---- running it ---- */

void product_run(struct k_stream *s, const char *name, const struct product *p, void *sums)
{
	struct operand a = operand_a(&p->call), b = operand_b(&p->call);
	struct turned_sizes sizes = sizes_of(p, sums != NULL);
	bool along = sums && p->turn_b;
	float *partial = NULL, *a_turned, *b_turned;
	struct gemm_call c;
	char *memory;

	if (!stream_ready(s))
		return;
	if (sizes.a + sizes.b == 0) {
		gemm_run(s, name, &p->call);
		if (sums)
			column_sum_add(s, sums, p->call.b, b.rows, b.width);
		return;
	}
	/* if this fails, the product does not run unturned: that gives other last bits */
	memory = (char *)stream_scratch(s, sizes.a + sizes.b + sizes.partial);
	if (!memory)
		return;
	a_turned = (float *)memory;
	b_turned = (float *)(memory + sizes.a);
	if (along)
		partial = (float *)(memory + sizes.a + sizes.b);
	if (p->turn_a)
		turn_matrix(s, a_turned, NULL, (const float *)a.memory, a.rows, a.width);
	if (p->turn_b)
		turn_matrix(s, b_turned, partial, (const float *)b.memory, b.rows, b.width);
	if (along)
		column_sum_finish(s, &sums, 1, partial, turn_parts(b.rows), b.width, b.width);
	c = turned_call(p, a_turned, b_turned);
	gemm_run(s, name, &c);
	if (sums && !along) /* uses scratch memory, so after the product */
		column_sum_add(s, sums, p->call.b, b.rows, b.width);
}
