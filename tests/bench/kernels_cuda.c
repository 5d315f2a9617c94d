/*
 * kernels_cuda: what each operation of the CUDA library costs at the shapes of GPT-2 124M, beside
 * two ceilings measured in the same run: a large matrix product and copying device memory.
 *
 *   bench_kernels_cuda [bf16|fp16|tf32|fp32 [OPERATION [ways]]]
 *
 * ways: attention also by each way of it that this GPU has, in turn with the others of a round.
 *
 * A figure is the median of several rounds, each of as many calls as take some milliseconds, timed
 * by events of the device. Operations of a few microseconds are launched one by one: what is shown
 * for those is bounded by launching.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/operations.h"

enum { ROUNDS = 7, BIG = 8192, WAYS = K_ATTENTION_WGMMA + 1 };
static const int64_t wait_ns = 60000000000;
static const double round_ns = 4e6;

static const struct operations_shape shapes[] = {
	{"B 32, T 128", 32, 128, 12, 64, 50257, 50304},
	{"micro 2, T 512", 2, 512, 12, 64, 50257, 50304},
	{"B 16, T 512", 16, 512, 12, 64, 50257, 50304},
	{"B 64, T 1024", 64, 1024, 12, 64, 50257, 50304},
};

struct bench {
	struct k_context *ctx;
	struct k_stream *s;
	struct k_event *from, *to;
	double flops, bytes; /* ceilings, per second */
	/* of the same device, each made for one way of attention; by enum k_attention */
	struct bench *ways[WAYS];
};

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double time_round(
	struct bench *b, operations_run *op, struct operations_tensors *t, int times)
{
	k_event_record(b->from, b->s);
	for (int i = 0; i < times; i++)
		op(b->s, t);
	k_event_record(b->to, b->s);
	if (k_event_sync(b->to, wait_ns) < 0) {
		fprintf(stderr, "bench_kernels_cuda: %s\n",
			k_context_error(b->ctx) ? k_context_error(b->ctx) : "no end");
		exit(1);
	}
	return (double)k_event_elapsed_ns(b->from, b->to) / times;
}

static int calls_of_round(struct bench *b, operations_run *op, struct operations_tensors *t)
{
	double calls;

	time_round(b, op, t, 1);
	calls = 1 + round_ns / time_round(b, op, t, 1);
	return calls < 1000 ? (int)calls : 1000;
}

/* median, in seconds */
static double seconds(struct bench *b, operations_run *op, struct operations_tensors *t)
{
	double took[ROUNDS];
	int times = calls_of_round(b, op, t);

	for (int i = 0; i < ROUNDS; i++)
		took[i] = time_round(b, op, t, times);
	qsort(took, ROUNDS, sizeof took[0], ascending);
	return took[ROUNDS / 2] * 1e-9;
}

static void *alloc(struct bench *b, size_t bytes)
{
	void *memory = k_alloc(b->ctx, bytes);

	if (!memory) {
		fprintf(stderr, "bench_kernels_cuda: no memory for %zu bytes\n", bytes);
		exit(1);
	}
	return memory;
}

/* Normal random numbers in the compute type, never zeros: those are faster. */
static void *make(struct bench *b, int64_t n, double std)
{
	const int64_t piece = INT64_C(1) << 26;
	char *out = alloc(b, (size_t)n * k_elem_bytes(b->ctx));
	k_real *x = alloc(b, (size_t)piece * sizeof *x);

	for (int64_t at = 0; at < n; at += piece) {
		int64_t some = n - at < piece ? n - at : piece;

		k_init_normal(b->s, x, some, 1, 2, at, 0, std);
		k_cast(b->s, out + (size_t)at * k_elem_bytes(b->ctx), x, some);
	}
	k_stream_sync(b->s, wait_ns);
	k_free(b->ctx, x);
	return out;
}

static k_real *make_real(struct bench *b, int64_t n, double std)
{
	k_real *x = alloc(b, (size_t)n * sizeof *x);

	k_init_normal(b->s, x, n, 1, 3, 0, 0, std);
	return x;
}

static void make_small(struct bench *b, struct operations_tensors *t)
{
	struct k_step_state step = {.lr = 1e-4, .t = 10, .grad_mul = 1};
	struct k_range range = {0, t->params};
	int32_t *tokens = malloc((size_t)t->R * sizeof *tokens);

	if (!tokens)
		exit(1);
	for (int64_t r = 0; r < t->R; r++)
		tokens[r] = (int32_t)(r * 7919 % t->s.V);
	t->tokens = alloc(b, (size_t)t->R * sizeof *tokens);
	t->sum = alloc(b, sizeof *t->sum);
	t->step = alloc(b, sizeof step);
	t->range = alloc(b, sizeof range);
	k_copy_in(b->s, t->tokens, tokens, (size_t)t->R * sizeof *tokens);
	k_copy_in(b->s, t->step, &step, sizeof step);
	k_copy_in(b->s, t->range, &range, sizeof range);
	k_stream_sync(b->s, wait_ns);
	free(tokens);
}

static void *make_pre(struct bench *b, const struct operations_tensors *t)
{
	size_t bytes = (size_t)(t->R * 4 * t->C) * k_elem_bytes(b->ctx);
	void *pre = alloc(b, bytes), *out = alloc(b, bytes);

	k_linear_gelu_forward(
		b->s, out, pre, t->x, t->weight, t->bias, t->R, t->C, 4 * t->C, K_GELU_TANH);
	k_stream_sync(b->s, wait_ns);
	k_free(b->ctx, out);
	return pre;
}

static void make_tensors(
	struct bench *b, struct operations_tensors *t, const struct operations_shape *shape)
{
	int64_t R = shape->B * shape->T, C = shape->NH * shape->HS, wide = R * 4 * C;

	*t = (struct operations_tensors){.s = *shape, .R = R, .C = C, .params = 124475904};
	t->x = make(b, wide, 1);
	t->y = make(b, wide, 1);
	t->z = make(b, wide, 1);
	t->dx = make(b, wide, 1);
	t->weight = make(b, shape->Vp * C, 0.02);
	t->dweight = make(b, shape->Vp * C, 0.02);
	t->bias = make(b, 8 * C, 1);
	t->pre = make_pre(b, t);
	t->dbias = make(b, 8 * C, 1);
	t->mean = make_real(b, R * shape->NH, 1);
	t->rstd = make_real(b, R * shape->NH, 1);
	t->logits = make(b, R * shape->Vp, 1);
	t->master = make_real(b, t->params, 0.02);
	t->m = make_real(b, t->params, 0.02);
	t->v = make_real(b, t->params, 0);
	t->params_low = make(b, t->params, 0.02);
	t->grads = make(b, t->params, 0.02);
	t->drop = (struct k_dropout){0.1, 1, 2};
	make_small(b, t);
}

static void free_tensors(struct bench *b, struct operations_tensors *t)
{
	void *all[] = {t->x, t->y, t->z, t->dx, t->pre, t->weight, t->dweight, t->bias, t->dbias,
		t->mean, t->rstd, t->logits, t->master, t->m, t->v, t->params_low, t->grads,
		t->tokens, t->sum, t->step, t->range};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		k_free(b->ctx, all[i]);
}

static void big_product(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->z, NULL, BIG, BIG, BIG);
}

static void big_copy(struct k_stream *s, struct operations_tensors *t)
{
	k_copy(s, t->m, t->v, (size_t)BIG * BIG * 8 * sizeof *t->m);
}

static void measure_ceilings(struct bench *b)
{
	struct operations_tensors t = {.m = NULL};
	int64_t n = (int64_t)BIG * BIG;

	t.x = make(b, n, 1);
	t.y = make(b, n, 1);
	t.z = make(b, n, 1);
	t.m = alloc(b, (size_t)n * 8 * sizeof *t.m);
	t.v = make_real(b, 8 * n, 1);
	b->flops = 2.0 * BIG * (double)n / seconds(b, big_product, &t);
	b->bytes = 2.0 * 8 * (double)n * sizeof *t.m / seconds(b, big_copy, &t);
	k_free(b->ctx, t.x);
	k_free(b->ctx, t.y);
	k_free(b->ctx, t.z);
	k_free(b->ctx, t.m);
	k_free(b->ctx, t.v);
}

static void print_operation(struct bench *b, const struct operations_row *row,
	const struct operations_tensors *t, double took)
{
	double work;

	printf("%-28s %10.2f us", row->name, took * 1e6);
	if (row->flops > 0) {
		work = operations_flops(row, t) / took;
		printf("  %8.1f TFLOP/s %5.2f of the product", work / 1e12, work / b->flops);
	} else {
		work = operations_bytes(row, t, k_elem_bytes(b->ctx)) / took;
		printf("  %8.1f GB/s    %5.2f of the copy", work / 1e9, work / b->bytes);
	}
}

/* Each way in turn, ROUNDS times. */
static void print_ways(
	struct bench *b, const struct operations_row *row, struct operations_tensors *t)
{
	double took[WAYS][ROUNDS];
	int times[WAYS];

	for (int round = -1; round < ROUNDS; round++) {
		for (int way = 0; way < WAYS; way++) {
			if (!b->ways[way])
				continue;
			if (round < 0)
				times[way] = calls_of_round(b->ways[way], row->run, t);
			else
				took[way][round] =
					1e-9 * time_round(b->ways[way], row->run, t, times[way]);
		}
	}
	for (int way = 0; way < WAYS; way++) {
		static const char *const names[WAYS] = {
			"best", "plain", "tiled", "wmma", "mma", "wgmma"};

		if (!b->ways[way])
			continue;
		qsort(took[way], ROUNDS, sizeof took[way][0], ascending);
		print_operation(b, row, t, took[way][ROUNDS / 2]);
		printf(" %-5s %.2f .. %.2f us\n", names[way], took[way][0] * 1e6,
			took[way][ROUNDS - 1] * 1e6);
	}
}

static void print_shape(struct bench *b, const struct operations_shape *shape, const char *only)
{
	struct operations_tensors t;

	make_tensors(b, &t, shape);
	printf("\n%s\n", shape->name);
	for (size_t i = 0; i < operations_n_rows; i++) {
		const struct operations_row *row = &operations_rows[i];

		if ((only && !strstr(row->name, only)) || !operations_has(row, &t))
			continue;
		if (b->ways[K_ATTENTION_BEST] && row->unit == OPERATIONS_ATTENTION) {
			print_ways(b, row, &t);
		} else {
			print_operation(b, row, &t, seconds(b, row->run, &t));
			printf("\n");
		}
		fflush(stdout);
	}
	free_tensors(b, &t);
}

static int dtype_of(const char *name)
{
	static const char *const names[] = {"fp32", "tf32", "bf16", "fp16"};
	static const enum k_dtype dtypes[] = {K_FP32, K_TF32, K_BF16, K_FP16};

	for (int i = 0; i < 4; i++) {
		if (strcmp(names[i], name) == 0)
			return (int)dtypes[i];
	}
	return -1;
}

static bool bench_init(struct bench *b, enum k_dtype dtype, enum k_attention way)
{
	struct k_context_options options = {.threads = 1, .attention = way};

	return k_context_create(&options, &b->ctx) == 0 &&
		k_context_set_dtype(b->ctx, dtype) == 0 &&
		k_stream_create(b->ctx, K_STREAM_COMPUTE, "compute", &b->s) == 0 &&
		k_event_create(b->ctx, &b->from) == 0 && k_event_create(b->ctx, &b->to) == 0;
}

static void bench_finish(struct bench *b)
{
	if (k_context_error(b->ctx))
		fprintf(stderr, "bench_kernels_cuda: %s\n", k_context_error(b->ctx));
	k_event_destroy(b->from);
	k_event_destroy(b->to);
	k_stream_destroy(b->s);
	k_context_destroy(b->ctx);
}

/* Those that run: a way that is not there fails its context. */
static void make_ways(struct bench *b, struct bench *ways, enum k_dtype dtype)
{
	size_t elems = 3 * 64;
	void *memory = alloc(b, 2 * elems * k_elem_bytes(b->ctx));
	k_real *lse = make_real(b, 1, 1);

	k_stream_sync(b->s, wait_ns);
	for (int way = 0; way < WAYS; way++) {
		if (!bench_init(&ways[way], dtype, (enum k_attention)way))
			exit(1);
		k_attention_forward(ways[way].s, (char *)memory + elems * k_elem_bytes(b->ctx), lse,
			memory, 1, 1, 1, 64, NULL);
		if (k_stream_sync(ways[way].s, wait_ns) == 0 && !k_context_error(ways[way].ctx))
			b->ways[way] = &ways[way];
	}
	k_free(b->ctx, memory);
	k_free(b->ctx, lse);
}

int main(int argc, char **argv)
{
	const char *type = argc > 1 ? argv[1] : "bf16";
	struct k_device_info info;
	struct bench b = {.ctx = NULL}, ways[WAYS] = {{.ctx = NULL}};
	int dtype = dtype_of(type);

	if (dtype < 0 || (argc > 3 && strcmp(argv[3], "ways") != 0)) {
		fprintf(stderr,
			"usage: bench_kernels_cuda [bf16|fp16|tf32|fp32 [OPERATION [ways]]]\n");
		return 2;
	}
	if (!bench_init(&b, (enum k_dtype)dtype, K_ATTENTION_BEST)) {
		fprintf(stderr, "bench_kernels_cuda: no GPU for %s\n", type);
		return 1;
	}
	if (argc > 3)
		make_ways(&b, ways, (enum k_dtype)dtype);
	k_context_info(b.ctx, &info);
	measure_ceilings(&b);
	printf("%s, %s, %s\nceilings: product %d^3 %.1f TFLOP/s, copy %.1f GB/s\n", info.name,
		info.library, type, BIG, b.flops / 1e12, b.bytes / 1e9);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		print_shape(&b, &shapes[i], argc > 2 ? argv[2] : NULL);
	for (int way = 0; argc > 3 && way < WAYS; way++) {
		if (b.ways[way])
			bench_finish(&ways[way]);
	}
	bench_finish(&b);
	return 0;
}
