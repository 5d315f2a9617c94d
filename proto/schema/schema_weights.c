/* The weights of a run that are used: what clients and engines say of them. */
#include <stddef.h>

#include "proto/schema/schema.h"

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
	{"tokens", "?count", "how many to add at most, default 1"},
	{"temperature", "?real", "0, the default: always the most likely token"},
	{"top_k", "?count", "draw from so many of the most likely tokens; 0, the default: all"},
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
	{"refused", "bool", "the request cannot be met, as a token beyond the vocabulary"},

	{"generated", SCHEMA_OBJECT, "Tokens that a model has added to a text."},
	{"step", "count", "of the checkpoint"},
	{"vocab_size", "count", "of the model"},
	{"tokens", "[count]", "without the prompt"},
	{"log_probs", "[real]", "of each token, at temperature 1, among all tokens"},
	{"stopped", "bool", "by the token stop"},
	{"load_s", "real", "to read the weights"},
	{"first_token_s", "real", "from then on, for the first token"},
	{"token_s", "real|null", "mean of the tokens after it; null: there is one"},
	{"tokens_per_sec", "real", "of all of them, without the load"},
	{NULL, NULL, NULL},
};
