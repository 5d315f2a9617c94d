/*
 * deepspeed.h: converts a DeepSpeed configuration file to keys of a run spec. Every key of the file
 * is copied, or mapped, or listed with the reason. The keys are those of DeepSpeed 0.19
 * (docs/_pages/config-json.md, runtime/config.py, runtime/zero/config.py). The values of "auto" are
 * the defaults of Transformers' Trainer, which replaces the word.
 */
#ifndef GPT2D_CTL_IMPORT_DEEPSPEED_H
#define GPT2D_CTL_IMPORT_DEEPSPEED_H

#include <stdbool.h>

#include "ctl/import/spec_draft.h"

enum deepspeed_kind {
	DEEPSPEED_MAPPED,      /* another key or value of the spec has this meaning */
	DEEPSPEED_AUTO,        /* "auto": the value that is used, and its source */
	DEEPSPEED_DEFAULT,     /* not in the file, and DeepSpeed's default differs from gpt2d's */
	DEEPSPEED_HARMLESS,    /* changes neither the training nor its speed */
	DEEPSPEED_UNSUPPORTED, /* has an effect that gpt2d does not support */
	DEEPSPEED_UNKNOWN,     /* not a key of DeepSpeed */
};

/* "mapped", "auto", ... */
const char *deepspeed_kind_name(enum deepspeed_kind kind);

struct deepspeed_note {
	struct spec_place at; /* of the file; line 0: the file does not have the key */
	enum deepspeed_kind kind;
	char key[160]; /* dotted, as in the file */
	char *text;
};

struct deepspeed_import {
	struct spec_draft draft;
	struct deepspeed_note *notes; /* in the order of the file, then the defaults */
	size_t n_notes;
};

/*
 * Converts the file's text (n bytes) to *out, which deepspeed_finish releases in every case. sets:
 * as those of spec_options; they give values of "auto". 0, or -EINVAL with errors added: the text
 * is not a JSON object, a key is repeated, or a member should be an object. A value that the spec
 * does not allow is not an error here: spec_draft_check and spec_parse find it.
 */
int deepspeed_import(const char *text, size_t n, const char *const *sets, size_t n_sets,
	struct deepspeed_import *out, struct spec_errors *errors);
void deepspeed_finish(struct deepspeed_import *import);

/* ---- the table of DeepSpeed's keys: deepspeed_table.c ---- */

enum deepspeed_use {
	DEEPSPEED_SAME,  /* `to` has the same meaning and the same values */
	DEEPSPEED_GROUP, /* an object whose members have rows */
	DEEPSPEED_NO_EFFECT,
	DEEPSPEED_OFF,    /* harmless with an inert value, else unsupported */
	DEEPSPEED_STAGE3, /* no effect below stage 3; at stage 3 as DEEPSPEED_OFF */
	/* all other rows are single keys */
	DEEPSPEED_MICRO_BATCH,
	DEEPSPEED_ACCUMULATION,
	DEEPSPEED_OPTIMIZER_TYPE,
	DEEPSPEED_ADAM_W_MODE,
	DEEPSPEED_SCHEDULER_TYPE,
	DEEPSPEED_SCHEDULER_PARAMS,
	DEEPSPEED_MAX_LR,
	DEEPSPEED_TOTAL_STEPS,
	DEEPSPEED_ZERO,
	DEEPSPEED_OVERLAP,
	DEEPSPEED_REDUCE_BUCKET,
	DEEPSPEED_PERSISTENCE,
	DEEPSPEED_CHECKPOINTING,
	DEEPSPEED_REDUCED_TYPE,
	DEEPSPEED_ACCUMULATED_TYPE,
	DEEPSPEED_USES,
};

struct deepspeed_row {
	const char *key; /* dotted; its members need rows only if it is a DEEPSPEED_GROUP */
	enum deepspeed_use use;
	enum spec_key to;
	/*
	 * "false|null": values with which the key has no effect; for an object, those of its
	 * `member`
	 */
	const char *inert;
	const char *member;
	const char *automatic; /* the value of "auto", as JSON; NULL: the spec's default */
	const char *text;      /* the reason, or the source of the value of "auto" */
};

extern const struct deepspeed_row deepspeed_table[];
extern const size_t deepspeed_rows;

#endif
