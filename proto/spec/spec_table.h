/*
 * spec_table.h: the table of the run spec's keys, one row each: type, range, default, help, and the
 * field of struct spec or struct spec_config. Reading, canonical form, JSON Schema and manual all
 * use it. To add a key: a name in enum spec_key, a row in spec_table.c, a field in spec.h.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_TABLE_H
#define GPT2D_PROTO_SPEC_SPEC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/spec/spec_config.h"

/* In the order of the canonical form; an object's keys follow each other, its own row first. */
enum spec_key {
	SPEC_KEY_NAME,
	SPEC_KEY_MODEL,
	SPEC_KEY_MODEL_PRESET,
	SPEC_KEY_MODEL_N_LAYER,
	SPEC_KEY_MODEL_N_HEAD,
	SPEC_KEY_MODEL_N_EMBD,
	SPEC_KEY_MODEL_VOCAB_SIZE,
	SPEC_KEY_MODEL_N_POSITIONS,
	SPEC_KEY_MODEL_TIED_HEAD,
	SPEC_KEY_MODEL_GELU,
	SPEC_KEY_MODEL_DROPOUT,
	SPEC_KEY_INIT_FROM,
	SPEC_KEY_INIT_SAFETENSORS,
	SPEC_KEY_DATA,
	SPEC_KEY_DATA_KIND,
	SPEC_KEY_DATA_TRAIN,
	SPEC_KEY_DATA_VAL,
	SPEC_KEY_DATA_SYNTHETIC_TOKENS,
	SPEC_KEY_SEQ_LEN,
	SPEC_KEY_SEED,
	SPEC_KEY_GPUS,
	SPEC_KEY_MICRO_BATCH,
	SPEC_KEY_ACCUMULATION,
	SPEC_KEY_BATCH,
	SPEC_KEY_ZERO,
	SPEC_KEY_ZERO_STAGE,
	SPEC_KEY_REDUCE_BUCKET,
	SPEC_KEY_ALLGATHER_BUCKET,
	SPEC_KEY_OVERLAP_COMM,
	SPEC_KEY_REDUCE_SCATTER,
	SPEC_KEY_PERSISTENCE_THRESHOLD,
	SPEC_KEY_GRADIENT_CLIPPING,
	SPEC_KEY_OPTIMIZER,
	SPEC_KEY_OPTIMIZER_TYPE,
	SPEC_KEY_DECAY,
	SPEC_KEY_OPTIMIZER_PARAMS,
	SPEC_KEY_LR,
	SPEC_KEY_BETAS,
	SPEC_KEY_EPS,
	SPEC_KEY_WEIGHT_DECAY,
	SPEC_KEY_SCHEDULER,
	SPEC_KEY_SCHEDULER_TYPE,
	SPEC_KEY_SCHEDULER_PARAMS,
	SPEC_KEY_WARMUP_MIN_LR,
	SPEC_KEY_WARMUP_MAX_LR,
	SPEC_KEY_WARMUP_NUM_STEPS,
	SPEC_KEY_WARMUP_TYPE,
	SPEC_KEY_TOTAL_NUM_STEPS,
	SPEC_KEY_WARMUP_MIN_RATIO,
	SPEC_KEY_COS_MIN_RATIO,
	SPEC_KEY_FP16,
	SPEC_KEY_FP16_ENABLED,
	SPEC_KEY_LOSS_SCALE,
	SPEC_KEY_INITIAL_SCALE_POWER,
	SPEC_KEY_LOSS_SCALE_WINDOW,
	SPEC_KEY_HYSTERESIS,
	SPEC_KEY_MIN_LOSS_SCALE,
	SPEC_KEY_CONSECUTIVE_HYSTERESIS,
	SPEC_KEY_SKIPS_MAX,
	SPEC_KEY_BF16,
	SPEC_KEY_BF16_ENABLED,
	SPEC_KEY_TF32,
	SPEC_KEY_GRAD_DTYPE,
	SPEC_KEY_RECOMPUTE,
	SPEC_KEY_RESTART,
	SPEC_KEY_TIMEOUT,
	SPEC_KEY_CHECKPOINT,
	SPEC_KEY_CHECKPOINT_EVERY,
	SPEC_KEY_CHECKPOINT_KEEP,
	SPEC_KEY_CHECKPOINT_AT_END,
	SPEC_KEY_CHECKPOINT_DIR,
	SPEC_KEY_RESUME_FROM,
	SPEC_KEY_WORK,
	SPEC_KEY_OPTIMIZER_STEPS,
	SPEC_KEY_MICRO_STEPS,
	SPEC_KEY_TOKENS,
	SPEC_KEY_EPOCHS,
	SPEC_KEY_WARMUP_STEPS,
	SPEC_KEY_VALIDATION_STEPS,
	SPEC_KEY_TARGET_LOSS,
	SPEC_KEY_ARMS,
	SPEC_KEY_SWEEP,
	SPEC_KEY_DESIGN,
	SPEC_KEY_REPETITIONS,
	SPEC_KEY_MIRRORED,
	SPEC_KEY_DESIGN_SEED,
	SPEC_KEY_MARGIN,
	SPEC_KEY_AA_CONTROL,
	SPEC_KEY_SPARE_BLOCKS,
	SPEC_KEY_STOP_WHEN,
	SPEC_KEY_HALF_WIDTH,
	SPEC_KEY_COUNT,
};

enum spec_type {
	SPEC_TYPE_OBJECT,
	SPEC_TYPE_ARMS,
	SPEC_TYPE_SWEEP,
	SPEC_TYPE_BOOL,
	SPEC_TYPE_INT,
	SPEC_TYPE_REAL,
	SPEC_TYPE_BETAS,  /* two reals in an array, two doubles in a row */
	SPEC_TYPE_CHOICE, /* a string out of a list, an enum's int */
	SPEC_TYPE_NAME,   /* of a run: spec_table_name_wrong */
	SPEC_TYPE_PATH,
	SPEC_TYPE_RUN, /* a run's ID, a number, or a path: spec_run_id */
};

/*
 * The largest difference that this key may cause between two arms: the proof of equal work depends
 * on it.
 */
enum spec_effect {
	SPEC_EFFECT_TRAINING,  /* another training: speeds are not compared */
	SPEC_EFFECT_PRECISION, /* the same tokens, other losses */
	SPEC_EFFECT_ORDER,     /* sums in another order: losses within a tolerance */
	SPEC_EFFECT_NUMERICS,  /* losses bit-equal */
};

/* Where the value is stored. Arms may have only keys of a configuration. */
enum spec_scope { SPEC_SCOPE_CONFIG, SPEC_SCOPE_RUN };

/*
 * Keys of a group belong together: if a leading key is overridden (by an arm or --set), the whole
 * group of the layers below is discarded.
 */
enum spec_group {
	SPEC_GROUP_NONE,
	SPEC_GROUP_MODEL,
	SPEC_GROUP_DATA,
	SPEC_GROUP_ZERO,
	SPEC_GROUP_SCHEDULER,
	SPEC_GROUP_WORK
};

struct spec_choice {
	const char *name; /* NULL ends the list */
	int value;
};

enum { SPEC_NO_FIELD = -1 };

struct spec_row {
	const char *key; /* dotted path */
	enum spec_type type;
	enum spec_scope scope;
	ptrdiff_t field;  /* offset in struct spec_config or struct spec; SPEC_NO_FIELD: derived */
	int64_t min, max; /* SPEC_TYPE_INT */
	double low, high; /* SPEC_TYPE_REAL, SPEC_TYPE_BETAS */
	bool above_low, below_high; /* the ends themselves are not allowed */
	bool size;                  /* SPEC_TYPE_INT: a string such as "500M" is allowed too */
	const struct spec_choice *choices;
	const char *fallback;      /* the default, as JSON text; NULL: none */
	const char *fallback_help; /* in words, if no single value can express it */
	bool required;             /* in the base, for the schema */
	bool omit_empty;           /* 0 and "" mean not given: omitted in the canonical form */
	enum spec_group group;
	enum spec_effect effect;
	bool leads;
	enum spec_key only_key;  /* the key applies only if the value of only_key ... */
	unsigned only_mask;      /* ... is in this set of 1 << value; 0: always */
	enum spec_key shorthand; /* SPEC_TYPE_OBJECT: a bare string means this key; 0: none */
	const char *help;
};

extern const struct spec_row spec_table[SPEC_KEY_COUNT];

struct spec_preset {
	const char *name;
	int64_t n_layer, n_head, n_embd, vocab_size, n_positions;
};
enum { SPEC_PRESET_CUSTOM = 5, SPEC_PRESETS };
extern const struct spec_preset spec_presets[SPEC_PRESETS]; /* the custom one is all zeros */

/* The row of a dotted path; NULL if unknown. */
const struct spec_row *spec_table_find(const char *path);

/* The last part of a row's path. */
const char *spec_table_last(const struct spec_row *row);

/* Whether row is directly in the object with this path ("" is the whole spec). */
bool spec_table_inside(const struct spec_row *row, const char *object);

/* Whether the key is for notes ("comment", "x_..."). */
bool spec_table_note(const char *key);

/* Why a run's or arm's name is invalid; NULL if it is valid. */
const char *spec_table_name_wrong(const char *name);

/* The name of a choice's value; NULL if it has none. */
const char *spec_table_choice(const struct spec_choice *choices, int value);

/* The address of row's value in a spec's arm. */
void *spec_table_field(const struct spec_row *row, struct spec *spec, size_t arm);

#endif
