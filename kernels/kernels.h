/*
 * kernels.h: the one operation set under the engine. Two libraries implement it: kernels/cpu and
 * kernels/cuda. It knows tensors, streams, events, graphs and memory; nothing about ZeRO, data or
 * runs.
 *
 * Tensors. A `void *` tensor holds elements of the context's compute type (k_context_dtype()): what
 * the model's parameters, activations and gradients are kept in. A `k_real *` tensor is always
 * fp32: statistics, losses, master weights, AdamW moments. (With -DK_DOUBLE both are double; that
 * build exists for gradient checks alone.) All tensors are dense and row-major; shapes stand at
 * each declaration:
 *   B   batch rows (micro-batch)    T   sequence length    R   B*T rows
 *   C   embedding width             NH  heads              HS  C / NH
 *   OC  output width of a linear layer
 *   V   real vocabulary
 *   Vp  vocabulary rows in memory, V padded up; columns V..Vp-1 take no part
 *
 * Order. Every operation is asynchronous on its stream and returns nothing. The first failure on
 * any stream of a context is kept and read with k_context_error(); operations after it do nothing.
 * Results do not depend on thread count, stream timing or earlier calls: same inputs, same bits.
 *
 * On the CPU a compute stream runs each operation in the calling thread (helped by the context's
 * pool of threads) before returning, so only one thread at a time may use the compute streams of a
 * context; any other stream is one worker thread with a bounded queue (a call blocks while it is
 * full), and its operations run on that thread alone.
 */
#ifndef GPT2D_KERNELS_KERNELS_H
#define GPT2D_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef K_DOUBLE
typedef double k_real;
#else
typedef float k_real;
#endif

/* ---- context: a device, its threads and library handles, the compute type of the run ---- */

enum k_dtype { K_FP32, K_TF32, K_BF16, K_FP16, K_FP64 };

struct k_context;
struct k_stream;
struct k_event;
struct k_graph;

/*
 * Variants of k_attention_* on CUDA: plain arithmetic; for head size 64 the same on tiles in shared
 * memory (32 bits, sm_80 and up), the matrix units of sm_70 (16 bits) and of sm_80, and those of
 * Hopper in 16 bits. BEST: the last available one.
 */
enum k_attention {
	K_ATTENTION_BEST,
	K_ATTENTION_PLAIN,
	K_ATTENTION_TILED,
	K_ATTENTION_WMMA,
	K_ATTENTION_MMA,
	K_ATTENTION_WGMMA,
};

struct k_context_options {
	int device;  /* CUDA ordinal; ignored on the CPU */
	int threads; /* CPU: threads that compute, the caller included, >= 1; ignored on CUDA */
	bool no_branches; /* CUDA, for comparison: a graph runs one operation after another */
	enum k_attention attention; /* CUDA, for comparison: this variant or a failure */
	bool own_products; /* CUDA, for comparison: products with GELU by gemm_wgmma or a failure */
	char *error; /* NULL, or receives details that the errno does not have; else unchanged */
	size_t error_bytes;
};

/* Properties of a device; strings are owned by the context. */
struct k_device_info {
	const char *backend; /* "cpu" or "cuda" */
	const char *name;    /* processor or GPU model */
	const char *library; /* e.g. "OpenBLAS 0.3.21 Haswell", "cuBLAS 13.0" */
	int64_t memory_total_bytes;
	int64_t memory_free_bytes;
	/*
	 * CUDA: part of it that the context takes besides all buffers, with kernels and graphs; an
	 * allowance
	 */
	int64_t context_bytes;
	bool graphs;     /* k_graph_end returns graphs */
	const char *pci; /* "0000:01:00.0", for NVML; NULL on the CPU */
	int visible;     /* GPUs that this process can use; 0 on the CPU */
	/* the GPU model and library for which choices (below) are valid; NULL: there are none */
	const char *choices;
};

/*
 * 0 or a negative errno (-EINVAL: threads not 1..1024). The type is initially fp32, in double fp64.
 */
int k_context_create(const struct k_context_options *options, struct k_context **out);
void k_context_destroy(struct k_context *ctx); /* takes NULL */

/*
 * Number of threads from now on, 1..the number given at creation; no operation may be in progress.
 */
void k_context_set_threads(struct k_context *ctx, int threads);

/* Compute type of later operations. -ENOTSUP if the backend does not have it. */
int k_context_set_dtype(struct k_context *ctx, enum k_dtype dtype);
enum k_dtype k_context_dtype(const struct k_context *ctx);
size_t k_elem_bytes(const struct k_context *ctx); /* bytes of one compute-type element */
void k_context_info(const struct k_context *ctx, struct k_device_info *out);

/* First failure since creation: NULL when none, else a message that names the operation. */
const char *k_context_error(const struct k_context *ctx);

/*
 * ---- choices: which of several algorithms a matrix product takes ----
 *
 * They are made by timing, once per product, so they may differ between contexts, and with them the
 * last bits of results. The choices of one context can be read, kept and given to another. All
 * fields are the backend's own; there is no padding in them.
 */
struct k_product {
	int64_t m, n, k;
	int32_t transpose_a, transpose_b, add, epilogue, dtype;
	uint32_t align[5]; /* of a, b, d, bias, aux */
};
enum { K_ALGORITHM_WORDS = 8 };
struct k_choice {
	struct k_product product;
	uint64_t algorithm[K_ALGORITHM_WORDS];
	int64_t picoseconds; /* that it takes; -1: there is no algorithm */
	int64_t timed;       /* 0: not timed for lack of memory; it is the library's guess */
};
/*
 * The first max of all present choices, in the order in which they were made; returns how many
 * there are.
 */
int64_t k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max);
/*
 * Replaces the choices of the same products by these n: returns how many of them differed, or
 * -ENOMEM. No operation may be in progress.
 */
int64_t k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n);
/*
 * Operations on s between begin and end never run: only their choices are made. The trials
 * overwrite this memory, on a separate stream, and allocate more if it is too small. Meanwhile
 * nothing on the device may use the memory, or get other work. begin: 0, -ENOTSUP from a backend
 * without choices, or -EIO. end: 0 or -EIO if an operation on s failed. After either -EIO
 * k_graph_error has the reason, unless the context has failed.
 */
int k_choices_begin(struct k_stream *s, void *memory, int64_t bytes);
int k_choices_end(struct k_stream *s);
/* The most that a trial has allocated besides the lent memory, since begin or creation. */
int64_t k_choices_took_bytes(const struct k_context *ctx);

/* ---- memory: device memory, 256-byte aligned ---- */

/* zeroed; NULL without memory */
void *k_alloc(struct k_context *ctx, size_t bytes);
void k_free(struct k_context *ctx, void *memory); /* takes NULL */
/*
 * Host memory that the device copies from and to by itself: zeroed, NULL without memory. Copies to
 * and from other host memory may block the caller, and may read it before the stream reaches them.
 */
void *k_alloc_host(struct k_context *ctx, size_t bytes);
void k_free_host(struct k_context *ctx, void *memory); /* takes NULL */
void k_copy_in(struct k_stream *s, void *device, const void *host, size_t bytes);
void k_copy_out(struct k_stream *s, void *host, const void *device, size_t bytes);
void k_copy(struct k_stream *s, void *dst, const void *src, size_t bytes); /* device to device */
void k_zero(struct k_stream *s, void *device, size_t bytes);
/* This many rows of bytes, stride_bytes apart. */
void k_zero_rows(struct k_stream *s, void *device, size_t bytes, size_t stride_bytes, int64_t rows);

/* ---- streams, events, graphs ---- */

enum k_stream_kind { K_STREAM_COMPUTE, K_STREAM_COMM };

/* name: of the thread, also in profiles. 0 or a negative errno. */
int k_stream_create(
	struct k_context *ctx, enum k_stream_kind kind, const char *name, struct k_stream **out);
void k_stream_destroy(struct k_stream *s); /* waits for queued work; takes NULL */

/*
 * The backend's own stream (cudaStream_t), for other libraries; makes its device that of the
 * calling thread. NULL on the CPU.
 */
void *k_stream_native(struct k_stream *s);

/*
 * Work that may run in parallel with later work on s goes to the stream that fork returns: a branch
 * of s that begins after all earlier work of both. In a capture it is a branch of the graph, with
 * lower priority than s; else it is s itself, because launching to two streams costs more than it
 * gains. Operations also use it to complete gradients of parameters (dweight, dbias, dsum). mark:
 * the branch's work so far gets the number i, 0..K_STREAM_MARKS-1. await: s waits for the work that
 * was last marked i, in this capture. join: s waits for all work of the branch.
 */
enum { K_STREAM_MARKS = 5 };
struct k_stream *k_stream_fork(struct k_stream *s);
void k_stream_mark(struct k_stream *s, int i);
void k_stream_await(struct k_stream *s, int i);
void k_stream_join(struct k_stream *s);

/*
 * ---- scratch: memory that operations on a compute stream take besides their tensors ----
 *
 * An operation allocates what is missing. To allocate everything in advance: plan for a model, then
 * reserve each kind. The kinds:
 *   PRODUCTS CUDA: the workspace of matrix products
 *   OPERATION one operation at a time; CPU: its threads' own, all together
 *   PARTIAL partial sums that are added up later; CPU: memory that the threads share
 *   BESIDE_... CUDA: the same for the branch that graphs have beside the stream
 */
enum k_scratch {
	K_SCRATCH_PRODUCTS,
	K_SCRATCH_OPERATION,
	K_SCRATCH_PARTIAL,
	K_SCRATCH_BESIDE_PRODUCTS,
	K_SCRATCH_BESIDE_OPERATION,
	K_SCRATCH_KINDS,
};

struct k_scratch_shape {
	enum k_dtype dtype;
	int threads; /* CPU: number of computing threads */
	int64_t B, T, NH, C, Vp;
};
/*
 * Bytes of each kind that are enough for all operations of such a model. 0, or -EIO: ctx has
 * failed.
 */
int k_scratch_plan(
	struct k_context *ctx, const struct k_scratch_shape *shape, int64_t bytes[K_SCRATCH_KINDS]);
/*
 * Temporary memory to choose algorithms for such a model, at most, besides lent_bytes of
 * k_choices_begin; 0: no more, or no choices are made.
 */
int64_t k_choices_bytes(
	const struct k_context *ctx, const struct k_scratch_shape *shape, int64_t lent_bytes);
/*
 * Reserves at least this many bytes from now on; 0: frees them. No operation may be in progress,
 * and if the memory was too small or is freed, no graph captured on s may run again. 0, -ENOMEM
 * (then that kind is empty) or -EIO.
 */
int k_stream_reserve(struct k_stream *s, enum k_scratch kind, int64_t bytes);
/* How often an operation on s had to allocate more. */
int64_t k_stream_grown(const struct k_stream *s);

/* Runs fn(arg) on the host in stream order; also after a failure, because fn may free arg. */
void k_stream_host(struct k_stream *s, void (*fn)(void *arg), void *arg);

/* Limit of all waits for a device: no real step takes a day, so the device has hung. */
#define K_WAIT_NS (INT64_C(86400) * 1000000000)

/* Waits until all queued work has run: 0, -ETIMEDOUT after timeout_ns, or -EIO on a failure. */
int k_stream_sync(struct k_stream *s, int64_t timeout_ns);

/* Records and waits also work after a failure. An event must outlive the work queued for it. */
int k_event_create(struct k_context *ctx, struct k_event **out);
void k_event_destroy(struct k_event *e); /* takes NULL */
void k_event_record(struct k_event *e, struct k_stream *s);
/* s waits for the last record of e before this call. */
void k_stream_wait(struct k_stream *s, struct k_event *e);
int k_event_sync(struct k_event *e, int64_t timeout_ns); /* as k_stream_sync */

/* Time from one recorded and completed event to another, measured on the streams. */
int64_t k_event_elapsed_ns(const struct k_event *from, const struct k_event *to);

/*
 * Work launched between begin and end is captured, and launch runs it. A backend without graphs has
 * already run it and returns NULL, for which launch does nothing. So this works everywhere:
 *   if (!graph) { begin; the work; end(s, &graph); } launch(graph, s);
 * begin and end return 0 or a negative errno. A failure in between fails the capture and not the
 * context: end returns it, k_graph_error has the reason, and the work can be launched again without
 * a capture.
 */
int k_graph_begin(struct k_stream *s);
int k_graph_end(struct k_stream *s, struct k_graph **out);
bool k_graph_capturing(struct k_stream *s); /* work launched to s becomes part of a graph */
const char *k_graph_error(const struct k_context *ctx); /* of the last capture; NULL: none */
int k_graph_launch(struct k_graph *g, struct k_stream *s);
void k_graph_destroy(struct k_graph *g); /* takes NULL */

/*
 * A named, nestable range of the calling thread for a profiler (NVTX); no effect if the backend has
 * no profiler. It includes the work launched in it, except by graphs.
 */
void k_range_begin(const char *name);
void k_range_end(void);

/*
 * ---- random numbers: Philox4x32-10 (Salmon et al., SC11) ----
 *
 * Element i of a sequence is word i mod 4 of the block whose counter words are (i/4 low, i/4 high,
 * place low, place high) and whose key words are (seed low, seed high).
 */

/*
 * out[i] = mean + std * n(seed, stream, first + i), n standard normal by Box-Muller. Elements 0 and
 * 1 of a block are r cos(a) and r sin(a): r = sqrt(-2 ln u), u = (word 0's upper 23 bits +
 * 1/2)/2^23, a = 2 pi (word 1's upper 24 bits)/2^24; elements 2 and 3 in the same way from words 2
 * and 3. place = stream | 0x696e6974 << 32. The value of an element depends only on (seed, stream,
 * its index), not on world size, threads or the split of the range.
 */
void k_init_normal(struct k_stream *s, k_real *out, int64_t n, uint64_t seed, uint32_t stream,
	int64_t first, double mean, double std);
void k_fill(struct k_stream *s, k_real *out, int64_t n, double value);

/* compute type <- fp32 */
void k_cast(struct k_stream *s, void *out, const k_real *in, int64_t n);

/* ---- model operations ---- */

enum k_gelu { K_GELU_TANH, K_GELU_EXACT };

/*
 * Dropout of element i of the tensor: kept, and multiplied by 1/(1-p), if its word (place = offset
 * + *offset_from) is at least floor(p * 2^32). 0 <= p < 1. p = 0, or a NULL pointer, disables it.
 * The struct is read when the operation is called, *offset_from when it runs.
 */
struct k_dropout {
	double p;
	uint64_t seed;
	/* unique for (step, micro-step, layer, place); upper half not 0x696e6974 */
	uint64_t offset;
	const uint64_t *offset_from; /* device; NULL: 0 */
};

/*
 * out (R,C) = wte (Vp,C)[tokens] + wpe (n_positions,C)[position], then dropout. tokens (B,T): the
 * caller has checked that they are in 0..Vp-1.
 */
void k_embedding_forward(struct k_stream *s, void *out, const int32_t *tokens, const void *wte,
	const void *wpe, int64_t B, int64_t T, int64_t C, const struct k_dropout *drop);
/*
 * The order of the additions in k_embedding_backward, from the tokens (R) alone; order: 2 R int32,
 * the backend's own.
 */
void k_token_order(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R);
/*
 * dwte (Vp,C) += , dwpe += ; rows are added in the order of their position in tokens. order: from
 * k_token_order for these tokens; NULL: it is computed here.
 */
void k_embedding_backward(struct k_stream *s, void *dwte, void *dwpe, const void *dout,
	const int32_t *tokens, const int32_t *order, int64_t B, int64_t T, int64_t C,
	const struct k_dropout *drop);

/* out, inp (R,C); mean, rstd (R); weight, bias (C); epsilon 1e-5. */
void k_layernorm_forward(struct k_stream *s, void *out, k_real *mean, k_real *rstd, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C);
/* residual = inp1 + dropout(inp2); out = layernorm(residual). All (R,C). residual may be inp1. */
void k_residual_layernorm_forward(struct k_stream *s, void *residual, void *out, k_real *mean,
	k_real *rstd, const void *inp1, const void *inp2, const void *weight, const void *bias,
	int64_t R, int64_t C, const struct k_dropout *drop);
/*
 * dinp (R,C) = add (R,C; may be dinp; NULL: 0) + gradient through the norm; dweight, dbias (C) +=;
 * dsum (C; NULL: not needed) += column sums of dinp, which are the gradient of a bias whose layer
 * was added to the norm's input.
 */
void k_layernorm_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *add, const void *dout, const void *inp, const void *weight, const k_real *mean,
	const k_real *rstd, int64_t R, int64_t C);
/* dinp = dropout mask applied to dout, both (n); in place allowed. */
void k_dropout_backward(
	struct k_stream *s, void *dinp, const void *dout, int64_t n, const struct k_dropout *drop);

/* out (R,OC) = inp (R,C) weight(OC,C)^T + bias (OC; NULL for none). */
void k_linear_forward(struct k_stream *s, void *out, const void *inp, const void *weight,
	const void *bias, int64_t R, int64_t C, int64_t OC);
/*
 * out (R,OC) = gelu(the linear layer). pre (R,OC), 16-byte aligned, is for the layer's backward:
 * GELU's argument, or its derivative there in 16 bits.
 */
void k_linear_gelu_forward(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu);
/*
 * Recomputes out with the same bits as k_linear_gelu_forward. All arguments as in that call, with
 * its pre. From pre alone if that gives those bits. If GELU was fused with the product, it used the
 * unrounded product, so the product is computed again (and pre is written again).
 */
void k_linear_gelu_again(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu);
/*
 * dinp (R,C) = dout (R,OC) weight (overwritten; NULL: not needed); dweight (OC,C; NULL: neither it
 * nor dbias is needed) += dout^T inp; dbias (OC; NULL for none) += column sums of dout.
 */
void k_linear_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, const void *dout,
	const void *inp, const void *weight, int64_t R, int64_t C, int64_t OC);
/*
 * As k_linear_backward, and dinp is then multiplied by GELU's derivative, where
 * k_linear_gelu_forward wrote pre (R,C) together with inp, from a layer with OC inputs; dsum (C;
 * NULL: not needed) += column sums of that: the gradient of the bias in that layer.
 */
void k_linear_backward_gelu(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu);
/*
 * As k_linear_backward_gelu, without GELU if pre is NULL; but dweight is overwritten by dout^T inp,
 * and need not contain numbers before.
 */
void k_linear_backward_first(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu);

/*
 * Causal self-attention, scores scaled by 1/sqrt(HS), never a T x T matrix over the batch.
 * qkv (B,T,3C) as q|k|v, heads inside each; out (B,T,C); lse (B,NH,T) log-sum-exp of the scaled
 * scores.
 */
void k_attention_forward(struct k_stream *s, void *out, k_real *lse, const void *qkv, int64_t B,
	int64_t T, int64_t NH, int64_t HS, const struct k_dropout *drop);
/*
 * The same for the last row of one sample alone, without dropout: out (C) of the query in row T-1
 * of qkv (T,3C). For a text that grows by a row at a time: qkv still has the keys and values of
 * earlier rows. CUDA: HS is 5120 at most.
 */
void k_attention_row(
	struct k_stream *s, void *out, const void *qkv, int64_t T, int64_t NH, int64_t HS);
/*
 * dqkv (B,T,3C) overwritten. True: dbias (3C; NULL: not needed) += column sums of dqkv, the
 * gradient of the bias of qkv's layer. False: dbias is unchanged, because it would need a separate
 * pass, and the backward of qkv's layer may compute it for less.
 */
bool k_attention_backward(struct k_stream *s, void *dqkv, void *dbias, const void *dout,
	const void *out, const k_real *lse, const void *qkv, int64_t B, int64_t T, int64_t NH,
	int64_t HS, const struct k_dropout *drop);

/*
 * Softmax cross-entropy over columns 0..V-1 of logits (R,Vp), in place: losses (R) = -log
 * p[target], and logits become scale * *times * (p - onehot), columns V..Vp-1 zero. scale = 0:
 * losses only, logits untouched. scale holds 1/tokens of the global batch and *times (device; NULL:
 * 1) the loss scale, so gradients need only be summed. A target outside 0..V-1 fails the context.
 */
void k_cross_entropy(struct k_stream *s, k_real *losses, void *logits, const int32_t *targets,
	int64_t R, int64_t V, int64_t Vp, double scale, const double *times);
/* *sum (device) += losses (n), in an order that depends on n alone. */
void k_sum_losses(struct k_stream *s, double *sum, const k_real *losses, int64_t n);

/* ---- optimizer operations ---- */

/*
 * A sum that does not depend on its order: a fixed-point number of 64-bit limbs, each with 32 bits
 * and room for carries. The gradient norm has the same bits for any bucket plan. Limbs are added
 * over ranks as integers.
 */
enum { K_EXACT_LIMBS = 24 };
struct k_exact_sum {
	int64_t limb[K_EXACT_LIMBS]; /* limb i weighs 2^(32 i - 448) */
	int64_t nonfinite; /* number of addends that were inf or nan; they are not in the limbs */
};
double k_exact_value(const struct k_exact_sum *sum); /* host */

/*
 * Blocks of elements whose squares are summed in double before they go to the limbs, in this order:
 * lane j of K_SUM_LANES takes elements j, j + LANES, ... in turn; then lanes j and j + 4, 2, 1 are
 * added.
 */
enum { K_SUM_BLOCK_ELEMS = 128, K_SUM_LANES = 8 };

/*
 * *sum += squares of x (n); x starts at a multiple of K_SUM_BLOCK_ELEMS of its arena. sum: device.
 * A value beyond a double, or 2^320 and above in one block, counts as not finite (double build
 * only).
 */
void k_sum_squares(struct k_stream *s, struct k_exact_sum *sum, const void *x, int64_t n);

/*
 * Values that change from step to step, in device memory, so that a captured graph can read them.
 * k_step_prepare fills grad_norm, grad_mul and skip from the summed squares.
 */
struct k_step_state {
	/* set by the host before the step */
	double lr;
	double clip;       /* max norm, 0: no clipping */
	double loss_scale; /* factor of the loss in backward */
	int64_t t;         /* AdamW time of this step, from 1 */
	uint64_t dropout;  /* the number that the dropout offsets of this step count from */
	/* set by k_step_prepare */
	double grad_norm; /* global, unscaled, before clipping; nan when skipped */
	double grad_mul;  /* multiplies each gradient: unscaling and clipping */
	int64_t skip;     /* 1: a gradient was inf or nan, nothing is updated */
};
/*
 * norm = sqrt(sum)/loss_scale; c = max(1, (norm + 1e-6)/clip); grad_mul = 1/(c*loss_scale)
 * (DeepSpeed).
 */
void k_step_prepare(struct k_stream *s, struct k_step_state *state, const struct k_exact_sum *sum);

/* A run of elements that one rank owns: [first, first + n) of the parameter arena. */
struct k_range {
	int64_t first;
	int64_t n;
};
struct k_adamw {
	double beta1, beta2, eps, weight_decay;
	k_real *master; /* arena of fp32 weights; equal to params when the compute type is fp32 */
	void *params;   /* arena, compute type */
	const void *grads;   /* arena, compute type */
	k_real *m, *v;       /* moments, compact: range after range, owned elements only */
	bool master_compact; /* master is laid out like m and v instead of like the arena */
	const struct k_range *ranges; /* device; owned slices in arena order */
	int64_t n_ranges;
	/* device; parts of the arena with weight decay, in order */
	const struct k_range *decayed;
	int64_t n_decayed;
};
/*
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + wd
 * p), g = grads * state->grad_mul, fp32; nothing if state->skip. One launch for any n_ranges.
 */
void k_adamw_step(struct k_stream *s, const struct k_adamw *args, const struct k_step_state *state);

/*
 * dst (n) = src0 + src1 + ... + src[count-1], added in that order; compute type; dst may be one of
 * them.
 */
void k_sum_in_order(struct k_stream *s, void *dst, const void *const *srcs, int count, int64_t n);

#endif
