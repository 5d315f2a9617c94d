/* What a checkpoint is made of, and what is said of a run's checkpoints. */
#include <stddef.h>

#include "proto/checkpoint.h"
#include "proto/schema/schema.h"

/* The file, which is an artifact alone. */
const struct schema_row schema_manifest[] = {
	{CHECKPOINT_MANIFEST, SCHEMA_FILE,
		"In a folder checkpoints/step-N, written last. Artifacts do not list that folder."},
	{"schema_version", "=" CHECKPOINT_SCHEMA, ""},
	{"run_id", "count", ""},
	{"name", "text", "of the run"},
	{"arm", "text", ""},
	{"attempt", "count", ""},
	{"segment", "count", "from 1"},
	{"step", "count", "optimizer steps attempted"},
	{"state", "checkpoint_state", "what the training goes on from"},
	{"precision", "=fp32,tf32,bf16,fp16", ""},
	{"world", "count", "ranks that wrote it"},
	{"zero_stage", "count", ""},
	{"model", "checkpoint_model", ""},
	{"seq_len", "count", ""},
	{"train_batch_size", "count", ""},
	{"train_sequences", "count", "of the training data"},
	{"param_elems", "count", "elements of the arena, with the padding of tensors"},
	{"tensors", "[checkpoint_tensor]", "in the order of the arena"},
	{"shards", "[checkpoint_shard]", "one of each rank"},
	{"data", "{file_identity}", "token files by path"},
	{"train_sha256", "?text|null",
		"of the training data; synthetic: of made-up data; null: not known yet"},
	{"spec_sha256", "sha256", "of the canonical text of the arm's spec"},
	{"spec", "object", "that spec"},
	{"written_at", "time", ""},
	{"build", "text", ""},

	{"checkpoint_state", SCHEMA_OBJECT, "Where a training was."},
	{"attempted", "count", "optimizer steps"},
	{"applied", "count", "of these; the learning rate and AdamW count them"},
	{"samples", "count", "sequences read, of all ranks: the next one's number"},
	{"seed", "count", "of data order and dropout, which are functions of seed and sample"},
	{"lr", "real", "of the next step"},
	{"loss_scale", "checkpoint_scale", ""},

	{"checkpoint_scale", SCHEMA_OBJECT, "The fp16 loss scale."},
	{"scale", "real", ""},
	{"it", "count", "steps that it has seen"},
	{"last_overflow", "int", "-1: none"},
	{"hysteresis_left", "count", ""},
	{"skips_in_place", "count", ""},

	{"checkpoint_model", SCHEMA_OBJECT, "The shape of the model."},
	{"n_layer", "count", ""},
	{"n_head", "count", ""},
	{"n_embd", "count", ""},
	{"vocab_size", "count", ""},
	{"vocab_padded", "count", "rows of wte and lm_head"},
	{"n_positions", "count", ""},
	{"tied_head", "bool", ""},
	{"gelu", "=tanh,exact", ""},
	{"dropout", "real", ""},

	{"checkpoint_tensor", SCHEMA_OBJECT, "A tensor in the arena, row-major."},
	{"name", "text", "as in GPT-2; a linear layer is (outputs, inputs)"},
	{"first", "count", "element of the arena"},
	{"rows", "count", ""},
	{"cols", "count", ""},

	{"checkpoint_shard", SCHEMA_OBJECT,
		"A file without a header: sections master, m and v, one after another, each the "
		"elements of the ranges as little-endian fp32."},
	{"file", "text", ""},
	{"bytes", "count", ""},
	{"ranges", "[[count]]", "[first, n] of the arena, ascending"},
	{"sha256", "{sha256}", "of each section, by its name"},
	{NULL, NULL, NULL},
};

const struct schema_row schema_checkpoints[] = {
	{"saved_checkpoints", SCHEMA_OBJECT, "A segment's checkpoints. Means are per checkpoint."},
	{"written", "count", ""},
	{"lost", "count", "that could not be written"},
	{"last_step", "count", "of the last one that was written; 0: none"},
	{"bytes", "count", "of one"},
	{"steps_left_out", "count",
		"beside which one was written, so that they are not measured; 0 where no other "
		"step is there"},
	{"copy_mean_s", "real|null", "in which training waited for the copy of rank 0"},
	{"wait_mean_s", "real|null", "in which it waited for the checkpoint before"},
	{"write_mean_s", "real|null", "in which it was written while training continued"},

	{"check_checkpoint", SCHEMA_OBJECT, "What checkpoints take."},
	{"bytes", "count", "of one, all ranks' shards"},
	{"disk_bytes", "count", "of those that are kept, and of the next one"},
	{"host_bytes", "count", "of a rank's memory, for the copy that is written"},
	{NULL, NULL, NULL},
};
