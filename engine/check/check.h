/*
 * check.h: checks one arm before it runs: whether this engine supports it, the effective bucket
 * plan, the memory of each rank, the data, the initial weights. Reads those files and nothing else.
 * gpt2d requests it at submit and for a dry run.
 *
 * *errors: [{key, message}], key being the spec's ("data.train"), empty when the arm can run.
 *
 * *check, all numbers per rank unless said otherwise, members absent when an error left them
 * unknown:
 *   model {parameters, vocab_padded, param_elems}
 *   plan {asked_reduce_elems, asked_gather_elems, reduce_elems, n_reduce, gather_elems,
 *             n_gather, arena_elems, elem_bytes, reduce_bucket_bytes, gather_bucket_bytes}
 *   traffic {reduce_scatter_bytes, all_gather_bytes, all_reduce_bytes}, sent in a step
 *   memory {parameters_bytes, gradients_bytes, master_bytes, moment_m_bytes, moment_v_bytes,
 *             activation_checkpointing, activations_bytes, activations_none_bytes,
 *             activations_selective_bytes, activations_full_bytes (with each setting),
 *             logits_bytes, logits_elems, batch_bytes, scratch_bytes (of the compute stream),
 *             scratch_branch_bytes (of the branch beside it), comm_bytes, context_bytes (of the
 *             device's context), tuning_bytes (while algorithms are chosen, in addition to the
 *             activations, which are used for this too), total_bytes, planned_bytes (of all ranks
 *             on a node that share its memory), available_bytes, free_bytes}
 *   data {train {path, format, tokens, needed, sequences, left_out_tokens, epochs},
 *             val {..., passes}}
 *   work {optimizer_steps, micro_steps, tokens, left_over_sequences (of epochs that do not
 *             fill a batch)}
 *   batch {train_micro_batch_size_per_gpu, gradient_accumulation_steps, world,
 *             train_batch_size}
 *   checkpoint {bytes, disk_bytes (of all that are kept, and one more), host_bytes (of each rank,
 *             for the copy)}
 *   warnings [text]
 */
#ifndef GPT2D_ENGINE_CHECK_CHECK_H
#define GPT2D_ENGINE_CHECK_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/data/dataset.h"
#include "engine/train/memory_plan.h"
#include "proto/spec/spec.h"

struct check_options {
	const struct spec_config *config;
	struct memory_device device;
	int world;                   /* number of available ranks */
	int together;                /* of the run's ranks, the most on one node; 0: all of them */
	struct dataset_cache *cache; /* may be NULL */
	struct data_roots data_roots;
	/* at submit: check resume_from, whose folders these are (fits_find) */
	bool submit;
	const json_t *resume;
	const char *runs;  /* folder of checkpoints without checkpoint.dir; NULL: not known */
	const char *probe; /* a file that node 0 has just made in their folder; NULL: none */
};

/* Reads the token files to their end. New references in both. */
void check_run(const struct check_options *options, json_t **errors, json_t **check);

/* The arm of that name (may be NULL), or -1. */
int check_find_arm(const struct spec *spec, const char *name);

/*
 * Optimizer steps of a configuration on data of n_sequences: the requested number, or for work in
 * epochs as many whole batches as the epochs have (0: none), with the remaining sequences in
 * *left_over.
 */
int64_t check_optimizer_steps(
	const struct spec_config *config, int64_t n_sequences, int64_t *left_over);

#endif
