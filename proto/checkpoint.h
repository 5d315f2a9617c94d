/*
 * checkpoint.h: the files of a checkpoint, and how to read them. A checkpoint is a folder step-N (N
 * optimizer steps were attempted) with one shard per rank and, written last, manifest.json
 * (gpt2d-artifacts(5)). A folder without a manifest is not a checkpoint.
 *
 * A shard has no header. It has the sections master, m and v, one after another: the 32-bit weights
 * and AdamW's moments of the shard's ranges of the arena (engine/train/arena.h), range after range
 * in arena order, as little-endian fp32. The ranges of all shards cover [0, param_elems) once. So
 * the content does not depend on bucket sizes or padding, and a run with other ranks can read it.
 * Weights of 16 bits have no section: they are the 32-bit ones, rounded to the nearest (even), with
 * the same bits as AdamW wrote.
 */
#ifndef GPT2D_PROTO_CHECKPOINT_H
#define GPT2D_PROTO_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_FOLDER   "checkpoints" /* in a segment's folder; may be a link */
#define CHECKPOINT_STEP     "step-"       /* and the number of steps: a checkpoint's folder */
#define CHECKPOINT_MANIFEST "manifest.json"
#define CHECKPOINT_SCHEMA   "1.0"

enum checkpoint_section { CHECKPOINT_MASTER, CHECKPOINT_M, CHECKPOINT_V, CHECKPOINT_SECTIONS };
/* Bytes of an element. */
enum { CHECKPOINT_ELEM_BYTES = 4 };

/* "master", "m", "v" */
const char *checkpoint_section_name(enum checkpoint_section section);

/* Elements [first, first + n) of the arena. */
struct checkpoint_range {
	int64_t first, n;
};

struct checkpoint_shard {
	char file[64];
	int64_t elems; /* sum of its ranges */
	int64_t n_ranges;
	struct checkpoint_range *ranges; /* ascending */
	char sha256[CHECKPOINT_SECTIONS][65];
};

struct checkpoint_tensor {
	char name[64]; /* "h.0.attn.c_attn.weight" */
	int64_t first, rows, cols;
};

/* The state from which a training continues, except the shards. */
struct checkpoint_state {
	int64_t attempted, applied; /* optimizer steps */
	int64_t samples;            /* sequences read, of all ranks */
	double loss_scale;
	int64_t scale_it, last_overflow, hysteresis_left, skips_in_place;
};

struct checkpoint {
	char dir[4096];
	json_t *manifest;
	char sha256[65]; /* of the manifest's text */
	int64_t step, param_elems;
	struct checkpoint_state state;
	int64_t n_tensors, n_shards;
	struct checkpoint_tensor *tensors;
	struct checkpoint_shard *shards;
};

/*
 * The numbers of the steps below folder that have a manifest, newest first; the caller frees
 * *steps. Returns how many, or a negative errno (-ENOENT: no such folder).
 */
int checkpoint_list(const char *folder, int64_t **steps);

/*
 * Parses only a manifest's text, of n bytes, in folder dir, without the shards. Errors as in
 * checkpoint_open.
 */
int checkpoint_parse(const char *dir, const char *text, size_t n, struct checkpoint **out,
	char *error, size_t error_bytes);

/*
 * Reads the manifest of the checkpoint in dir (a folder step-N) and checks it: types, that the
 * ranges cover the arena, and that the shards have the right size. 0, or a negative errno with
 * error, which names the file: -ENOENT without a manifest, -EBADMSG if it is damaged.
 */
int checkpoint_open(const char *dir, struct checkpoint **out, char *error, size_t error_bytes);
/*
 * The checkpoint that a path names: it, the newest one in the folder path, or the newest one in
 * path's folder checkpoints. dir is to be freed. 0, or a negative errno with error: -ENODATA: there
 * is none.
 */
int checkpoint_find(const char *path, char **dir, char *error, size_t error_bytes);
void checkpoint_close(struct checkpoint *c); /* takes NULL */

/* NULL: no tensor has that name. */
const struct checkpoint_tensor *checkpoint_tensor(const struct checkpoint *c, const char *name);

/*
 * Reads elements [first, first + n) of a section from all shards that have them, without comparing
 * hashes. 0, or a negative errno with error.
 */
int checkpoint_read(const struct checkpoint *c, enum checkpoint_section section, int64_t first,
	int64_t n, float *out, char *error, size_t error_bytes);

/*
 * Reads a section of a shard from its first to its last element and passes each piece, elements
 * [first, first + n) of the arena, to take (may be NULL). Compares the hash at the end: -EBADMSG
 * with error, which names the shard, if the file is damaged. The pieces are then invalid.
 */
int checkpoint_stream(const struct checkpoint *c, int64_t shard, enum checkpoint_section section,
	void (*take)(void *arg, int64_t first, int64_t n, const float *values), void *arg,
	char *error, size_t error_bytes);
/* The same for all shards. */
int checkpoint_verify(const struct checkpoint *c, enum checkpoint_section section, char *error,
	size_t error_bytes);

#endif
