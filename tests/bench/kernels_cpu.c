/*
 * kernels_cpu: what each operation of the CPU library costs, beside two ceilings measured in the
 * same run: a large matrix product by BLAS on the same threads, and copying memory. Best of several
 * rounds.
 *
 *   bench_kernels_cpu [THREADS [nano|gpt2 [OPERATION]]]
 */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"
#include "tests/bench/operations.h"

static const struct operations_shape shapes[] = {
	{"nano", 8, 64, 2, 64, 257, 320},
	{"gpt2", 1, 1024, 12, 64, 50257, 50304},
};

struct ceilings {
	double flops, bytes; /* per second */
};

static double seconds(operations_run *op, struct k_stream *s, struct operations_tensors *t)
{
	double best = 1e30;
	int64_t until = stream_now_ns() + 400000000;

	for (int round = 0; round < 3 || (round < 2000 && stream_now_ns() < until); round++) {
		int64_t from = stream_now_ns();
		double took;

		op(s, t);
		took = (double)(stream_now_ns() - from) * 1e-9;
		best = took < best ? took : best;
	}
	return best;
}

static void *make(struct k_stream *s, int64_t n, double std)
{
	k_real *x = k_alloc(s->ctx, (size_t)n * sizeof *x);

	if (!x) {
		fprintf(stderr, "bench_kernels_cpu: no memory for %lld elements\n", (long long)n);
		exit(1);
	}
	k_init_normal(s, x, n, 1, 2, 0, 0, std);
	return x;
}

static void make_tensors(
	struct k_stream *s, struct operations_tensors *t, const struct operations_shape *shape)
{
	int64_t R = shape->B * shape->T, C = shape->NH * shape->HS, wide = R * 4 * C;
	int64_t most = shape->Vp > 4 * C ? shape->Vp : 4 * C;

	*t = (struct operations_tensors){.s = *shape, .R = R, .C = C, .params = shape->Vp * C};
	t->x = make(s, wide, 1);
	t->y = make(s, wide, 1);
	t->z = make(s, wide, 1);
	t->dx = make(s, wide, 1);
	t->pre = t->z;
	t->weight = t->params_low = t->master = make(s, most * C, 0.02);
	t->dweight = t->grads = make(s, most * C, 0.02);
	t->m = make(s, most * C, 0.02);
	t->v = make(s, most * C, 0);
	t->bias = make(s, 8 * C, 1);
	t->dbias = make(s, 8 * C, 1);
	t->mean = make(s, R * shape->NH, 1);
	t->rstd = make(s, R * shape->NH, 1);
	t->logits = make(s, R * shape->Vp, 1);
	t->tokens = k_alloc(s->ctx, (size_t)R * sizeof *t->tokens);
	t->sum = k_alloc(s->ctx, sizeof *t->sum);
	t->step = k_alloc(s->ctx, sizeof *t->step);
	t->range = k_alloc(s->ctx, sizeof *t->range);
	for (int64_t r = 0; r < R; r++)
		t->tokens[r] = (int32_t)(r * 7919 % shape->V);
	t->drop = (struct k_dropout){0.1, 1, 2};
	*t->step = (struct k_step_state){.lr = 1e-4, .t = 10, .grad_mul = 1};
	*t->range = (struct k_range){0, t->params};
}

static void free_tensors(struct k_context *ctx, struct operations_tensors *t)
{
	void *all[] = {t->x, t->y, t->z, t->dx, t->weight, t->dweight, t->m, t->v, t->bias,
		t->dbias, t->mean, t->rstd, t->logits, t->tokens, t->sum, t->step, t->range};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		k_free(ctx, all[i]);
}

static void blas_ceiling(struct k_stream *s, struct operations_tensors *t)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1024, 1024, 1024, 1, t->x, 1024,
		t->y, 1024, 0, t->z, 1024);
}

static void copy_ceiling(struct k_stream *s, struct operations_tensors *t)
{
	k_copy(s, t->m, t->v, (size_t)t->params * sizeof *t->m);
}

static struct ceilings measure_ceilings(struct k_stream *s, int threads)
{
	struct ceilings c;
	struct operations_tensors t;

	make_tensors(s, &t, &shapes[1]);
	openblas_set_num_threads(threads);
	c.flops = 2.0 * 1024 * 1024 * 1024 / seconds(blas_ceiling, s, &t);
	openblas_set_num_threads(1);
	c.bytes = 2.0 * (double)t.params * sizeof(k_real) / seconds(copy_ceiling, s, &t);
	free_tensors(s->ctx, &t);
	return c;
}

static void print_shape(struct k_stream *s, const struct operations_shape *shape,
	const struct ceilings *c, const char *only)
{
	struct operations_tensors t;

	make_tensors(s, &t, shape);
	printf("\n%s: B %lld T %lld C %lld heads %lld V %lld\n", shape->name, (long long)shape->B,
		(long long)shape->T, (long long)t.C, (long long)shape->NH, (long long)shape->Vp);
	for (size_t i = 0; i < operations_n_rows; i++) {
		const struct operations_row *row = &operations_rows[i];
		double took, work;

		if ((only && !strstr(row->name, only)) || !operations_has(row, &t))
			continue;
		took = seconds(row->run, s, &t);
		printf("%-28s %10.4f ms", row->name, took * 1e3);
		if (row->flops > 0) {
			work = operations_flops(row, &t) / took;
			printf("  %8.1f GFLOP/s %5.2f of BLAS\n", work / 1e9, work / c->flops);
		} else {
			work = operations_bytes(row, &t, sizeof(k_real)) / took;
			printf("  %8.1f GB/s    %5.2f of copy\n", work / 1e9, work / c->bytes);
		}
	}
	free_tensors(s->ctx, &t);
}

int main(int argc, char **argv)
{
	struct k_context_options options = {.threads = argc > 1 ? atoi(argv[1]) : 2};
	struct k_device_info info;
	struct k_context *ctx;
	struct k_stream *s;
	struct ceilings c;

	if (k_context_create(&options, &ctx) < 0) {
		fprintf(stderr, "usage: bench_kernels_cpu [THREADS [nano|gpt2 [OPERATION]]]\n");
		return 2;
	}
	if (k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &s) < 0)
		return 1;
	k_context_info(ctx, &info);
	c = measure_ceilings(s, options.threads);
	printf("%s, %s, %s loops, %d threads\n", info.name, info.library, ctx->vec->name,
		options.threads);
	printf("ceilings: BLAS 1024^3 %.1f GFLOP/s, copy %.1f GB/s\n", c.flops / 1e9,
		c.bytes / 1e9);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		if (argc <= 2 || strcmp(argv[2], shapes[i].name) == 0)
			print_shape(s, &shapes[i], &c, argc > 3 ? argv[3] : NULL);
	}
	if (k_context_error(ctx))
		fprintf(stderr, "bench_kernels_cpu: %s\n", k_context_error(ctx));
	k_stream_destroy(s);
	k_context_destroy(ctx);
	return 0;
}
