/* The files of a checkpoint, figures of a run's checkpoints, and the use of its weights. */
#include <stddef.h>

#include "proto/checkpoint.h"
#include "proto/schema/schema.h"

/* The manifest, which is an artifact only. */
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
	{"state", "checkpoint_state", "position, counters and loss scale of the training"},
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

	{"checkpoint_state", SCHEMA_OBJECT, "The state of a training."},
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
		"beside which one was written, which are not measured; 0 if there are no other "
		"steps"},
	{"copy_mean_s", "real|null", "in which training waited for the copy of rank 0"},
	{"wait_mean_s", "real|null", "in which it waited for the checkpoint before"},
	{"write_mean_s", "real|null", "of writing while training continued"},

	{"check_checkpoint", SCHEMA_OBJECT, "What checkpoints take."},
	{"bytes", "count", "of one, all ranks' shards"},
	{"disk_bytes", "count", "of those that are kept, and of the next one"},
	{"host_bytes", "count", "of a rank's memory, for the copy that is written"},
	{NULL, NULL, NULL},
};

/* The use of a run's weights, by clients and engines. */
const struct schema_row schema_weights[] = {
	{"checkpoint", SCHEMA_REQUEST, "Where the newest checkpoint of a run is."},
	{"id", "count", "of the run"},

	{"checkpoint", SCHEMA_REPLY, "A checkpoint: the newest attempt's, the last segment's."},
	{"id", "count", "of the run"},
	{"step", "count", ""},
	{"dir", "text", "on the daemon's host"},

	{"generate", SCHEMA_REQUEST, "Continue a text with the newest checkpoint of a run."},
	{"id", "count", "of the run"},
	{"prompt", "[count]", "tokens, at least one"},
	{"tokens", "?count", "the largest number of tokens to add, default 1"},
	{"temperature", "?real", "0, the default: always the most likely token"},
	{"top_k", "?count", "draw from the K most likely tokens; 0, the default: from all"},
	{"seed", "?count", "of the draws, default 0"},
	{"stop", "?count", "end after this token"},

	{"generate", SCHEMA_PRINTED, "What was added."},
	{"id", "count", "of the run"},
	{"...", "generated", ""},

	{"generate.start", SCHEMA_ORDER,
		"Continue a text; to rank 0, between segments. segment.cancel ends it."},
	{"run", "count", ""},
	{"number", "count", "comes back in the reports"},
	{"dir", "text", "of the checkpoint"},
	{"prompt", "[count]", ""},
	{"tokens", "?count", ""},
	{"temperature", "?real", ""},
	{"top_k", "?count", ""},
	{"seed", "?count", ""},
	{"stop", "?count", ""},

	{"generate.progress", SCHEMA_REPORT, "Rank 0: at most once a second."},
	{"run", "count", ""},
	{"number", "count", ""},
	{"tokens", "count", "so far"},

	{"generate.done", SCHEMA_REPORT, "Rank 0: the tokens."},
	{"run", "count", ""},
	{"number", "count", ""},
	{"...", "generated", ""},

	{"generate.failed", SCHEMA_REPORT, "Rank 0."},
	{"run", "count", ""},
	{"number", "count", ""},
	{"message", "text", ""},
	{"refused", "bool", "why the request is invalid, such as a token beyond the vocabulary"},

	{"generated", SCHEMA_OBJECT, "Tokens that a model has added to a text."},
	{"step", "count", "of the checkpoint"},
	{"vocab_size", "count", "of the model"},
	{"tokens", "[count]", "without the prompt"},
	{"log_probs", "[real]", "of each token, at temperature 1, among all tokens"},
	{"stopped", "bool", "by the token stop"},
	{"load_s", "real", "to read the weights, which stay with the engine until the next run"},
	{"first_token_s", "real", "from there to the first token"},
	{"token_s", "real|null", "mean of the tokens after it; null: there is one"},
	{"tokens_per_sec", "real", "of all of them, without the load"},
	{NULL, NULL, NULL},
};
