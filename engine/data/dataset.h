/*
 * dataset.h: a token file, and which sequences a rank takes from it.
 *
 * Formats, distinguished by the first bytes: llm.c's (256 int32 header: magic 20240520, version 1,
 * token count; then uint16 tokens) and raw little-endian uint16 (nanoGPT, the old harness).
 * Sequence i is tokens [i*T, i*T + T], the targets shifted by one. Sequences are visited by a
 * seeded permutation per epoch, each once; sample s (counted over the whole run) is sequence
 * perm(epoch = s / n)[s % n], so global batch k is samples k*batch .. k*batch + batch - 1 for any
 * world and any split into micro-batches.
 *
 * The file is read with pread and not through a mapping: if somebody shortens a mapped file,
 * touching its pages kills the process with SIGBUS, and no check can prevent that race; pread
 * returns fewer bytes instead. The pages come from the same page cache; the cost is one copy of T+1
 * tokens per row into a buffer that stays in the first-level cache.
 *
 * Synthetic tokens need no file: a chain over at most 256 IDs of the vocabulary in which seven of
 * eight tokens follow from the one before, so that a model's loss falls. A function of (seed,
 * sequence, position).
 */
#ifndef GPT2D_ENGINE_DATA_DATASET_H
#define GPT2D_ENGINE_DATA_DATASET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "proto/host/data_roots.h"
#include "proto/spec/spec.h"

enum dataset_format { DATASET_RAW, DATASET_HEADED, DATASET_SYNTHETIC };

struct dataset {
	enum dataset_format format;
	int64_t n_tokens;
	int64_t seq_len;
	int64_t n_sequences; /* (n_tokens - 1) / seq_len; later tokens are left out */
	uint64_t seed;
	bool shuffled;
	int64_t vocab;
	char path[SPEC_PATH_MAX]; /* "synthetic" for synthetic */
	/* of the file; private except to content.c */
	int fd;               /* -1 for synthetic */
	int64_t tokens_first; /* byte offset of token 0 */
	int64_t file_bytes;
	struct timespec modified, changed;
	dev_t dev;
	ino_t ino;
	uint16_t *row; /* seq_len + 1 tokens */
};

/* Which file was scanned, and the bound of all its tokens. */
struct dataset_scanned {
	dev_t dev;
	ino_t ino;
	int64_t file_bytes;
	struct timespec modified, changed;
	int64_t vocab;
};

/*
 * Files that were completely scanned, kept by the owner as long as the process lives, so that each
 * is scanned once.
 */
enum { DATASET_CACHE_FILES = 32 };
struct dataset_cache {
	struct dataset_scanned file[DATASET_CACHE_FILES];
	size_t n; /* scans remembered so far; the oldest is overwritten */
};

/*
 * Open and check: format, size against header, whole tokens, at least dataset_tokens_needed. 0, or
 * a negative errno with error naming the path, what was expected and what was found. validation:
 * opens data_val (of synthetic data, another stream of tokens) and keeps the order of the file;
 * false: data_train, shuffled.
 */
int dataset_open(struct dataset *d, const struct spec_config *config, bool validation, char *error,
	size_t error_bytes);
/* The same; -EACCES for a file that is not below roots, which is then not read. */
int dataset_open_below(struct dataset *d, const struct spec_config *config, bool validation,
	const struct data_roots *roots, char *error, size_t error_bytes);
void dataset_close(struct dataset *d);

/*
 * Checks that every token is below vocab: 0, or -ERANGE with error naming file, token offset and
 * ID, or -EIO. Reads the whole file, unless cache (may be NULL) has this very file as valid.
 */
int dataset_scan(
	const struct dataset *d, struct dataset_cache *cache, char *error, size_t error_bytes);

/* Tokens that train and val each need: world * micro_batch * seq_len + 1, INT64_MAX at most. */
int64_t dataset_tokens_needed(const struct spec_config *config);

/* Sequence visited as sample s, s >= 0. */
int64_t dataset_sequence(const struct dataset *d, int64_t sample);

/*
 * Inputs and targets (rows, T) of samples first .. first + rows - 1. 0, or -EIO if the file has
 * changed since it was opened (size or time of modification), -ERANGE if a token is outside the
 * vocabulary, with error. Two threads must not call it for one dataset at once.
 */
int dataset_read(const struct dataset *d, int64_t first, int64_t rows, int32_t *inputs,
	int32_t *targets, char *error, size_t error_bytes);

/*
 * The identity of the files that a run trains on, so that all its segments train on the same:
 * {path: {dev, ino, bytes, modified_ns, changed_ns}} of the token files that a segment has opened.
 * gpt2d keeps the identity from the first segment and sends it to the next ones.
 */
/* Adds d; nothing for synthetic data. */
void dataset_identity_add(json_t *identity, const struct dataset *d);
/*
 * Checks that d is the file that known (may be NULL) has under its path, or that known has none: 0.
 * -ESTALE with error naming the path, the old and the new identity; -EINVAL if known is invalid.
 */
int dataset_identity_check(
	const json_t *known, const struct dataset *d, char *error, size_t error_bytes);

#endif
