#include "proto/spec/spec_table.h"

#include <assert.h>
#include <string.h>

#define IN_CONFIG(f) .scope = SPEC_SCOPE_CONFIG, .field = offsetof(struct spec_config, f)
#define IN_SPEC(f)   .scope = SPEC_SCOPE_RUN, .field = offsetof(struct spec, f)
#define DERIVED      .scope = SPEC_SCOPE_CONFIG, .field = SPEC_NO_FIELD
#define OBJECT(k)    .key = k, .type = SPEC_TYPE_OBJECT, DERIVED
#define INTS(a, b)   .type = SPEC_TYPE_INT, .min = (a), .max = (b)
#define SIZES(a, b)  .type = SPEC_TYPE_INT, .min = (a), .max = (b), .size = true
#define REALS(a, b)  .type = SPEC_TYPE_REAL, .low = (a), .high = (b)
#define ONE_OF(list) .type = SPEC_TYPE_CHOICE, .choices = (list)
#define BOOL         .type = SPEC_TYPE_BOOL
#define LEADS(g)     .group = (g), .leads = true
#define NUMERICS     .effect = SPEC_EFFECT_NUMERICS
#define ORDER        .effect = SPEC_EFFECT_ORDER
#define PRECISION    .effect = SPEC_EFFECT_PRECISION
#define ONLY(k, m)   .only_key = (k), .only_mask = (m)

#define WARMUP_LR    (1U << SPEC_WARMUP_LR)
#define DECAY_LR     (1U << SPEC_WARMUP_DECAY_LR)
#define COSINE_LR    (1U << SPEC_WARMUP_COSINE_LR)
#define COSINE       (1U << SPEC_COSINE)
#define LINEAR       (1U << SPEC_LINEAR)
#define ONLY_WITH(m) .group = SPEC_GROUP_SCHEDULER, ONLY(SPEC_KEY_SCHEDULER_TYPE, m)
#define ONLY_DATA(m) .group = SPEC_GROUP_DATA, ONLY(SPEC_KEY_DATA_KIND, 1U << (m))
#define ONLY_STAGE_3 .group = SPEC_GROUP_ZERO, ONLY(SPEC_KEY_ZERO_STAGE, 1U << 3)

static_assert(sizeof(enum spec_gelu) == sizeof(int), "choices are stored as int");
static_assert(
	offsetof(struct spec_config, beta2) == offsetof(struct spec_config, beta1) + sizeof(double),
	"betas are stored as a pair");

enum {
	MANY = INT32_MAX, /* of a count */
	FACTOR = 1 << 24, /* of a batch: two of them x SPEC_WORLD_MAX fit into 64 bits */
};

const struct spec_preset spec_presets[SPEC_PRESETS] = {
	{"gpt2", 12, 12, 768, 50257, 1024},
	{"gpt2-medium", 24, 16, 1024, 50257, 1024},
	{"gpt2-large", 36, 20, 1280, 50257, 1024},
	{"gpt2-xl", 48, 25, 1600, 50257, 1024},
	{"nano", 2, 2, 128, 257, 256},
	[SPEC_PRESET_CUSTOM] = {"custom", 0, 0, 0, 0, 0},
};

static const struct spec_choice presets[] = {{"gpt2", 0}, {"gpt2-medium", 1}, {"gpt2-large", 2},
	{"gpt2-xl", 3}, {"nano", 4}, {"custom", SPEC_PRESET_CUSTOM}, {NULL, 0}};
static const struct spec_choice gelus[] = {
	{"tanh", SPEC_GELU_TANH}, {"exact", SPEC_GELU_EXACT}, {NULL, 0}};
static const struct spec_choice data_kinds[] = {
	{"file", SPEC_DATA_FILE}, {"synthetic", SPEC_DATA_SYNTHETIC}, {NULL, 0}};
static const struct spec_choice optimizers[] = {{"AdamW", 0}, {NULL, 0}};
static const struct spec_choice decays[] = {
	{"all", SPEC_DECAY_ALL}, {"matrices", SPEC_DECAY_MATRICES}, {NULL, 0}};
/* the first name of a value is the one in the canonical form */
static const struct spec_choice schedules[] = {{"Constant", SPEC_CONSTANT},
	{"constant", SPEC_CONSTANT}, {"WarmupLR", SPEC_WARMUP_LR},
	{"WarmupDecayLR", SPEC_WARMUP_DECAY_LR}, {"WarmupCosineLR", SPEC_WARMUP_COSINE_LR},
	{"cosine", SPEC_COSINE}, {"linear", SPEC_LINEAR}, {NULL, 0}};
static const struct spec_choice warmups[] = {
	{"log", SPEC_WARMUP_LOG}, {"linear", SPEC_WARMUP_LINEAR}, {NULL, 0}};
/* TF32 is not a type of gradients: it stands for "auto" until the type is resolved */
static const struct spec_choice grad_dtypes[] = {{"auto", SPEC_TF32}, {"fp32", SPEC_FP32},
	{"bf16", SPEC_BF16}, {"fp16", SPEC_FP16}, {NULL, 0}};
static const struct spec_choice recomputes[] = {{"none", SPEC_RECOMPUTE_NONE},
	{"selective", SPEC_RECOMPUTE_SELECTIVE}, {"full", SPEC_RECOMPUTE_FULL}, {NULL, 0}};

const struct spec_row spec_table[SPEC_KEY_COUNT] = {
	[SPEC_KEY_NAME] = {"name", SPEC_TYPE_NAME, IN_SPEC(name), .fallback = "\"run\"",
		.help = "The run's name in lists and directory names: letters, digits, "
			"'.', '_' and '-', not first a '.' or '-', at most 64."},

	[SPEC_KEY_MODEL] = {OBJECT("model"), .required = true, .shorthand = SPEC_KEY_MODEL_PRESET,
		.help = "The network. A bare string is short for a preset."},
	[SPEC_KEY_MODEL_PRESET] = {"model.preset", ONE_OF(presets), DERIVED,
		LEADS(SPEC_GROUP_MODEL), .fallback_help = "custom when the shape is given",
		.help = "A known shape: gpt2 (12 layers, 12 heads, width 768), gpt2-medium (24, "
			"16, 1024), gpt2-large (36, 20, 1280), gpt2-xl (48, 25, 1600), all with "
			"50257 tokens and 1024 positions; nano (2, 2, 128, 257 tokens, 256 "
			"positions). Keys of the model that are given beside it win; the model "
			"then counts as custom, where n_layer, n_head, n_embd, vocab_size and "
			"n_positions must all be known."},
	[SPEC_KEY_MODEL_N_LAYER] = {"model.n_layer", INTS(1, 4096), IN_CONFIG(model.n_layer),
		.group = SPEC_GROUP_MODEL, .fallback_help = "the preset's",
		.help = "Transformer blocks."},
	[SPEC_KEY_MODEL_N_HEAD] = {"model.n_head", INTS(1, 4096), IN_CONFIG(model.n_head),
		.group = SPEC_GROUP_MODEL, .fallback_help = "the preset's",
		.help = "Attention heads; must divide n_embd."},
	[SPEC_KEY_MODEL_N_EMBD] = {"model.n_embd", INTS(1, 1 << 20), IN_CONFIG(model.n_embd),
		.group = SPEC_GROUP_MODEL, .fallback_help = "the preset's", .help = "Width."},
	[SPEC_KEY_MODEL_VOCAB_SIZE] = {"model.vocab_size", INTS(2, 65536),
		IN_CONFIG(model.vocab_size), .group = SPEC_GROUP_MODEL,
		.fallback_help = "the preset's",
		.help = "Tokens of the vocabulary; data files hold them in 16 bits."},
	[SPEC_KEY_MODEL_N_POSITIONS] = {"model.n_positions", INTS(1, 1 << 20),
		IN_CONFIG(model.n_positions), .group = SPEC_GROUP_MODEL,
		.fallback_help = "the preset's",
		.help = "Learned positions; seq_len may not be greater."},
	[SPEC_KEY_MODEL_TIED_HEAD] = {"model.tied_head", BOOL, IN_CONFIG(model.tied_head),
		.group = SPEC_GROUP_MODEL, .fallback = "true",
		.help = "The output layer shares the token embedding's weights."},
	[SPEC_KEY_MODEL_GELU] = {"model.gelu", ONE_OF(gelus), IN_CONFIG(model.gelu),
		.group = SPEC_GROUP_MODEL, .fallback = "\"tanh\"",
		.help = "GELU with the tanh approximation, as in GPT-2, or exact, with erf."},
	[SPEC_KEY_MODEL_DROPOUT] = {"model.dropout", REALS(0, 1), .below_high = true,
		IN_CONFIG(model.dropout), .group = SPEC_GROUP_MODEL, .fallback = "0",
		.help = "Probability after the embedding, on attention weights and after the MLP."},

	[SPEC_KEY_INIT_FROM] = {OBJECT("init_from"),
		.help = "The initial parameters; by default from the seed."},
	[SPEC_KEY_INIT_SAFETENSORS] = {"init_from.safetensors", SPEC_TYPE_PATH,
		IN_CONFIG(init_safetensors), .omit_empty = true,
		.help = "A GPT-2 in Hugging Face's format (model.safetensors), whose shape must be "
			"the model's. Tensors in F32, F16 or BF16, their names with "
			"\"transformer.\" before them or without. A model with tied_head false "
			"takes lm_head.weight from the file, or begins with a copy of wte.weight. "
			"gpt2ctl takes a relative path from the spec's folder."},

	[SPEC_KEY_DATA] = {OBJECT("data"), .required = true, .help = "The training data."},
	[SPEC_KEY_DATA_KIND] = {"data.kind", ONE_OF(data_kinds), IN_CONFIG(data_kind),
		LEADS(SPEC_GROUP_DATA), .fallback = "\"file\"",
		.help = "Token files, or tokens made from the seed."},
	[SPEC_KEY_DATA_TRAIN] = {"data.train", SPEC_TYPE_PATH, IN_CONFIG(data_train),
		ONLY_DATA(SPEC_DATA_FILE), .omit_empty = true,
		.help = "Token file to train on: raw little-endian 16-bit tokens, or llm.c's "
			"format with a header. gpt2ctl takes a relative path from the spec's "
			"folder. Needed with kind file."},
	[SPEC_KEY_DATA_VAL] = {"data.val", SPEC_TYPE_PATH, IN_CONFIG(data_val),
		ONLY_DATA(SPEC_DATA_FILE), .omit_empty = true,
		.help = "Token file for the validation loss. Needed with kind file where "
			"work.validation_steps is not 0."},
	[SPEC_KEY_DATA_SYNTHETIC_TOKENS] = {"data.synthetic_tokens", SIZES(2, INT64_C(1) << 40),
		IN_CONFIG(data_synthetic_tokens), ONLY_DATA(SPEC_DATA_SYNTHETIC),
		.fallback = "1048576", .help = "Tokens of the made-up data, an epoch's length."},

	[SPEC_KEY_SEQ_LEN] = {"seq_len", INTS(1, 1 << 20), IN_CONFIG(seq_len), .required = true,
		.help = "Tokens of a sequence."},
	[SPEC_KEY_SEED] = {"seed", INTS(0, INT64_MAX), IN_CONFIG(seed), .fallback = "1",
		.help = "Of parameters, data order, dropout and made-up data."},
	[SPEC_KEY_GPUS] = {"gpus", INTS(0, SPEC_WORLD_MAX), IN_CONFIG(gpus), .fallback = "0", ORDER,
		.help = "Ranks the run uses, its world. 0: all that the daemon has."},
	[SPEC_KEY_MICRO_BATCH] = {"train_micro_batch_size_per_gpu", INTS(1, FACTOR),
		IN_CONFIG(micro_batch), .omit_empty = true,
		.fallback_help = "train_batch_size / (gradient_accumulation_steps x gpus)", ORDER,
		.help = "Sequences of one forward and backward pass on one rank. "
			"train_batch_size = train_micro_batch_size_per_gpu x "
			"gradient_accumulation_steps x gpus: any two give the third, one of the "
			"two sizes alone means accumulation 1."},
	[SPEC_KEY_ACCUMULATION] = {"gradient_accumulation_steps", INTS(1, FACTOR),
		IN_CONFIG(accumulation), .omit_empty = true,
		.fallback_help = "from the two sizes; 1 with only one of them", ORDER,
		.help = "Micro-steps whose gradients make one optimizer step."},
	[SPEC_KEY_BATCH] = {"train_batch_size", INTS(1, FACTOR), IN_CONFIG(batch),
		.omit_empty = true,
		.fallback_help =
			"train_micro_batch_size_per_gpu x gradient_accumulation_steps x gpus",
		.help = "Sequences of one optimizer step, over all ranks."},

	[SPEC_KEY_ZERO] = {OBJECT("zero_optimization"),
		.help = "How ranks share the optimizer's work."},
	[SPEC_KEY_ZERO_STAGE] = {"zero_optimization.stage", INTS(0, 3), IN_CONFIG(zero_stage),
		LEADS(SPEC_GROUP_ZERO), .fallback = "0", ORDER,
		.help = "0: every rank keeps the whole optimizer state. 1: each rank keeps and "
			"updates its slice (ZeRO-1). 2: gradients are split too. 3: parameters "
			"are split too. No engine can run stages 2 and 3 yet: a spec may have "
			"them, and submit refuses it."},
	[SPEC_KEY_REDUCE_BUCKET] = {"zero_optimization.reduce_bucket_size",
		SIZES(1, INT64_C(1) << 40), IN_CONFIG(reduce_bucket_elems), .fallback = "500000000",
		ORDER,
		.help = "Elements (not bytes) of a gradient bucket, rounded up to a multiple "
			"of 128 x ranks; the effective size is printed. A bucket is a range of all "
			"gradients and splits tensors. A smaller one is refused where there would "
			"be more than 4096 of them."},
	[SPEC_KEY_ALLGATHER_BUCKET] = {"zero_optimization.allgather_bucket_size",
		SIZES(1, INT64_C(1) << 40), IN_CONFIG(allgather_bucket_elems),
		.fallback = "500000000", ORDER,
		.help = "Elements of an all-gather of updated parameters, rounded up to whole "
			"reduce buckets. At least the effective size of one of those, when it is "
			"rounded up as reduce_bucket_size is."},
	[SPEC_KEY_OVERLAP_COMM] = {"zero_optimization.overlap_comm", BOOL, IN_CONFIG(overlap_comm),
		.fallback = "true", NUMERICS,
		.help = "Reduce buckets during backward. DeepSpeed's default at stages 0 "
			"to 2 is false."},
	[SPEC_KEY_REDUCE_SCATTER] = {"zero_optimization.reduce_scatter", BOOL,
		IN_CONFIG(reduce_scatter), .fallback = "true", ORDER,
		.help = "At stage 1, give each rank only its slice of the sum. false: all-reduce "
			"and take the slice; DeepSpeed 0.19 always does this."},

	[SPEC_KEY_PERSISTENCE_THRESHOLD] = {"zero_optimization.stage3_param_persistence_threshold",
		SIZES(0, INT64_C(1) << 40), IN_CONFIG(persistence_threshold_elems), ONLY_STAGE_3,
		.fallback = "100000", ORDER,
		.help = "At stage 3, each rank keeps the whole of a parameter that has fewer "
			"elements than this."},

	[SPEC_KEY_GRADIENT_CLIPPING] = {"gradient_clipping", REALS(0, 1e30),
		IN_CONFIG(gradient_clipping), .fallback = "0",
		.help = "Largest norm of all gradients together. 0: no clipping."},

	[SPEC_KEY_OPTIMIZER] = {OBJECT("optimizer"), .help = "The update."},
	[SPEC_KEY_OPTIMIZER_TYPE] = {"optimizer.type", ONE_OF(optimizers), DERIVED,
		.fallback = "\"AdamW\"", .help = "Adam with decoupled weight decay."},
	[SPEC_KEY_DECAY] = {"optimizer.decay", ONE_OF(decays), IN_CONFIG(decay),
		.fallback = "\"all\"",
		.help = "The parameters that weight_decay applies to: all parameters, biases and "
			"LayerNorm included, as DeepSpeed does when configured by file; or only "
			"matrices, as nanoGPT and llm.c do."},
	[SPEC_KEY_OPTIMIZER_PARAMS] = {OBJECT("optimizer.params"),
		.help = "The optimizer's "
			"parameters."},
	[SPEC_KEY_LR] = {"optimizer.params.lr", REALS(0, 1e30), IN_CONFIG(lr), .fallback = "0.001",
		.help = "Learning rate with the schedules Constant, WarmupCosineLR, cosine and "
			"linear. WarmupLR and WarmupDecayLR set the rate themselves, as in "
			"DeepSpeed: with them submit warns of an lr that is neither warmup_max_lr "
			"nor the default, as it has no effect."},
	[SPEC_KEY_BETAS] = {"optimizer.params.betas", SPEC_TYPE_BETAS, IN_CONFIG(beta1), .low = 0,
		.high = 0.9999999, .fallback = "[0.9, 0.999]",
		.help = "Decay of both moments; a larger value would be 1 in fp32."},
	[SPEC_KEY_EPS] = {"optimizer.params.eps", REALS(1e-37, 1), IN_CONFIG(eps),
		.fallback = "1e-08",
		.help = "Added to the root of the second moment; a smaller value loses digits in "
			"fp32, or is 0."},
	[SPEC_KEY_WEIGHT_DECAY] = {"optimizer.params.weight_decay", REALS(0, 1e30),
		IN_CONFIG(weight_decay), .fallback = "0",
		.help = "Decoupled, times the learning rate."},

	[SPEC_KEY_SCHEDULER] = {OBJECT("scheduler"), .help = "The learning rate over the steps."},
	[SPEC_KEY_SCHEDULER_TYPE] = {"scheduler.type", ONE_OF(schedules), IN_CONFIG(schedule),
		LEADS(SPEC_GROUP_SCHEDULER), .fallback = "\"Constant\"",
		.help = "Constant (or constant), or one of DeepSpeed's: WarmupLR (up, then flat), "
			"WarmupDecayLR (then in a straight line down to the lowest rate), "
			"WarmupCosineLR (then a cosine). Or one of Transformers': linear and "
			"cosine, which rise in a straight line from 0 to lr and fall to their end "
			"at total_num_steps. See LEARNING RATE."},
	[SPEC_KEY_SCHEDULER_PARAMS] = {OBJECT("scheduler.params"),
		.help = "The schedule's parameters; those that the type does not use are refused."},
	[SPEC_KEY_WARMUP_MIN_LR] = {"scheduler.params.warmup_min_lr", REALS(0, 1e30),
		IN_CONFIG(warmup_min_lr), ONLY_WITH(WARMUP_LR | DECAY_LR), .fallback = "0",
		.help = "Rate at the start. Above warmup_max_lr the rate falls during the "
			"warm-up, as in DeepSpeed: submit warns of it."},
	[SPEC_KEY_WARMUP_MAX_LR] = {"scheduler.params.warmup_max_lr", REALS(0, 1e30),
		IN_CONFIG(warmup_max_lr), ONLY_WITH(WARMUP_LR | DECAY_LR), .fallback = "0.001",
		.help = "Rate after the warm-up."},
	[SPEC_KEY_WARMUP_NUM_STEPS] = {"scheduler.params.warmup_num_steps", INTS(0, MANY),
		IN_CONFIG(warmup_num_steps),
		ONLY_WITH(WARMUP_LR | DECAY_LR | COSINE_LR | COSINE | LINEAR),
		.fallback_help = "1000; 0 with cosine and linear",
		.help = "Optimizer steps of the warm-up. With DeepSpeed's schedules, fewer than 2 "
			"count as 2, as in DeepSpeed."},
	[SPEC_KEY_WARMUP_TYPE] = {"scheduler.params.warmup_type", ONE_OF(warmups),
		IN_CONFIG(warmup_type), ONLY_WITH(WARMUP_LR | DECAY_LR | COSINE_LR),
		.fallback = "\"log\"",
		.help = "How the rate rises: by the logarithm of the step, DeepSpeed's default, "
			"or evenly."},
	[SPEC_KEY_TOTAL_NUM_STEPS] = {"scheduler.params.total_num_steps", INTS(1, MANY),
		IN_CONFIG(total_num_steps), ONLY_WITH(DECAY_LR | COSINE_LR | COSINE | LINEAR),
		.omit_empty = true,
		.help = "Optimizer steps of the whole schedule. Needed with WarmupDecayLR, "
			"WarmupCosineLR, cosine and linear. submit warns of a run that is longer: "
			"its rate stays at the end of the schedule."},
	[SPEC_KEY_WARMUP_MIN_RATIO] = {"scheduler.params.warmup_min_ratio", REALS(0, 1),
		IN_CONFIG(warmup_min_ratio), ONLY_WITH(COSINE_LR), .fallback = "0",
		.help = "Rate at the start, as a part of lr."},
	[SPEC_KEY_COS_MIN_RATIO] = {"scheduler.params.cos_min_ratio", REALS(0, 1),
		IN_CONFIG(cos_min_ratio), ONLY_WITH(COSINE_LR | COSINE),
		.fallback_help = "0.0001; 0 with cosine",
		.help = "Rate at the end, as a part of lr."},

	[SPEC_KEY_FP16] = {OBJECT("fp16"),
		.help = "Half precision with a loss scale. One of fp16, "
			"bf16 and tf32 at most; none: fp32."},
	[SPEC_KEY_FP16_ENABLED] = {"fp16.enabled", BOOL, DERIVED, .fallback = "false", PRECISION,
		.help = "Compute in fp16."},
	[SPEC_KEY_LOSS_SCALE] = {"fp16.loss_scale", REALS(0, 1e30), IN_CONFIG(fp16_loss_scale),
		.fallback = "0", PRECISION,
		.help = "A fixed scale. 0: dynamic, by the keys below, DeepSpeed's rules."},
	[SPEC_KEY_INITIAL_SCALE_POWER] = {"fp16.initial_scale_power", INTS(0, 60),
		IN_CONFIG(fp16_initial_scale_power), .fallback = "16", PRECISION,
		.help = "First scale, a power of 2."},
	[SPEC_KEY_LOSS_SCALE_WINDOW] = {"fp16.loss_scale_window", INTS(1, MANY),
		IN_CONFIG(fp16_loss_scale_window), .fallback = "1000", PRECISION,
		.help = "Clean steps after which the scale doubles, up to 2^24."},
	[SPEC_KEY_HYSTERESIS] = {"fp16.hysteresis", INTS(1, MANY), IN_CONFIG(fp16_hysteresis),
		.fallback = "2", PRECISION, .help = "Overflows before the scale is halved."},
	[SPEC_KEY_MIN_LOSS_SCALE] = {"fp16.min_loss_scale", REALS(0, 1e30), .above_low = true,
		IN_CONFIG(fp16_min_loss_scale), .fallback = "1", PRECISION,
		.help = "Floor of the scale."},
	[SPEC_KEY_CONSECUTIVE_HYSTERESIS] = {"fp16.consecutive_hysteresis", BOOL,
		IN_CONFIG(fp16_consecutive_hysteresis), .fallback = "false", PRECISION,
		.help = "A clean step refills the hysteresis."},
	[SPEC_KEY_SKIPS_MAX] = {"fp16.skips_max", INTS(1, MANY), IN_CONFIG(fp16_skips_max),
		.fallback = "50", PRECISION,
		.help = "Overflows in a row with the same scale that fail the run, also where the "
			"hysteresis would allow more. DeepSpeed stops at the first one at the "
			"smallest scale."},
	[SPEC_KEY_BF16] = {OBJECT("bf16"), .help = "Brain floating point."},
	[SPEC_KEY_BF16_ENABLED] = {"bf16.enabled", BOOL, DERIVED, .fallback = "false", PRECISION,
		.help = "Compute in bf16."},
	[SPEC_KEY_TF32] = {"tf32", BOOL, DERIVED, .fallback = "false", PRECISION,
		.help = "fp32, with matrix products in TF32."},
	[SPEC_KEY_GRAD_DTYPE] = {"grad_dtype", ONE_OF(grad_dtypes), IN_CONFIG(grad_dtype),
		.fallback = "\"auto\"", PRECISION,
		.help = "Type in which gradients travel between ranks: auto is the compute type, "
			"fp32 is always possible."},
	[SPEC_KEY_RECOMPUTE] = {"activation_checkpointing", ONE_OF(recomputes),
		IN_CONFIG(recompute), .fallback = "\"none\"", NUMERICS,
		.help = "What backward recomputes to save memory. none: nothing, all activations "
			"are kept. selective: the outputs of GELU and LayerNorm. full: everything "
			"in a block except its input. See ACTIVATION CHECKPOINTING."},

	[SPEC_KEY_RESTART] = {"restart", BOOL, IN_SPEC(restart),
		.fallback_help = "true with arms or a sweep, else false",
		.help = "Queue the run again if gpt2d ended during the run. An experiment keeps "
			"its finished blocks and continues with the next one. A run that writes "
			"checkpoints continues from the last one."},
	[SPEC_KEY_TIMEOUT] = {"timeout", INTS(0, 315360000), IN_SPEC(timeout_s), .fallback = "0",
		.help = "Seconds after which the whole run is failed. 0: none."},

	[SPEC_KEY_CHECKPOINT] = {OBJECT("checkpoint"),
		.help = "Checkpoints, from which a training can be resumed. See "
			"CHECKPOINTS."},
	[SPEC_KEY_CHECKPOINT_EVERY] = {"checkpoint.every_steps", INTS(1, INT64_C(1) << 40),
		IN_CONFIG(checkpoint_every), .omit_empty = true, NUMERICS,
		.fallback_help = "none while the run trains",
		.help = "Optimizer steps from one checkpoint to the next."},
	[SPEC_KEY_CHECKPOINT_KEEP] = {"checkpoint.keep_last", INTS(1, MANY),
		IN_CONFIG(checkpoint_keep), .omit_empty = true, NUMERICS, .fallback_help = "2",
		.help = "Number of checkpoints to keep: the engine removes older ones when a new "
			"one is complete."},
	[SPEC_KEY_CHECKPOINT_AT_END] = {"checkpoint.at_end", BOOL, IN_CONFIG(checkpoint_at_end),
		.omit_empty = true, NUMERICS, .fallback_help = "false",
		.help = "Write a checkpoint after the last step, too."},
	[SPEC_KEY_CHECKPOINT_DIR] = {"checkpoint.dir", SPEC_TYPE_PATH, IN_CONFIG(checkpoint_dir),
		.omit_empty = true, NUMERICS, .fallback_help = "checkpoints in the run's folder",
		.help = "Folder for the checkpoints. The run makes a folder ID-NAME in it. "
			"gpt2ctl takes a relative path from the spec's folder. The folder must "
			"exist, and gpt2d must be allowed to write there: see checkpoint_roots in "
			"gpt2d.conf(5). Several nodes must share the folder, or else the "
			"state directory."},
	[SPEC_KEY_RESUME_FROM] = {"resume_from", SPEC_TYPE_RUN, IN_CONFIG(resume_from),
		.omit_empty = true,
		.help = "Continue the training of a checkpoint: the ID of a run, whose last "
			"checkpoint is taken, or the folder of a checkpoint, of several, or of a "
			"run. "
			"work counts from the first step of that training: with optimizer_steps "
			"10, a checkpoint of step 5 is trained for 5 more steps. See "
			"CHECKPOINTS."},

	[SPEC_KEY_WORK] = {OBJECT("work"), .required = true,
		.help = "The amount of training: exactly one of optimizer_steps, micro_steps, "
			"tokens and epochs. Arms must do the same work."},
	[SPEC_KEY_OPTIMIZER_STEPS] = {"work.optimizer_steps", INTS(1, INT64_C(1) << 40),
		IN_CONFIG(optimizer_steps), LEADS(SPEC_GROUP_WORK), .omit_empty = true,
		.help = "Parameter updates. Whatever key gives the work, the times of at most "
			"44739242 / (gpus + 2) of them are kept, and more are refused."},
	[SPEC_KEY_MICRO_STEPS] = {"work.micro_steps", INTS(1, INT64_C(1) << 40),
		IN_CONFIG(work_micro_steps), LEADS(SPEC_GROUP_WORK), .omit_empty = true,
		.help = "Forward and backward passes, as counted by max_train_steps of older "
			"harnesses; a multiple of "
			"gradient_accumulation_steps, on which all arms must agree."},
	[SPEC_KEY_TOKENS] = {"work.tokens", SIZES(1, INT64_MAX), IN_CONFIG(work_tokens),
		LEADS(SPEC_GROUP_WORK), .omit_empty = true,
		.help = "Tokens over all ranks; a multiple of train_batch_size x seq_len."},
	[SPEC_KEY_EPOCHS] = {"work.epochs", INTS(1, MANY), IN_CONFIG(work_epochs),
		LEADS(SPEC_GROUP_WORK), .omit_empty = true,
		.help = "Passes over the training data."},
	[SPEC_KEY_WARMUP_STEPS] = {"work.warmup_steps", INTS(0, INT64_C(1) << 40),
		IN_CONFIG(warmup_steps),
		.fallback_help = "5, or all steps but one where there are 5 or fewer",
		.help = "First optimizer steps that are not measured; fewer than all."},
	[SPEC_KEY_VALIDATION_STEPS] = {"work.validation_steps", INTS(0, MANY),
		IN_CONFIG(validation_steps), .fallback = "0", NUMERICS,
		.help = "Steps of 8 sequences for the validation loss after the last step. "
			"show and compare of gpt2ctl(1) print that loss. All arms read the same "
			"sequences, the first of data.val, whatever their micro-batch, "
			"accumulation and number of GPUs. 0: none."},

	[SPEC_KEY_TARGET_LOSS] = {"work.target_loss", REALS(0, 1e30), IN_CONFIG(target_loss),
		.omit_empty = true, NUMERICS,
		.help = "Report the time from the first step until the training loss of a step is "
			"at most this. compare shows it for arms that train differently, whose "
			"speeds it does not compare. 0: no report."},

	[SPEC_KEY_ARMS] = {"arms", SPEC_TYPE_ARMS, .scope = SPEC_SCOPE_RUN, .field = SPEC_NO_FIELD,
		.help = "Makes the spec an experiment: an object of at most 16 named "
			"configurations, each an object of the keys it changes, nested as in the "
			"spec or by dotted path (\"zero_optimization.stage\"). The first is the "
			"control. Names are made like the run's. name, restart, timeout, arms "
			"and design cannot differ."},
	[SPEC_KEY_SWEEP] = {"sweep", SPEC_TYPE_SWEEP, .scope = SPEC_SCOPE_RUN,
		.field = SPEC_NO_FIELD,
		.help = "Makes arms of values: an object of dotted keys, each with an array of "
			"values. The spec's own values are the arm base, every combination of "
			"the values is an arm named by them (5e6, or 5e6_true). A combination "
			"that is the base's is left out. Not together with arms."},
	[SPEC_KEY_DESIGN] = {"design", SPEC_TYPE_OBJECT, .scope = SPEC_SCOPE_RUN,
		.field = SPEC_NO_FIELD,
		.help = "The order in which arms run; without arms none of its keys may be given."},
	[SPEC_KEY_REPETITIONS] = {"design.repetitions", INTS(1, SPEC_REPETITIONS_MAX),
		IN_SPEC(repetitions), .fallback = "12",
		.help = "Blocks: in each, every arm runs once in a random order. A verdict needs "
			"at least 8, and more with many arms."},
	[SPEC_KEY_MIRRORED] = {"design.mirrored", BOOL, IN_SPEC(mirrored), .fallback = "true",
		.help = "Run each block's order and then its reverse (ABBA), which cancels drift."},
	[SPEC_KEY_DESIGN_SEED] = {"design.seed", INTS(0, INT64_MAX), IN_SPEC(design_seed),
		.fallback = "1", .help = "Of the order of arms."},
	[SPEC_KEY_MARGIN] = {"design.margin", REALS(0, 1), .above_low = true, IN_SPEC(margin),
		.fallback = "0.01",
		.help = "Ratios of throughput closer to 1 than this fraction count as the same."},
	[SPEC_KEY_AA_CONTROL] = {"design.aa_control", BOOL, IN_SPEC(aa_control), .fallback = "true",
		.help = "Run the first arm again as NAME-aa. If this control differs from the "
			"first arm, there is no verdict. An arm that equals the first one serves "
			"as the control."},
	[SPEC_KEY_SPARE_BLOCKS] = {"design.spare_blocks", INTS(0, SPEC_REPETITIONS_MAX),
		IN_SPEC(spare_blocks), .fallback_help = "a quarter of repetitions, rounded up",
		.help = "Blocks that replace void ones. A block is void when the machine "
			"disturbed it: a standstill, thermal or hardware slowdown, another "
			"process on a GPU, an engine that was replaced."},
	[SPEC_KEY_STOP_WHEN] = {"design.stop_when", SPEC_TYPE_OBJECT, .scope = SPEC_SCOPE_RUN,
		.field = SPEC_NO_FIELD, .help = "When to stop before all blocks are run."},
	[SPEC_KEY_HALF_WIDTH] = {"design.stop_when.half_width", REALS(0, 1),
		IN_SPEC(stop_half_width), .fallback = "0",
		.help = "Stop when half the width of every comparison's interval, as a "
			"logarithm, is at most this: 0.002 is 0.2 %. Checked after every "
			"block from the 8th on. 0: run all blocks."},
};

const struct spec_row *spec_table_find(const char *path)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (!strcmp(spec_table[i].key, path))
			return &spec_table[i];
	return NULL;
}

const char *spec_table_last(const struct spec_row *row)
{
	const char *dot = strrchr(row->key, '.');

	return dot ? dot + 1 : row->key;
}

bool spec_table_inside(const struct spec_row *row, const char *object)
{
	size_t n = strlen(object);

	if (n == 0)
		return !strchr(row->key, '.');
	return !strncmp(row->key, object, n) && row->key[n] == '.' &&
		!strchr(row->key + n + 1, '.');
}

bool spec_table_note(const char *key)
{
	return !strncmp(key, "x_", 2) || !strcmp(key, "comment");
}

const char *spec_table_name_wrong(const char *name)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	if (!*name)
		return "an empty name is not allowed";
	if (strlen(name) > SPEC_NAME_MAX)
		return "longer than 64 characters";
	if (*name == '.' || *name == '-')
		return "a name does not begin with '.' or '-'";
	if (name[strspn(name, allowed)])
		return "only letters, digits, '.', '_' and '-' are allowed in a name";
	return NULL;
}

const char *spec_table_choice(const struct spec_choice *choices, int value)
{
	for (; choices->name; choices++)
		if (choices->value == value)
			return choices->name;
	return NULL;
}

void *spec_table_field(const struct spec_row *row, struct spec *spec, size_t arm)
{
	char *base = row->scope == SPEC_SCOPE_RUN ? (char *)spec : (char *)&spec->arms[arm].config;

	return base + row->field;
}
