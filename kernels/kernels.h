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
 * Ways of k_attention_* on CUDA: plain arithmetic; for head size 64 the same on tiles in shared
 * memory (32 bits, sm_80 and up), the matrix units as sm_70 has them (16 bits) and as sm_80 has
 * them, and Hopper's own in 16 bits. BEST: the last of them that there is.
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
	enum k_attention attention; /* CUDA, for comparison: this way or a failure */
	bool own_products; /* CUDA, for comparison: products with GELU by gemm_wgmma or a failure */
	char *error; /* NULL, or where more than the errno is told of a failure; else as it was */
	size_t error_bytes;
};

/* What a device can say of itself; strings are owned by the context. */
struct k_device_info {
	const char *backend; /* "cpu" or "cuda" */
	const char *name;    /* processor or GPU model */
	const char *library; /* e.g. "OpenBLAS 0.3.21 Haswell", "cuBLAS 13.0" */
	int64_t memory_total_bytes;
	int64_t memory_free_bytes;
	/*
	 * CUDA: of it the context takes so much beside all buffers, kernels and graphs included; an
	 * allowance
	 */
	int64_t context_bytes;
	bool graphs;     /* k_graph_end gives graphs */
	const char *pci; /* "0000:01:00.0", by which NVML finds it; NULL on the CPU */
	int visible;     /* GPUs that this process can use; 0 on the CPU */
	/* the GPU model and library that choices (below) hold for; NULL: none are made */
	const char *choices;
};

/*
 * 0 or a negative errno (-EINVAL: threads not 1..1024). The type is fp32, in double fp64, at first.
 */
int k_context_create(const struct k_context_options *options, struct k_context **out);
void k_context_destroy(struct k_context *ctx); /* takes NULL */

/* Threads used from now on, 1..the number given at creation; no operation may be under way. */
void k_context_set_threads(struct k_context *ctx, int threads);

/* Compute type of what runs from now on. -ENOTSUP when the backend has no such type. */
int k_context_set_dtype(struct k_context *ctx, enum k_dtype dtype);
enum k_dtype k_context_dtype(const struct k_context *ctx);
size_t k_elem_bytes(const struct k_context *ctx); /* bytes of one compute-type element */
void k_context_info(const struct k_context *ctx, struct k_device_info *out);

/* First failure since creation: NULL when none, else a message that names the operation. */
const char *k_context_error(const struct k_context *ctx);

/*
 * ---- choices: which of several algorithms a matrix product takes ----
 *
 * They are made by timing, once per product, and so may differ from one context to the next, and
 * results with them in the last bits. What one context chose can be read, kept and given to
 * another. All fields are the backend's own; there is no padding in them.
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
	int64_t timed;       /* 0: there was no memory to try them, it is the library's guess */
};
/* The first max of all choices in force, in the order they were made in; how many there are. */
int64_t k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max);
/*
 * From now on these n are in force too, instead of what was chosen for the same products: how many
 * of those were others, or -ENOMEM. Nothing may be under way.
 */
int64_t k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n);
/*
 * What s is given between begin and end never runs: only the choices are made that it asks for. The
 * trials overwrite this memory, on a stream of their own, and take more where one of them finds no
 * room in it. Meanwhile nothing on the device may be using the memory, or be given anything else.
 * begin: 0, -ENOTSUP from a backend that makes none, or -EIO. end: 0 or -EIO, when something that s
 * was given has failed. Of either -EIO k_graph_error tells why, unless the context has failed.
 */
int k_choices_begin(struct k_stream *s, void *memory, int64_t bytes);
int k_choices_end(struct k_stream *s);
/* The most that a trial has taken beside what it was lent, since begin or creation. */
int64_t k_choices_took_bytes(const struct k_context *ctx);

/* ---- memory: device memory, 256-byte aligned ---- */

/* zeroed; NULL when there is not enough */
void *k_alloc(struct k_context *ctx, size_t bytes);
void k_free(struct k_context *ctx, void *memory); /* takes NULL */
/*
 * Host memory that the device copies from and to by itself: zeroed, NULL when there is not enough.
 * Copies to and from other host memory may hold up the caller, and may read it before the stream
 * has come so far.
 */
void *k_alloc_host(struct k_context *ctx, size_t bytes);
void k_free_host(struct k_context *ctx, void *memory); /* takes NULL */
void k_copy_in(struct k_stream *s, void *device, const void *host, size_t bytes);
void k_copy_out(struct k_stream *s, void *host, const void *device, size_t bytes);
void k_copy(struct k_stream *s, void *dst, const void *src, size_t bytes); /* device to device */
void k_zero(struct k_stream *s, void *device, size_t bytes);
/* So many rows of bytes, each stride_bytes behind the one before. */
void k_zero_rows(
	struct k_stream *s, void *device, size_t bytes, size_t stride_bytes, int64_t rows);

/* ---- streams, events, graphs ---- */

enum k_stream_kind { K_STREAM_COMPUTE, K_STREAM_COMM };

/* name: of the thread or in profiles. 0 or a negative errno. */
int k_stream_create(
	struct k_context *ctx, enum k_stream_kind kind, const char *name, struct k_stream **out);
void k_stream_destroy(struct k_stream *s); /* waits for what is queued; takes NULL */

/*
 * The backend's own stream (cudaStream_t), for libraries beside this one, and its device made that
 * of the calling thread. NULL on the CPU.
 */
void *k_stream_native(struct k_stream *s);

/*
 * Work that may run beside what follows on s goes to the stream that fork gives, a branch of s that
 * begins with what both have been given so far: in a capture a branch of the graph, which gives way
 * to s; else s itself, for launching to two streams costs more than it gains. Operations too finish
 * what they add to gradients of parameters (dweight, dbias, dsum) on it. mark: what the branch
 * has been given so far is number i, 0..K_STREAM_MARKS-1. await: s goes on once what was marked
 * last as i, in this capture, has run. join: once all that the branch was given has.
 */
enum { K_STREAM_MARKS = 5 };
struct k_stream *k_stream_fork(struct k_stream *s);
void k_stream_mark(struct k_stream *s, int i);
void k_stream_await(struct k_stream *s, int i);
void k_stream_join(struct k_stream *s);

/*
 * ---- scratch: memory that operations on a compute stream take beside their tensors ----
 *
 * An operation takes what it needs where it is not there yet. To have it all beforehand, so that
 * none does: plan for a model, then reserve each kind. What the kinds are for:
 *   PRODUCTS          CUDA: the workspace of matrix products
 *   OPERATION         one operation at a time; CPU: its threads' own, all together
 *   PARTIAL           partial sums that are added up later; CPU: what the threads share
 *   BESIDE_...        CUDA: the same for the branch that graphs have beside the stream
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
	int threads; /* CPU: that will compute */
	int64_t B, T, NH, C, Vp;
};
/* Bytes of each kind that no operation of such a model goes beyond. 0, or -EIO: ctx has failed. */
int k_scratch_plan(struct k_context *ctx, const struct k_scratch_shape *shape,
	int64_t bytes[K_SCRATCH_KINDS]);
/*
 * Memory that choosing algorithms for such a model takes for a moment, at most, beside lent_bytes
 * that k_choices_begin is given; 0: nothing more, or none are chosen.
 */
int64_t k_choices_bytes(
	const struct k_context *ctx, const struct k_scratch_shape *shape, int64_t lent_bytes);
/*
 * At least so many bytes are there from now on; 0: it is given back. Nothing may be under way, and
 * where it was too little or is given back no graph captured on s may run again. 0, -ENOMEM (that
 * kind is then empty) or -EIO.
 */
int k_stream_reserve(struct k_stream *s, enum k_scratch kind, int64_t bytes);
/* How often an operation on s found less than it needed, and took it. */
int64_t k_stream_grown(const struct k_stream *s);

/* Run fn(arg) on the host in stream order; after a failure too, since arg may be fn's to free. */
void k_stream_host(struct k_stream *s, void (*fn)(void *arg), void *arg);

/*
 * The most that a wait for a device takes, whoever waits: no honest step takes a day, so what has
 * not ended by then has hung.
 */
#define K_WAIT_NS (INT64_C(86400) * 1000000000)

/* Wait until all that is queued has run: 0, -ETIMEDOUT after timeout_ns, or -EIO on a failure. */
int k_stream_sync(struct k_stream *s, int64_t timeout_ns);

/* Records and waits work after a failure too. An event must outlive those queued for it. */
int k_event_create(struct k_context *ctx, struct k_event **out);
void k_event_destroy(struct k_event *e); /* takes NULL */
void k_event_record(struct k_event *e, struct k_stream *s);
/* s goes on once the last record of e before this call has run. */
void k_stream_wait(struct k_stream *s, struct k_event *e);
int k_event_sync(struct k_event *e, int64_t timeout_ns); /* as k_stream_sync */

/* Time from one recorded and completed event to another, measured where the streams run. */
int64_t k_event_elapsed_ns(const struct k_event *from, const struct k_event *to);

/*
 * What is launched between begin and end is captured, to be run by launch. A backend without graphs
 * has run it by then and gives NULL, which launch takes and does nothing with. So this works
 * everywhere:
 *   if (!graph) { begin; the work; end(s, &graph); } launch(graph, s);
 * begin and end return 0 or a negative errno. What fails in between fails the capture and not the
 * context: end says so, k_graph_error why, and the work can be launched anew without a capture.
 */
int k_graph_begin(struct k_stream *s);
int k_graph_end(struct k_stream *s, struct k_graph **out);
bool k_graph_capturing(struct k_stream *s); /* what is launched to s becomes part of a graph */
const char *k_graph_error(const struct k_context *ctx); /* of the last capture; NULL: none */
int k_graph_launch(struct k_graph *g, struct k_stream *s);
void k_graph_destroy(struct k_graph *g); /* takes NULL */

/*
 * A named range of the calling thread for a profiler (NVTX), ranges in ranges; nothing where the
 * backend has no profiler. What is launched in it belongs to it, except what a graph launches.
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
 * 1/2)/2^23, a = 2 pi (word 1's upper 24 bits)/2^24; elements 2 and 3 likewise from words 2 and 3.
 * place = stream | 0x696e6974 << 32. The value of an element depends on (seed, stream, its index)
 * alone: not on world size, threads or how the range is cut.
 */
void k_init_normal(struct k_stream *s, k_real *out, int64_t n, uint64_t seed, uint32_t stream,
	int64_t first, double mean, double std);
void k_fill(struct k_stream *s, k_real *out, int64_t n, double value);

/* compute type <- fp32 */
void k_cast(struct k_stream *s, void *out, const k_real *in, int64_t n);

/* ---- model operations ---- */

enum k_gelu { K_GELU_TANH, K_GELU_EXACT };

/*
 * Dropout draws for element i of the tensor: kept, and multiplied by 1/(1-p), when its word (place
 * = offset + *offset_from) is at least floor(p * 2^32). 0 <= p < 1. p = 0, or a NULL pointer,
 * switches it off. The struct is read when the operation is called, not when it runs; *offset_from
 * when it runs.
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
 * caller has seen to it that they are in 0..Vp-1.
 */
void k_embedding_forward(struct k_stream *s, void *out, const int32_t *tokens, const void *wte,
	const void *wpe, int64_t B, int64_t T, int64_t C, const struct k_dropout *drop);
/*
 * What k_embedding_backward adds up in which order, from the tokens (R) alone; order: 2 R int32,
 * the backend's own.
 */
void k_token_order(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R);
/*
 * dwte (Vp,C) += , dwpe += ; rows are added in the order of their position in tokens. order: what
 * k_token_order made of these tokens; NULL: it is made here.
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
 * dsum (C; NULL: not wanted) += column sums of dinp, which are the gradient of a bias whose layer
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
 * out (R,OC) = gelu(the linear layer). pre (R,OC), 16-byte aligned, is what the layer's backward
 * wants of it: what GELU is of, or its derivative there, in 16 bits.
 */
void k_linear_gelu_forward(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu);
/*
 * out once more, with the bits that k_linear_gelu_forward gave it. All else is as in that call, and
 * pre what it left there. From pre alone where that gives those bits; where GELU went along with
 * the product it took what came of that before it was rounded, and the product is taken once more
 * (pre is written anew).
 */
void k_linear_gelu_again(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu);
/*
 * dinp (R,C) = dout (R,OC) weight (overwritten; NULL: not wanted); dweight (OC,C; NULL: neither
 * it nor dbias is wanted) += dout^T inp; dbias (OC; NULL for none) += column sums of dout.
 */
void k_linear_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, const void *dout,
	const void *inp, const void *weight, int64_t R, int64_t C, int64_t OC);
/*
 * As k_linear_backward, and dinp is then multiplied by GELU's derivative, pre (R,C) being what
 * k_linear_gelu_forward left along with inp, from a layer that took OC; dsum (C; NULL: not wanted)
 * += column sums of that: the gradient of the bias in that layer.
 */
void k_linear_backward_gelu(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu);
/*
 * As k_linear_backward_gelu, without GELU where pre is NULL; but what dweight held is of no
 * account, nor need it be a number: it is dout^T inp alone.
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
 * of qkv (T,3C). A text grows by a row at a time: the keys and values of the others are still
 * there. CUDA: HS is 5120 at most.
 */
void k_attention_row(
	struct k_stream *s, void *out, const void *qkv, int64_t T, int64_t NH, int64_t HS);
/*
 * dqkv (B,T,3C) overwritten. True: dbias (3C; NULL: not wanted) += column sums of dqkv, the
 * gradient of the bias which made qkv. False: dbias is untouched, for they would take a pass of
 * their own, which the backward of the layer that made qkv may have for less.
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
 * A sum that does not depend on the order in which it was taken: a fixed-point number of 64-bit
 * limbs, each holding 32 bits and room for carries. Whatever the bucket plan gives a rank to own,
 * the gradient norm has the same bits. Limbs are added over ranks as integers.
 */
enum { K_EXACT_LIMBS = 24 };
struct k_exact_sum {
	int64_t limb[K_EXACT_LIMBS]; /* limb i weighs 2^(32 i - 448) */
	int64_t nonfinite; /* how many addends were inf or nan; those are not in the limbs */
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
 * What a double cannot hold, or 2^320 and above in one block, counts as not finite (double build
 * only).
 */
void k_sum_squares(struct k_stream *s, struct k_exact_sum *sum, const void *x, int64_t n);

/*
 * What changes from step to step lives in device memory, so that a captured graph can read it.
 * k_step_prepare fills grad_norm, grad_mul and skip from the summed squares.
 */
struct k_step_state {
	/* set by the host before the step */
	double lr;
	double clip;       /* max norm, 0: no clipping */
	double loss_scale; /* what backward multiplied the loss with */
	int64_t t;         /* AdamW time of this step, from 1 */
	uint64_t dropout;  /* what the offsets of this step's dropouts count from */
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
	/* device; parts of the arena that weight decay applies to, in order */
	const struct k_range *decayed;
	int64_t n_decayed;
};
/*
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + wd
 * p), g = grads * state->grad_mul, fp32; nothing when state->skip. One launch whatever n_ranges is.
 */
void k_adamw_step(struct k_stream *s, const struct k_adamw *args, const struct k_step_state *state);

/*
 * dst (n) = src0 + src1 + ... + src[count-1], added in that order; compute type; dst may be one of
 * them.
 */
void k_sum_in_order(struct k_stream *s, void *dst, const void *const *srcs, int count, int64_t n);

#endif
