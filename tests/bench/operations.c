#include "tests/bench/operations.h"

static void embedding_forward(struct k_stream *s, struct operations_tensors *t)
{
	k_embedding_forward(s, t->y, t->tokens, t->weight, t->x, t->s.B, t->s.T, t->C, NULL);
}

static void embedding_backward(struct k_stream *s, struct operations_tensors *t)
{
	k_embedding_backward(
		s, t->dweight, t->dx, t->x, t->tokens, NULL, t->s.B, t->s.T, t->C, NULL);
}

static void layernorm_forward(struct k_stream *s, struct operations_tensors *t)
{
	k_layernorm_forward(s, t->y, t->mean, t->rstd, t->x, t->bias, t->bias, t->R, t->C);
}

static void residual_layernorm(struct k_stream *s, struct operations_tensors *t)
{
	k_residual_layernorm_forward(
		s, t->z, t->y, t->mean, t->rstd, t->x, t->dx, t->bias, t->bias, t->R, t->C, NULL);
}

static void residual_layernorm_dropout(struct k_stream *s, struct operations_tensors *t)
{
	k_residual_layernorm_forward(s, t->z, t->y, t->mean, t->rstd, t->x, t->dx, t->bias, t->bias,
		t->R, t->C, &t->drop);
}

static void layernorm_backward(struct k_stream *s, struct operations_tensors *t)
{
	const size_t bytes = (size_t)t->C * sizeof(k_real);
	char *dweight = t->dbias;

	k_layernorm_backward(s, t->z, dweight, dweight + bytes, dweight + 2 * bytes, t->dx, t->y,
		t->x, t->bias, t->mean, t->rstd, t->R, t->C);
}

static void linear_qkv(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->weight, t->bias, t->R, t->C, 3 * t->C);
}

static void linear_square(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->weight, t->bias, t->R, t->C, t->C);
}

static void linear_gelu(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_gelu_forward(
		s, t->y, t->pre, t->x, t->weight, t->bias, t->R, t->C, 4 * t->C, K_GELU_TANH);
}

static void linear_gelu_exact(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_gelu_forward(
		s, t->y, t->pre, t->x, t->weight, t->bias, t->R, t->C, 4 * t->C, K_GELU_EXACT);
}

static void linear_down(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_forward(s, t->y, t->x, t->weight, t->bias, t->R, 4 * t->C, t->C);
}

static void linear_backward_qkv(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_backward(
		s, t->dx, t->dweight, t->dbias, t->y, t->x, t->weight, t->R, t->C, 3 * t->C);
}

static void linear_backward_square(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_backward(s, t->dx, t->dweight, t->dbias, t->y, t->x, t->weight, t->R, t->C, t->C);
}

static void linear_backward_up(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_backward(
		s, t->dx, t->dweight, t->dbias, t->y, t->x, t->weight, t->R, t->C, 4 * t->C);
}

static void linear_backward_down_gelu(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_backward_gelu(s, t->dx, t->dweight, t->dbias, NULL, t->y, t->x, t->pre, t->weight,
		t->R, 4 * t->C, t->C, K_GELU_TANH);
}

static void vocabulary(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_forward(s, t->logits, t->x, t->weight, NULL, t->R, t->C, t->s.Vp);
}

static void vocabulary_backward(struct k_stream *s, struct operations_tensors *t)
{
	k_linear_backward(
		s, t->dx, t->dweight, NULL, t->logits, t->x, t->weight, t->R, t->C, t->s.Vp);
}

static void attention_forward(struct k_stream *s, struct operations_tensors *t)
{
	k_attention_forward(s, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH, t->s.HS, NULL);
}

static void attention_backward(struct k_stream *s, struct operations_tensors *t)
{
	k_attention_backward(
		s, t->dx, NULL, t->z, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH, t->s.HS, NULL);
}

static void attention_forward_dropout(struct k_stream *s, struct operations_tensors *t)
{
	k_attention_forward(s, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH, t->s.HS, &t->drop);
}

static void attention_backward_dropout(struct k_stream *s, struct operations_tensors *t)
{
	k_attention_backward(s, t->dx, NULL, t->z, t->y, t->mean, t->x, t->s.B, t->s.T, t->s.NH,
		t->s.HS, &t->drop);
}

static void cross_entropy(struct k_stream *s, struct operations_tensors *t)
{
	k_cross_entropy(s, t->mean, t->logits, t->tokens, t->R, t->s.V, t->s.Vp, 1e-3, NULL);
}

static void sum_squares(struct k_stream *s, struct operations_tensors *t)
{
	k_sum_squares(s, t->sum, t->grads, t->params);
}

static void adamw(struct k_stream *s, struct operations_tensors *t)
{
	k_adamw_step(s,
		&(struct k_adamw){.beta1 = 0.9,
			.beta2 = 0.95,
			.eps = 1e-8,
			.weight_decay = 0.1,
			.master = t->master,
			.params = t->params_low,
			.grads = t->grads,
			.m = t->m,
			.v = t->v,
			.ranges = t->range,
			.n_ranges = 1,
			.decayed = t->range,
			.n_decayed = 1},
		t->step);
}

static void init_normal(struct k_stream *s, struct operations_tensors *t)
{
	k_init_normal(s, t->m, t->params, 1, 2, 0, 0, 0.02);
}

static void cast(struct k_stream *s, struct operations_tensors *t)
{
	k_cast(s, t->params_low, t->master, t->params);
}

static void sum_in_order(struct k_stream *s, struct operations_tensors *t)
{
	const void *srcs[] = {t->grads, t->params_low};

	k_sum_in_order(s, t->grads, srcs, 2, t->params);
}

const struct operations_row operations_rows[] = {
	{"embedding_forward", embedding_forward, OPERATIONS_RC, 0, 2, 0},
	{"embedding_backward", embedding_backward, OPERATIONS_RC, 0, 3, 0},
	{"layernorm_forward", layernorm_forward, OPERATIONS_RC, 0, 2, 0},
	{"residual_layernorm", residual_layernorm, OPERATIONS_RC, 0, 4, 0},
	{"residual_layernorm_dropout", residual_layernorm_dropout, OPERATIONS_RC, 0, 4, 0},
	{"layernorm_backward", layernorm_backward, OPERATIONS_RC, 0, 4, 0},
	{"linear_qkv", linear_qkv, OPERATIONS_RCC, 6, 0, 0},
	{"linear_square", linear_square, OPERATIONS_RCC, 2, 0, 0},
	{"linear_gelu_tanh", linear_gelu, OPERATIONS_RCC, 8, 0, 0},
	{"linear_gelu_exact", linear_gelu_exact, OPERATIONS_RCC, 8, 0, 0},
	{"linear_down", linear_down, OPERATIONS_RCC, 8, 0, 0},
	{"linear_backward_qkv", linear_backward_qkv, OPERATIONS_RCC, 12, 0, 0},
	{"linear_backward_square", linear_backward_square, OPERATIONS_RCC, 4, 0, 0},
	{"linear_backward_up", linear_backward_up, OPERATIONS_RCC, 16, 0, 0},
	{"linear_backward_down_gelu", linear_backward_down_gelu, OPERATIONS_RCC, 16, 0, 0},
	{"vocabulary", vocabulary, OPERATIONS_RVC, 2, 0, 0},
	{"vocabulary_backward", vocabulary_backward, OPERATIONS_RVC, 4, 0, 0},
	{"attention_forward", attention_forward, OPERATIONS_ATTENTION, 2, 0, 0},
	{"attention_forward_dropout", attention_forward_dropout, OPERATIONS_ATTENTION, 2, 0, 0},
	{"attention_backward", attention_backward, OPERATIONS_ATTENTION, 5, 0, 0},
	{"attention_backward_dropout", attention_backward_dropout, OPERATIONS_ATTENTION, 5, 0, 0},
	{"cross_entropy", cross_entropy, OPERATIONS_RV, 0, 2, 0},
	{"sum_squares", sum_squares, OPERATIONS_PARAMS, 0, 1, 0},
	{"adamw", adamw, OPERATIONS_PARAMS, 0, 2, 6},
	{"init_normal", init_normal, OPERATIONS_PARAMS, 0, 0, 1},
	{"cast", cast, OPERATIONS_PARAMS, 0, 1, 1},
	{"sum_in_order_2", sum_in_order, OPERATIONS_PARAMS, 0, 3, 0},
};
const size_t operations_n_rows = sizeof operations_rows / sizeof operations_rows[0];

bool operations_has(const struct operations_row *row, const struct operations_tensors *t)
{
	return row->run != cast || t->params_low != (void *)t->master;
}

static double unit_size(enum operations_unit unit, const struct operations_tensors *t)
{
	double R = (double)t->R, C = (double)t->C;

	switch (unit) {
	case OPERATIONS_RC:
		return R * C;
	case OPERATIONS_RCC:
		return R * C * C;
	case OPERATIONS_RVC:
		return R * (double)t->s.Vp * C;
	case OPERATIONS_ATTENTION:
		return R * C * (double)(t->s.T + 1);
	case OPERATIONS_RV:
		return R * (double)t->s.Vp;
	case OPERATIONS_PARAMS:
		return (double)t->params;
	}
	return 0;
}

double operations_flops(const struct operations_row *row, const struct operations_tensors *t)
{
	return row->flops * unit_size(row->unit, t);
}

double operations_bytes(
	const struct operations_row *row, const struct operations_tensors *t, size_t elem_bytes)
{
	double elems = row->elems;

	if (row->run == adamw && t->params_low == (void *)t->master)
		elems--; /* they are written as master */
	return (elems * (double)elem_bytes + row->reals * sizeof(k_real)) * unit_size(row->unit, t);
}
