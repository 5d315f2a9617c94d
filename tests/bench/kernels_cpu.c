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

struct shape {
	const char *name;
	int64_t B, T, NH, HS, V, Vp, layers;
};

static const struct shape shapes[] = {
	{"nano", 8, 64, 2, 64, 257, 320, 2},
	{"gpt2", 1, 1024, 12, 64, 50257, 50304, 12},
};

/* Everything an operation may need, sized for one shape. */
struct tensors {
	struct shape s;
	int64_t R, C;
	k_real *x, *y, *z;        /* (R,4C) */
	k_real *dx;               /* (R,4C) */
	k_real *weight, *dweight; /* (Vp,C), at least (4C,C) */
	k_real *bias, *dbias;     /* (4C) */
	k_real *mean, *rstd;      /* (R,NH) */
	k_real *logits;           /* (R,Vp) */
	k_real *m, *v;            /* (Vp,C) */
	int32_t *tokens;
	struct k_dropout drop;
	struct k_exact_sum *sum;
	struct k_step_state *step;
	struct k_range *range;
};

struct ceilings {
	double flops, bytes; /* per second */
};

typedef void operation(struct k_stream *s, struct tensors *t);

static void embedding_forward(struct k_stream *s, struct tensors *t)
{
	k_embedding_forward(s, t->x, t->tokens, t->weight, t->m, t->s.B, t->s.T, t->C, NULL);
}

static void embedding_backward(struct k_stream *s, struct tensors *t)
{
	k_embedding_backward(
		s, t->dweight, t->v, t->x, t->tokens, NULL, t->s.B, t->s.T, t->C, NULL);
}

static void layernorm_forward(struct k_stream *s, struct tensors *t)
{
	k_layernorm_forward(s, t->y, t->mean, t->rstd, t->x, t->bias, t->bias, t->R, t->C);
}

static void residual_layernorm(struct k_stream *s, struct tensors *t)
{
	k_residual_layernorm_forward(
		s, t->z, t->y, t->mean, t->rstd, t->x, t->dx, t->bias, t->bias, t->R, t->C, NULL);
}

static void residual_layernorm_dropout(struct k_stream *s, struct tensors *t)
{
	k_residual_layernorm_forward(s, t->z, t->y, t->mean, t->rstd, t->x, t->dx, t->bias, t->bias,
		t->R, t->C, &t->drop);
}

static void layernorm_backward(struct k_stream *s, struct tensors *t)
{
	k_layernorm_backward(s, t->dx, t->dbias, t->dbias + t->C, NULL, t->dx, t->y, t->x, t->bias,
		t->mean, t->rstd, t->R, t->C);
}

static void linear_qkv(struct k_stream *s, struct tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->weight, t->bias, t->R, t->C, 3 * t->C);
}

static void linear_square(struct k_stream *s, struct tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->weight, t->bias, t->R, t->C, t->C);
}

static void linear_gelu(struct k_stream *s, struct tensors *t)
{
	k_linear_gelu_forward(
		s, t->y, t->z, t->x, t->weight, t->bias, t->R, t->C, 4 * t->C, K_GELU_TANH);
}

static void linear_gelu_exact(struct k_stream *s, struct tensors *t)
{
	k_linear_gelu_forward(
		s, t->y, t->z, t->x, t->weight, t->bias, t->R, t->C, 4 * t->C, K_GELU_EXACT);
}

static void linear_down(struct k_stream *s, struct tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->weight, t->bias, t->R, 4 * t->C, t->C);
}

static void linear_backward_qkv(struct k_stream *s, struct tensors *t)
{
	k_linear_backward(
		s, t->dx, t->dweight, t->dbias, t->y, t->x, t->weight, t->R, t->C, 3 * t->C);
}

static void linear_backward_down_gelu(struct k_stream *s, struct tensors *t)
{
	k_linear_backward_gelu(s, t->dx, t->dweight, t->dbias, NULL, t->y, t->x, t->z, t->weight,
		t->R, 4 * t->C, t->C, K_GELU_TANH);
}

static void linear_backward_up(struct k_stream *s, struct tensors *t)
{
	k_linear_backward(
		s, t->dx, t->dweight, t->dbias, t->y, t->x, t->weight, t->R, t->C, 4 * t->C);
}

static void vocabulary(struct k_stream *s, struct tensors *t)
{
	k_linear_forward(s, t->logits, t->x, t->weight, NULL, t->R, t->C, t->s.Vp);
}

static void vocabulary_backward(struct k_stream *s, struct tensors *t)
{
	k_linear_backward(
		s, t->dx, t->dweight, NULL, t->logits, t->x, t->weight, t->R, t->C, t->s.Vp);
}

static void attention_forward(struct k_stream *s, struct tensors *t)
{
	k_attention_forward(s, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH, t->s.HS, NULL);
}

static void attention_backward(struct k_stream *s, struct tensors *t)
{
	k_attention_backward(s, t->dx, NULL, t->z, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH,
		t->s.HS, NULL);
}

static void attention_forward_dropout(struct k_stream *s, struct tensors *t)
{
	k_attention_forward(s, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH, t->s.HS, &t->drop);
}

static void cross_entropy(struct k_stream *s, struct tensors *t)
{
	k_cross_entropy(s, t->mean, t->logits, t->tokens, t->R, t->s.V, t->s.Vp, 1e-3, NULL);
}

static void sum_squares(struct k_stream *s, struct tensors *t)
{
	k_sum_squares(s, t->sum, t->dweight, t->s.Vp * t->C);
}

static void adamw(struct k_stream *s, struct tensors *t)
{
	k_adamw_step(s,
		&(struct k_adamw){.beta1 = 0.9,
			.beta2 = 0.95,
			.eps = 1e-8,
			.weight_decay = 0.1,
			.master = t->weight,
			.params = t->weight,
			.grads = t->dweight,
			.m = t->m,
			.v = t->v,
			.ranges = t->range,
			.n_ranges = 1,
			.decayed = t->range,
			.n_decayed = 1},
		t->step);
}

static void init_normal(struct k_stream *s, struct tensors *t)
{
	k_init_normal(s, t->m, t->s.Vp * t->C, 1, 2, 0, 0, 0.02);
}

static void sum_in_order(struct k_stream *s, struct tensors *t)
{
	const void *srcs[] = {t->m, t->v};

	k_sum_in_order(s, t->dweight, srcs, 2, t->s.Vp * t->C);
}

/* Work in units: flops and bytes are multiples of the named product of sizes. */
enum unit { RC, RCC, RVC, ATTENTION, RV, VC };

static const struct {
	const char *name;
	operation *op;
	enum unit unit;
	double flops; /* per unit; 0: bounded by memory */
	double bytes; /* per unit */
} operations[] = {
	{"embedding_forward", embedding_forward, RC, 0, 12},
	{"embedding_backward", embedding_backward, RC, 0, 20},
	{"layernorm_forward", layernorm_forward, RC, 0, 8},
	{"residual_layernorm", residual_layernorm, RC, 0, 16},
	{"residual_layernorm_dropout", residual_layernorm_dropout, RC, 0, 16},
	{"layernorm_backward", layernorm_backward, RC, 0, 16},
	{"linear_qkv", linear_qkv, RCC, 6, 0},
	{"linear_square", linear_square, RCC, 2, 0},
	{"linear_gelu_tanh", linear_gelu, RCC, 8, 0},
	{"linear_gelu_exact", linear_gelu_exact, RCC, 8, 0},
	{"linear_down", linear_down, RCC, 8, 0},
	{"linear_backward_qkv", linear_backward_qkv, RCC, 12, 0},
	{"linear_backward_up", linear_backward_up, RCC, 16, 0},
	{"linear_backward_down_gelu", linear_backward_down_gelu, RCC, 16, 0},
	{"vocabulary", vocabulary, RVC, 2, 0},
	{"vocabulary_backward", vocabulary_backward, RVC, 4, 0},
	{"attention_forward", attention_forward, ATTENTION, 2, 0},
	{"attention_forward_dropout", attention_forward_dropout, ATTENTION, 2, 0},
	{"attention_backward", attention_backward, ATTENTION, 5, 0},
	{"cross_entropy", cross_entropy, RV, 0, 8},
	{"sum_squares", sum_squares, VC, 0, 4},
	{"adamw", adamw, VC, 0, 28},
	{"init_normal", init_normal, VC, 0, 4},
	{"sum_in_order_2", sum_in_order, VC, 0, 12},
};

/* ATTENTION: a product of matrices over the causal half, flops included. */
static double unit_size(enum unit unit, const struct tensors *t)
{
	double R = (double)t->R, C = (double)t->C, V = (double)t->s.Vp;

	switch (unit) {
	case RC:
		return R * C;
	case RCC:
		return R * C * C;
	case RVC:
		return R * V * C;
	case ATTENTION:
		return R * C * (double)(t->s.T + 1);
	case RV:
		return R * V;
	case VC:
		return V * C;
	}
	return 0;
}

static double seconds(operation *op, struct k_stream *s, struct tensors *t)
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

static void make_tensors(struct k_stream *s, struct tensors *t, const struct shape *shape)
{
	int64_t R = shape->B * shape->T, C = shape->NH * shape->HS, wide = R * 4 * C;
	int64_t most = shape->Vp > 4 * C ? shape->Vp : 4 * C;

	*t = (struct tensors){.s = *shape, .R = R, .C = C};
	t->x = make(s, wide, 1);
	t->y = make(s, wide, 1);
	t->z = make(s, wide, 1);
	t->dx = make(s, wide, 1);
	t->weight = make(s, most * C, 0.02);
	t->dweight = make(s, most * C, 0.02);
	t->m = make(s, most * C, 0.02);
	t->v = make(s, most * C, 0);
	t->bias = make(s, 4 * C, 1);
	t->dbias = make(s, 4 * C, 1);
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
	*t->range = (struct k_range){0, shape->Vp * C};
}

static void free_tensors(struct k_context *ctx, struct tensors *t)
{
	void *all[] = {t->x, t->y, t->z, t->dx, t->weight, t->dweight, t->m, t->v, t->bias,
		t->dbias, t->mean, t->rstd, t->logits, t->tokens, t->sum, t->step, t->range};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		k_free(ctx, all[i]);
}

static void blas_ceiling(struct k_stream *s, struct tensors *t)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1024, 1024, 1024, 1, t->x, 1024,
		t->y, 1024, 0, t->z, 1024);
}

static void copy_ceiling(struct k_stream *s, struct tensors *t)
{
	k_copy(s, t->m, t->v, (size_t)(t->s.Vp * t->C) * sizeof *t->m);
}

static struct ceilings measure_ceilings(struct k_stream *s, int threads)
{
	struct ceilings c;
	struct tensors t;

	make_tensors(s, &t, &shapes[1]);
	openblas_set_num_threads(threads);
	c.flops = 2.0 * 1024 * 1024 * 1024 / seconds(blas_ceiling, s, &t);
	openblas_set_num_threads(1);
	c.bytes = 2.0 * (double)(t.s.Vp * t.C) * sizeof(k_real) / seconds(copy_ceiling, s, &t);
	free_tensors(s->ctx, &t);
	return c;
}

static void print_shape(
	struct k_stream *s, const struct shape *shape, const struct ceilings *c, const char *only)
{
	struct tensors t;

	make_tensors(s, &t, shape);
	printf("\n%s: B %lld T %lld C %lld heads %lld V %lld\n", shape->name, (long long)shape->B,
		(long long)shape->T, (long long)t.C, (long long)shape->NH, (long long)shape->Vp);
	for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
		double took, size = unit_size(operations[i].unit, &t);

		if (only && !strstr(operations[i].name, only))
			continue;
		took = seconds(operations[i].op, s, &t);
		printf("%-28s %10.4f ms", operations[i].name, took * 1e3);
		if (operations[i].flops > 0)
			printf("  %8.1f GFLOP/s %5.2f of BLAS\n",
				operations[i].flops * size / took / 1e9,
				operations[i].flops * size / took / c->flops);
		else
			printf("  %8.1f GB/s    %5.2f of copy\n",
				operations[i].bytes * size / took / 1e9,
				operations[i].bytes * size / took / c->bytes);
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
