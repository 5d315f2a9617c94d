#include "engine/train/model.h"

#include <assert.h>

/* Places of dropout, the numbers of one block. The embedding is place 0 of a pass. */
enum { DROP_ATTENTION, DROP_PROJ, DROP_FCPROJ, DROP_PER_BLOCK };

void model_init(struct model *m, struct k_context *ctx, struct k_stream *stream,
	const struct arena *arena, const struct activations_shape *shape,
	const struct model_buffers *buffers)
{
	assert(shape->elem_bytes == (int64_t)k_elem_bytes(ctx));
	*m = (struct model){
		.ctx = ctx,
		.stream = stream,
		.arena = arena,
		.spec = shape->model,
		.recompute = shape->recompute,
		.B = shape->B,
		.T = shape->T,
		.params = buffers->params,
		.grads = buffers->grads,
		.acts = buffers->acts,
	};
	activations_place(&m->layout, shape);
}

/* ---- positions ---- */

static void *at(const struct model *m, int64_t offset)
{
	return m->acts + offset;
}

static void *in_block(const struct model *m, int64_t layer, struct activations_tensor tensor)
{
	return m->acts + tensor.first + layer * tensor.stride;
}

static void *in_arena(const struct model *m, void *base, enum arena_tensor tensor, int64_t layer)
{
	const struct arena_entry *e = arena_find(m->arena, tensor, layer);

	assert(e && base);
	return (char *)base + (size_t)e->first * k_elem_bytes(m->ctx);
}

static void *param(const struct model *m, enum arena_tensor tensor, int64_t layer)
{
	return in_arena(m, m->params, tensor, layer);
}

static void *grad(const struct model *m, enum arena_tensor tensor, int64_t layer)
{
	return in_arena(m, m->grads, tensor, layer);
}

static enum arena_tensor head_tensor(const struct model *m)
{
	return m->spec->tied_head ? ARENA_WTE : ARENA_HEAD;
}

static enum k_gelu gelu_kind(const struct model *m)
{
	return m->spec->gelu == SPEC_GELU_TANH ? K_GELU_TANH : K_GELU_EXACT;
}

/* ---- hooks and dropout ---- */

/*
 * Part `layer` of the arena, as counted by arena_complete_after: n_layer is the end of the model,
 * -1 its start.
 */
static void announce_need(const struct model *m, const struct model_hooks *hooks, int64_t layer)
{
	int64_t from = layer == m->spec->n_layer ? 0 : arena_complete_after(m->arena, layer + 1);

	if (hooks && hooks->need)
		hooks->need(hooks->arg, from, arena_complete_after(m->arena, layer) - from);
}

static void announce_done(const struct model *m, const struct model_hooks *hooks, int64_t layer)
{
	if (hooks && hooks->done)
		hooks->done(hooks->arg, arena_complete_after(m->arena, layer),
			layer < 0 ? m->stream : k_stream_fork(m->stream));
}

uint64_t model_dropout_from(const struct spec_model *spec, int64_t sample)
{
	return (uint64_t)(sample * (spec->n_layer * DROP_PER_BLOCK + 1));
}

static struct k_dropout drop_at(const struct model *m, const struct model_pass *pass, int64_t index)
{
	return (struct k_dropout){
		.p = pass->dropout,
		.seed = pass->seed,
		.offset = model_dropout_from(m->spec, pass->first_sample) + (uint64_t)index,
		.offset_from = pass->dropout_from,
	};
}

static struct k_dropout drop_in_block(
	const struct model *m, const struct model_pass *pass, int64_t layer, int64_t which)
{
	return drop_at(m, pass, 1 + layer * DROP_PER_BLOCK + which);
}

/* ---- forward ---- */

/*
 * The norm at the start of block `layer`, or the final one; it first adds the output of the block
 * below.
 */
static void forward_norm(struct model *m, const struct model_pass *pass, int64_t layer)
{
	const struct activations *l = &m->layout;
	bool final = layer == m->spec->n_layer;
	enum arena_tensor w = final ? ARENA_LNF_W : ARENA_LN1_W;
	enum arena_tensor b = final ? ARENA_LNF_B : ARENA_LN1_B;
	int64_t of = final ? 0 : layer, R = m->B * m->T, C = m->spec->n_embd;
	void *residual = final ? at(m, l->residual_final) : in_block(m, layer, l->residual);
	void *out = final ? at(m, l->lnf) : in_block(m, layer, l->ln1);
	k_real *mean = final ? at(m, l->lnf_mean) : in_block(m, layer, l->ln1_mean);
	k_real *rstd = final ? at(m, l->lnf_rstd) : in_block(m, layer, l->ln1_rstd);
	struct k_dropout drop;

	if (layer == 0) {
		k_layernorm_forward(m->stream, out, mean, rstd, residual, param(m, w, of),
			param(m, b, of), R, C);
		return;
	}
	drop = drop_in_block(m, pass, layer - 1, DROP_FCPROJ);
	k_residual_layernorm_forward(m->stream, residual, out, mean, rstd,
		in_block(m, layer - 1, l->residual_mid), at(m, l->branch), param(m, w, of),
		param(m, b, of), R, C, &drop);
}

/* From the output of the block's first norm to attention's addition to the residual. */
static void forward_attention(struct model *m, const struct model_pass *pass, int64_t layer)
{
	const struct activations *l = &m->layout;
	int64_t R = m->B * m->T, C = m->spec->n_embd, NH = m->spec->n_head;
	struct k_dropout drop = drop_in_block(m, pass, layer, DROP_ATTENTION);
	char *qkv = in_block(m, layer, l->qkv);
	void *out = in_block(m, layer, l->attention);

	k_linear_forward(m->stream, qkv + (size_t)(pass->past * 3 * C) * k_elem_bytes(m->ctx),
		in_block(m, layer, l->ln1), param(m, ARENA_QKV_W, layer),
		param(m, ARENA_QKV_B, layer), R, C, 3 * C);
	if (pass->past > 0)
		k_attention_row(m->stream, out, qkv, pass->past + 1, NH, C / NH);
	else
		k_attention_forward(m->stream, out, in_block(m, layer, l->lse), qkv, m->B, m->T, NH,
			C / NH, &drop);
	k_linear_forward(m->stream, at(m, l->branch), in_block(m, layer, l->attention),
		param(m, ARENA_PROJ_W, layer), param(m, ARENA_PROJ_B, layer), R, C, C);
}

/* From there up to and including GELU. */
static void forward_gelu(struct model *m, const struct model_pass *pass, int64_t layer)
{
	const struct activations *l = &m->layout;
	int64_t R = m->B * m->T, C = m->spec->n_embd;
	struct k_dropout drop = drop_in_block(m, pass, layer, DROP_PROJ);

	k_residual_layernorm_forward(m->stream, in_block(m, layer, l->residual_mid),
		in_block(m, layer, l->ln2), in_block(m, layer, l->ln2_mean),
		in_block(m, layer, l->ln2_rstd), in_block(m, layer, l->residual), at(m, l->branch),
		param(m, ARENA_LN2_W, layer), param(m, ARENA_LN2_B, layer), R, C, &drop);
	k_linear_gelu_forward(m->stream, in_block(m, layer, l->fc), in_block(m, layer, l->fc_pre),
		in_block(m, layer, l->ln2), param(m, ARENA_FC_W, layer),
		param(m, ARENA_FC_B, layer), R, C, 4 * C, gelu_kind(m));
}

static void forward_block(struct model *m, const struct model_pass *pass, int64_t layer)
{
	const struct activations *l = &m->layout;
	int64_t R = m->B * m->T, C = m->spec->n_embd;

	forward_norm(m, pass, layer);
	forward_attention(m, pass, layer);
	forward_gelu(m, pass, layer);
	k_linear_forward(m->stream, at(m, l->branch), in_block(m, layer, l->fc),
		param(m, ARENA_FCPROJ_W, layer), param(m, ARENA_FCPROJ_B, layer), R, 4 * C, C);
}

/* Up to the final norm. */
static void forward_hidden(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks)
{
	const struct activations *l = &m->layout;
	int64_t C = m->spec->n_embd, n_layer = m->spec->n_layer;
	struct k_dropout drop = drop_at(m, pass, 0);
	const char *wpe = param(m, ARENA_WPE, 0);

	announce_need(m, hooks, -1);
	k_embedding_forward(m->stream, in_block(m, 0, l->residual), pass->tokens,
		param(m, ARENA_WTE, 0), wpe + (size_t)(pass->past * C) * k_elem_bytes(m->ctx), m->B,
		m->T, C, &drop);
	for (int64_t layer = 0; layer < n_layer; layer++) {
		announce_need(m, hooks, layer);
		forward_block(m, pass, layer);
	}
	announce_need(m, hooks, n_layer);
	forward_norm(m, pass, n_layer);
}

/* Logits of n rows. */
static void forward_head(struct model *m, int64_t row, int64_t n)
{
	const struct activations *l = &m->layout;
	int64_t C = m->spec->n_embd;
	const char *lnf = at(m, l->lnf);

	k_linear_forward(m->stream, at(m, l->logits),
		lnf + (size_t)(row * C) * k_elem_bytes(m->ctx), param(m, head_tensor(m), 0), NULL,
		n, C, m->arena->vocab_padded);
}

void model_forward(struct model *m, const struct model_pass *pass, const struct model_hooks *hooks)
{
	forward_hidden(m, pass, hooks);
	forward_head(m, 0, m->B * m->T);
}

const void *model_forward_row(struct model *m, const struct model_pass *pass, int64_t row)
{
	forward_hidden(m, pass, NULL);
	forward_head(m, row, 1);
	return at(m, m->layout.logits);
}

void model_loss(
	struct model *m, k_real *losses, const int32_t *targets, double scale, const double *times)
{
	k_cross_entropy(m->stream, losses, at(m, m->layout.logits), targets, m->B * m->T,
		m->arena->vocab, m->arena->vocab_padded, scale, times);
}

/* ---- recomputation ---- */

/* Writes the norms' statistics again, with the same bits. */
static void again_ln1(struct model *m, int64_t layer)
{
	const struct activations *l = &m->layout;

	k_layernorm_forward(m->stream, in_block(m, layer, l->ln1), in_block(m, layer, l->ln1_mean),
		in_block(m, layer, l->ln1_rstd), in_block(m, layer, l->residual),
		param(m, ARENA_LN1_W, layer), param(m, ARENA_LN1_B, layer), m->B * m->T,
		m->spec->n_embd);
}

static void again_ln2(struct model *m, int64_t layer)
{
	const struct activations *l = &m->layout;

	k_layernorm_forward(m->stream, in_block(m, layer, l->ln2), in_block(m, layer, l->ln2_mean),
		in_block(m, layer, l->ln2_rstd), in_block(m, layer, l->residual_mid),
		param(m, ARENA_LN2_W, layer), param(m, ARENA_LN2_B, layer), m->B * m->T,
		m->spec->n_embd);
}

static void again_gelu(struct model *m, int64_t layer)
{
	const struct activations *l = &m->layout;
	int64_t C = m->spec->n_embd;

	k_linear_gelu_again(m->stream, in_block(m, layer, l->fc), in_block(m, layer, l->fc_pre),
		in_block(m, layer, l->ln2), param(m, ARENA_FC_W, layer),
		param(m, ARENA_FC_B, layer), m->B * m->T, C, 4 * C, gelu_kind(m));
}

/*
 * The inputs of the MLP's gradients. Forward has left everything of the last block except the
 * norms, whose buffer the final norm used.
 */
static void again_for_mlp(struct model *m, const struct model_pass *pass, int64_t layer)
{
	bool last = layer == m->spec->n_layer - 1;

	if (m->recompute == SPEC_RECOMPUTE_NONE)
		return;
	if (m->recompute == SPEC_RECOMPUTE_FULL && !last) {
		again_ln1(m, layer);
		forward_attention(m, pass, layer);
		forward_gelu(m, pass, layer);
		return;
	}
	again_ln2(m, layer);
	if (!last)
		again_gelu(m, layer);
}

/* The remaining inputs of attention's gradients. */
static void again_for_attention(struct model *m, int64_t layer)
{
	if (m->recompute != SPEC_RECOMPUTE_NONE)
		again_ln1(m, layer);
}

/* ---- before backward ---- */

static bool is_linear_weight(const struct model *m, enum arena_tensor tensor)
{
	return tensor == ARENA_QKV_W || tensor == ARENA_PROJ_W || tensor == ARENA_FC_W ||
		tensor == ARENA_FCPROJ_W || tensor == head_tensor(m);
}

/* Elements from one block's tensor to the same tensor of the next block in the arena. */
static int64_t block_elems(const struct model *m, const struct arena_entry *e)
{
	return e->layer > 0 ? arena_find(m->arena, e->tensor, e->layer - 1)->first - e->first : 0;
}

/* Neighbours are zeroed together, and all blocks with the first one of the arena. */
void model_begin_gradients(struct model *m, struct k_stream *on)
{
	const struct arena_entry *e = m->arena->entries;
	int64_t n = m->arena->n_entries, top = m->spec->n_layer - 1, end;
	size_t elem = k_elem_bytes(m->ctx);

	for (int64_t i = 0; i < n; i = end) {
		bool block = e[i].tensor < ARENA_PER_BLOCK;
		int64_t until;

		end = i + 1;
		if (is_linear_weight(m, e[i].tensor) || (block && e[i].layer != top))
			continue;
		while (end < n && !is_linear_weight(m, e[end].tensor) &&
			(e[end].tensor < ARENA_PER_BLOCK) == block)
			end++;
		until = end < n ? e[end].first : m->arena->param_elems;
		k_zero_rows(on, (char *)m->grads + (size_t)e[i].first * elem,
			(size_t)(until - e[i].first) * elem,
			(size_t)(block ? block_elems(m, &e[i]) : 0) * elem, block ? top + 1 : 1);
	}
}

/* ---- backward ---- */

/*
 * Gradients of parameters are computed beside those of activations, on a branch, which may lag
 * behind by two blocks: then the buffers of the first block are overwritten. If their inputs live
 * shorter, each is waited for.
 */
struct backward {
	const struct model_pass *pass;
	bool beside;
	void *d_residual; /* of the last norm's input */
};

/*
 * The branch's work so far: for each turn of the blocks the last layer and all of it; the tokens.
 */
enum { MARK_TOKENS = 4 };
static int mark_of(int64_t layer, bool all)
{
	return (int)(layer % 2) * 2 + all;
}

static const struct activations_gradients *gradients(const struct model *m, int64_t layer)
{
	return &m->layout.gradients[layer % 2];
}

/*
 * A linear layer whose input (R,C) is inp, which GELU wrote together with pre unless that is NULL.
 */
struct layer {
	enum arena_tensor weight;
	int64_t in_block;
	const void *inp, *pre;
	int64_t C, OC;
	void *dbias; /* NULL: the preceding operation of backward sums it */
	void *dsum;  /* with pre: the gradient of the bias that produced it */
};

/* Either gradient may be NULL: it is not needed. */
static void linear_gradients(struct model *m, const struct backward *b, const struct layer *l,
	struct k_stream *s, void *dinp, void *dweight, const void *dout)
{
	const void *weight = param(m, l->weight, l->in_block), *pre = dinp ? l->pre : NULL;
	int64_t R = m->B * m->T;

	if (b->pass->first)
		k_linear_backward_first(s, dinp, dweight, l->dbias, pre ? l->dsum : NULL, dout,
			l->inp, pre, weight, R, l->C, l->OC, gelu_kind(m));
	else if (pre)
		k_linear_backward_gelu(s, dinp, dweight, l->dbias, l->dsum, dout, l->inp, pre,
			weight, R, l->C, l->OC, gelu_kind(m));
	else
		k_linear_backward(s, dinp, dweight, l->dbias, dout, l->inp, weight, R, l->C, l->OC);
}

static void backward_linear(struct model *m, const struct backward *b, const struct layer *l,
	void *dinp, const void *dout)
{
	struct k_stream *beside = k_stream_fork(m->stream);
	void *dweight = grad(m, l->weight, l->in_block);
	bool now = beside == m->stream;

	linear_gradients(m, b, l, m->stream, dinp, now ? dweight : NULL, dout);
	if (!now)
		linear_gradients(m, b, l, beside, NULL, dweight, dout);
	if (!b->beside)
		k_stream_join(m->stream);
}

/*
 * The gradient of a branch: that of the residual after its dropout; without dropout they are the
 * same.
 */
static void *branch_gradient(
	struct model *m, const struct backward *b, const struct k_dropout *drop)
{
	void *masked = at(m, m->layout.branch);

	if (drop->p <= 0)
		return b->d_residual;
	k_dropout_backward(m->stream, masked, b->d_residual, m->B * m->T * m->spec->n_embd, drop);
	return masked;
}

/*
 * The bias's gradient of a layer that joins the residual: the norm after it computes it unless
 * masked.
 */
static void *branch_bias(
	struct model *m, const struct k_dropout *drop, enum arena_tensor bias, int64_t layer)
{
	return drop->p > 0 ? grad(m, bias, layer) : NULL;
}

static void backward_mlp(struct model *m, struct backward *b, int64_t layer)
{
	const struct activations *l = &m->layout;
	int64_t R = m->B * m->T, C = m->spec->n_embd;
	struct k_dropout drop = drop_in_block(m, b->pass, layer, DROP_FCPROJ);
	void *d_wide = at(m, gradients(m, layer)->wide);
	void *d_residual = at(m, gradients(m, layer)->residual_mid);
	struct layer down = {ARENA_FCPROJ_W, layer, in_block(m, layer, l->fc),
		in_block(m, layer, l->fc_pre), 4 * C, C,
		branch_bias(m, &drop, ARENA_FCPROJ_B, layer), grad(m, ARENA_FC_B, layer)};
	struct layer up = {
		ARENA_FC_W, layer, in_block(m, layer, l->ln2), NULL, C, 4 * C, NULL, NULL};

	backward_linear(m, b, &down, d_wide, branch_gradient(m, b, &drop));
	k_stream_mark(m->stream, mark_of(layer, false));
	backward_linear(m, b, &up, at(m, l->d_narrow), d_wide);
	drop = drop_in_block(m, b->pass, layer, DROP_PROJ);
	k_layernorm_backward(m->stream, d_residual, grad(m, ARENA_LN2_W, layer),
		grad(m, ARENA_LN2_B, layer), drop.p > 0 ? NULL : grad(m, ARENA_PROJ_B, layer),
		b->d_residual, at(m, l->d_narrow), in_block(m, layer, l->residual_mid),
		param(m, ARENA_LN2_W, layer), in_block(m, layer, l->ln2_mean),
		in_block(m, layer, l->ln2_rstd), R, C);
	b->d_residual = d_residual;
}

static void backward_attention(struct model *m, struct backward *b, int64_t layer)
{
	const struct activations *l = &m->layout;
	int64_t R = m->B * m->T, C = m->spec->n_embd, NH = m->spec->n_head;
	struct k_dropout drop = drop_in_block(m, b->pass, layer, DROP_PROJ);
	void *d_qkv = at(m, gradients(m, layer)->qkv);
	void *d_residual = at(m, gradients(m, layer)->residual), *below = NULL;
	struct layer proj = {ARENA_PROJ_W, layer, in_block(m, layer, l->attention), NULL, C, C,
		branch_bias(m, &drop, ARENA_PROJ_B, layer), NULL};
	struct layer qkv = {
		ARENA_QKV_W, layer, in_block(m, layer, l->ln1), NULL, C, 3 * C, NULL, NULL};
	void *bias = grad(m, ARENA_QKV_B, layer);

	backward_linear(m, b, &proj, at(m, l->d_narrow), branch_gradient(m, b, &drop));
	drop = drop_in_block(m, b->pass, layer, DROP_ATTENTION);
	if (!k_attention_backward(m->stream, d_qkv, bias, at(m, l->d_narrow),
		    in_block(m, layer, l->attention), in_block(m, layer, l->lse),
		    in_block(m, layer, l->qkv), m->B, m->T, NH, C / NH, &drop))
		qkv.dbias = bias;
	backward_linear(m, b, &qkv, at(m, l->d_narrow), d_qkv);
	if (layer > 0 && drop.p <= 0)
		below = grad(m, ARENA_FCPROJ_B, layer - 1);
	if (layer + 2 < m->spec->n_layer)
		k_stream_await(m->stream, mark_of(layer + 1, false));
	k_layernorm_backward(m->stream, d_residual, grad(m, ARENA_LN1_W, layer),
		grad(m, ARENA_LN1_B, layer), below, b->d_residual, at(m, l->d_narrow),
		in_block(m, layer, l->residual), param(m, ARENA_LN1_W, layer),
		in_block(m, layer, l->ln1_mean), in_block(m, layer, l->ln1_rstd), R, C);
	b->d_residual = d_residual;
}

/* The gradients of all blocks may use the memory of the logits' gradients: these are waited for. */
static void backward_head(struct model *m, struct backward *b)
{
	const struct activations *l = &m->layout;
	int64_t R = m->B * m->T, C = m->spec->n_embd, last = m->spec->n_layer - 1;
	struct layer head = {
		head_tensor(m), 0, at(m, l->lnf), NULL, C, m->arena->vocab_padded, NULL, NULL};

	backward_linear(m, b, &head, at(m, l->d_narrow), at(m, l->logits));
	k_stream_join(m->stream);
	b->d_residual = at(m, l->d_residual);
	k_layernorm_backward(m->stream, b->d_residual, grad(m, ARENA_LNF_W, 0),
		grad(m, ARENA_LNF_B, 0),
		b->pass->dropout > 0 ? NULL : grad(m, ARENA_FCPROJ_B, last), NULL,
		at(m, l->d_narrow), at(m, l->residual_final), param(m, ARENA_LNF_W, 0),
		at(m, l->lnf_mean), at(m, l->lnf_rstd), R, C);
}

void model_backward(struct model *m, const struct model_pass *pass, const struct model_hooks *hooks)
{
	int64_t C = m->spec->n_embd, n_layer = m->spec->n_layer;
	struct k_dropout drop = drop_at(m, pass, 0);
	struct backward b = {.pass = pass,
		.beside = m->layout.apart && m->recompute == SPEC_RECOMPUTE_NONE &&
			pass->dropout <= 0};
	int32_t *order = NULL;

	backward_head(m, &b);
	if (m->layout.apart) {
		order = at(m, m->layout.token_order);
		k_token_order(k_stream_fork(m->stream), order, pass->tokens, m->B * m->T);
		k_stream_mark(m->stream, MARK_TOKENS);
	}
	announce_done(m, hooks, n_layer);
	for (int64_t layer = n_layer - 1; layer >= 0; layer--) {
		if (layer + 2 < n_layer)
			k_stream_await(m->stream, mark_of(layer, true));
		again_for_mlp(m, pass, layer);
		backward_mlp(m, &b, layer);
		again_for_attention(m, layer);
		backward_attention(m, &b, layer);
		k_stream_mark(m->stream, mark_of(layer, true));
		announce_done(m, hooks, layer);
	}
	if (order)
		k_stream_await(m->stream, MARK_TOKENS);
	k_embedding_backward(m->stream, grad(m, ARENA_WTE, 0), grad(m, ARENA_WPE, 0), b.d_residual,
		pass->tokens, order, m->B, m->T, C, &drop);
	if (hooks && hooks->last)
		hooks->last(hooks->arg, arena_complete_after(m->arena, 0), m->stream);
	k_stream_join(m->stream);
	announce_done(m, hooks, -1);
}
