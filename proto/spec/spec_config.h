/* spec_config.h: a resolved run spec: all defaults filled in, all numbers known. */
#ifndef GPT2D_PROTO_SPEC_SPEC_CONFIG_H
#define GPT2D_PROTO_SPEC_SPEC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/stats/design.h"

enum {
	SPEC_NAME_MAX = 64, /* bytes of a run's or an arm's name */
	SPEC_PATH_MAX = 4096,
	SPEC_ARMS_MAX = DESIGN_ARMS_MAX,
	SPEC_REPETITIONS_MAX = 1000,
	SPEC_BYTES_MAX = 1 << 20, /* a spec's text */
	SPEC_WORLD_MAX = 1024,
	SPEC_NO_CONTROL = SPEC_ARMS_MAX,
};

enum spec_precision { SPEC_FP32, SPEC_TF32, SPEC_BF16, SPEC_FP16 };
enum spec_gelu { SPEC_GELU_TANH, SPEC_GELU_EXACT };
enum spec_decay { SPEC_DECAY_ALL, SPEC_DECAY_MATRICES };
enum spec_schedule {
	SPEC_CONSTANT,
	SPEC_WARMUP_LR,
	SPEC_WARMUP_DECAY_LR,
	SPEC_WARMUP_COSINE_LR,
	SPEC_COSINE,
	SPEC_LINEAR
};
enum spec_warmup { SPEC_WARMUP_LOG, SPEC_WARMUP_LINEAR };
enum spec_recompute { SPEC_RECOMPUTE_NONE, SPEC_RECOMPUTE_SELECTIVE, SPEC_RECOMPUTE_FULL };
enum spec_data { SPEC_DATA_FILE, SPEC_DATA_SYNTHETIC };

/* In the spelling of specs: "bf16", "selective". */
const char *spec_precision_name(enum spec_precision precision);
const char *spec_recompute_name(enum spec_recompute recompute);

struct spec_model {
	char preset[16]; /* "gpt2", "gpt2-medium", ..., "nano", "custom" */
	int64_t n_layer, n_head, n_embd, vocab_size, n_positions;
	bool tied_head;
	enum spec_gelu gelu;
	double dropout;
};

/* One configuration, every default filled in, every number resolved. */
/* Of a validation step in all, independent of micro-batch, accumulation and GPUs. */
enum { SPEC_VALIDATION_SEQUENCES = 8 };

struct spec_config {
	struct spec_model model;
	char init_safetensors[SPEC_PATH_MAX]; /* absolute once resolved; empty: from the seed */

	enum spec_data data_kind;
	char data_train[SPEC_PATH_MAX]; /* absolute once resolved; empty for synthetic */
	char data_val[SPEC_PATH_MAX];   /* empty: no validation */
	int64_t data_synthetic_tokens;

	int64_t seq_len;
	int64_t seed;
	int64_t gpus; /* ranks used, the world of the run */

	int64_t micro_batch;  /* train_micro_batch_size_per_gpu, sequences */
	int64_t accumulation; /* gradient_accumulation_steps */
	int64_t batch;        /* train_batch_size = micro_batch * accumulation * gpus, sequences */

	int64_t zero_stage; /* 0 to 3 */
	int64_t reduce_bucket_elems;
	int64_t allgather_bucket_elems;
	bool overlap_comm;
	bool reduce_scatter;                 /* false: all-reduce and copy out, as DeepSpeed does */
	int64_t persistence_threshold_elems; /* stage 3: smaller parameters are not split */

	double gradient_clipping; /* 0: none */

	double lr, beta1, beta2, eps, weight_decay;
	enum spec_decay decay;

	enum spec_schedule schedule;
	double warmup_min_lr, warmup_max_lr, warmup_min_ratio, cos_min_ratio;
	int64_t warmup_num_steps, total_num_steps;
	enum spec_warmup warmup_type;

	enum spec_precision precision; /* from fp16.enabled, bf16.enabled, tf32 */
	double fp16_loss_scale;        /* 0: dynamic */
	int64_t fp16_initial_scale_power, fp16_loss_scale_window, fp16_hysteresis;
	double fp16_min_loss_scale;
	bool fp16_consecutive_hysteresis;
	/* overflows in a row with the same scale that fail the run */
	int64_t fp16_skips_max;
	enum spec_precision grad_dtype; /* what is reduced; resolved, never "auto" */
	enum spec_recompute recompute;

	int64_t checkpoint_every; /* optimizer steps; 0: none during the run */
	int64_t checkpoint_keep;  /* number to keep; 0: none are written */
	bool checkpoint_at_end;
	char checkpoint_dir[SPEC_PATH_MAX]; /* absolute once resolved; empty: the run's folder */
	char resume_from[SPEC_PATH_MAX];    /* a run's ID or an absolute path; empty: neither */

	/* work: optimizer_steps is always resolved, the others as given (0: not given) */
	int64_t optimizer_steps;
	int64_t work_micro_steps, work_tokens;
	int64_t work_epochs;      /* the engine resolves optimizer_steps by the data */
	int64_t warmup_steps;     /* first steps of a segment, not measured */
	double target_loss;       /* report the time to this training loss; 0: no report */
	int64_t validation_steps; /* of SPEC_VALIDATION_SEQUENCES each, after the last step */
};

struct spec_arm {
	char name[SPEC_NAME_MAX + 1];
	struct spec_config config;
};

struct spec {
	char name[SPEC_NAME_MAX + 1];
	bool restart;      /* queue again after gpt2d ended during the run */
	int64_t timeout_s; /* of the whole run, 0: none */
	size_t n_arms;     /* >= 1; without "arms" one arm named "run" */
	bool has_arms;
	int64_t repetitions; /* blocks */
	bool mirrored;       /* a block is an order of the arms and then its mirror */
	int64_t design_seed;
	double margin; /* ratios closer to 1 than this fraction count as the same */
	bool aa_control;
	int64_t spare_blocks;   /* replace void ones */
	double stop_half_width; /* of the interval's logarithm; 0: run all blocks */
	size_t control;         /* the arm that repeats the first one, or SPEC_NO_CONTROL */
	struct spec_arm *arms;
};

/* The context in which a spec is read. */
struct spec_options {
	/* absolute, without links; the base of relative data paths; NULL: they are refused */
	const char *base_dir;
	/*
	 * ranks of the daemon; 0: not known (a client), then `gpus` may stay 0 and the daemon
	 * checks the batch numbers that need it
	 */
	int world;
	/* "key=value" overrides of --set; a value is JSON, or a bare word */
	const char *const *sets;
	size_t n_sets;
	/* "key=value,value" of --sweep: more members of "sweep" */
	const char *const *sweeps;
	size_t n_sweeps;
};

/* The key of the first file that a configuration reads ("data.train"), and the file; NULL: none. */
const char *spec_file_key(const struct spec_config *config, const char **path);
/* Whether the run writes checkpoints. */
bool spec_checkpoints(const struct spec_config *config);
/* The run ID, at least 1, in a value like resume_from; 0: a path, or empty. */
int64_t spec_run_id(const char *text);

/* Work per arm in tokens: optimizer_steps * batch * seq_len; 0 while one of them is not known. */
int64_t spec_work_tokens(const struct spec_config *config);

#endif
