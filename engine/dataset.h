/*
 * dataset.h: a token file, mapped, and which sequences a rank takes from it.
 *
 * Formats, told apart by the first bytes: llm.c's (256 int32 header: magic 20240520, version 1, token count;
 * then uint16 tokens) and raw little-endian uint16 (nanoGPT, the old harness). Sequence i is tokens
 * [i*T, i*T + T], the targets shifted by one. Sequences are visited by a seeded permutation per epoch, each
 * once; sample s (counted over the whole run) is sequence perm(epoch = s / n)[s % n], so global batch k is
 * samples k*batch .. k*batch + batch - 1 whatever the world and the split into micro-batches.
 */
#ifndef GPT2D_DATASET_H
#define GPT2D_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/spec.h"

enum dataset_format { DATASET_RAW, DATASET_HEADED, DATASET_SYNTHETIC };

struct dataset {
	enum dataset_format format;
	const uint16_t *tokens; /* NULL for synthetic */
	int64_t n_tokens;
	int64_t seq_len;
	int64_t n_sequences;
	uint64_t seed;
	/* private */
	void *map;
	size_t map_bytes;
	int fd;
	int64_t vocab;
	char path[SPEC_PATH_MAX];
};

/*
 * Open and check: size against header, whole tokens, at least need_tokens. 0, or a negative errno with
 * error naming the path, what was expected and what was found. validation: false shuffles, true keeps order.
 */
int dataset_open(struct dataset *d, const struct spec_config *config, bool validation, char *error,
	size_t error_bytes);
void dataset_close(struct dataset *d);

/* Every token below vocab: 0, or -ERANGE with error naming file, token offset and id. Reads all of it. */
int dataset_scan(const struct dataset *d, char *error, size_t error_bytes);

/* Tokens each of train and val must hold: world * micro_batch * seq_len + 1. */
int64_t dataset_tokens_needed(const struct spec_config *config);

/* Sequence visited as sample s. */
int64_t dataset_sequence(const struct dataset *d, int64_t sample);

/*
 * Inputs and targets (rows, T) of samples first .. first + rows - 1. 0, or -EIO when the file became shorter
 * than it was, -ERANGE when a token is outside the vocabulary, with error.
 */
int dataset_read(const struct dataset *d, int64_t first, int64_t rows, int32_t *inputs,
	int32_t *targets, char *error, size_t error_bytes);

#endif
