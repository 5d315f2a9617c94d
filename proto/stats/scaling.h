/*
 * scaling.h: predicts the training step on more GPUs than were measured, by an alpha-beta model of
 * ring collectives (Thakur, Rabenseifner, Gropp, 2005). Pure functions. tests/bench/scale.md
 * describes how the constants were fitted and how far predictions were from measurements.
 *
 * A reduce-scatter or an all-gather of n bytes on W ranks of N nodes takes
 *
 *   SCALING_LAUNCH_US + (W - N) alpha_within + (N - 1) alpha_between + (W - 1) / W n / rate
 *
 * with the slower rate of the two links. NCCL also counts the hops of its ring like this
 * (src/graph/tuning.cc).
 */
#ifndef GPT2D_PROTO_STATS_SCALING_H
#define GPT2D_PROTO_STATS_SCALING_H

#include <stdbool.h>
#include <stdint.h>

/* alpha: latency of a hop. Rate: of a GPU to others of its node, of a node to others. */
struct scaling_link {
	double alpha_us, gb_s;
};

struct scaling_network {
	struct scaling_link within, between;
};

struct scaling_world {
	int64_t nodes, per_node;
};

/* Time of a collective before its first hop: 25.6 us on 4 H200, less three hops of 3.4. */
#define SCALING_LAUNCH_US 15.4
/* Computation beside a collective is slower by this part of its speed. */
#define SCALING_INTERFERENCE 0.65

/* A step of one rank. Gradients become complete in the arena's order (engine/train/arena.h). */
struct scaling_work {
	int64_t params;
	int64_t late_params; /* of them, complete only when backward ends (embeddings) */
	int64_t elem_bytes;  /* of what is reduced and gathered */
	int64_t zero_stage;  /* 0 or 1 */
	int64_t accumulation;
	bool overlap;
	double compute_us;    /* forward and backward of all micro-batches, without waits */
	double compute_error; /* fraction */
	double optimizer_us;  /* of all parameters on one GPU */
};

struct scaling_step {
	double comm_us;    /* all collectives of a step */
	double exposed_us; /* of these, the wait of computation */
	double step_us;
};

struct scaling_prediction {
	int64_t n_reduce, n_gather;              /* buckets; n_gather 0: nothing is gathered */
	struct scaling_step expected, low, high; /* low: all errors make it faster */
};

/* Time of a reduce-scatter or an all-gather of this many bytes; 0 on one rank. */
double scaling_ring_us(
	const struct scaling_network *network, const struct scaling_world *world, double bytes);

/*
 * Error bars: within a node rates 0.85 to 1.15 and latencies 0.55 (NCCL's LL128) to 1.5 times the
 * stated ones, from the residuals of the fit. Nothing was measured between nodes: rates 0.6 to 1.2
 * times, latencies 0.4 to 2 times the stated ones. Interference 0.5 to 0.9, the measured range.
 */
void scaling_predict(const struct scaling_network *network, const struct scaling_world *world,
	const struct scaling_work *work, int64_t reduce_bucket_elems, int64_t gather_bucket_elems,
	struct scaling_prediction *out);

/* ---- GPT-2 ---- */

struct scaling_model {
	int64_t n_layer, n_embd, vocab_size, n_positions;
	bool tied_head;
};

int64_t scaling_params(const struct scaling_model *model);
int64_t scaling_late_params(const struct scaling_model *model);

/*
 * Forward and backward of micro-batches of this many sequences, on an H200 by gpt2d, in us: the
 * FLOPs of its products and attention at a measured rate, and 42 us per layer and micro-batch.
 * Within 15 % of all steps in tests/bench/RESULTS.md without dropout. tflops: SCALING_TFLOPS_...
 */
#define SCALING_TFLOPS_16BIT  535.0
#define SCALING_TFLOPS_TF32   226.0
#define SCALING_TFLOPS_FP32   47.2
#define SCALING_COMPUTE_ERROR 0.15
/* Error of a measured time: cards of one host differ by 1 %, and by more at their power limit. */
#define SCALING_MEASURED_ERROR 0.03
double scaling_compute_us(const struct scaling_model *model, int64_t seq_len, int64_t sequences,
	int64_t accumulation, double tflops);
/* AdamW on one H200, 16-bit parameters with fp32 masters: 898 us for 124.4 M parameters. */
double scaling_optimizer_us(int64_t params);

#endif
