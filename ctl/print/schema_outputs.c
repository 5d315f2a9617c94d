#include "ctl/print/schema_outputs.h"

#include <stddef.h>

#include "ctl/print/output.h"

/* What gpt2ctl adds to replies that it prints, and what it prints of its own. */
const struct schema_row schema_outputs[] = {
	{"submit", SCHEMA_MORE, ""},
	{"arms", "[text]", "in the order of the spec"},
	{"dir", "?text", "where its artifacts will be"},
	{"warnings", "?[text]", "what its checks warn of"},

	{"artifacts", SCHEMA_MORE, ""},
	{"copied_to", "?text", "the folder given with --copy"},

	{"artifact", SCHEMA_MORE, ""},
	{"result", "?=copied,present,differs,failed", "of --copy; present: it was there"},
	{"message", "?text", "why it was not copied"},

	{"top", SCHEMA_OUTPUT, "What status prints, with load and losses."},
	{"...", "status", ""},
	{"losses", "[real|null]",
		"of the segment that trains now, as run.step tells them: at most ten in a second, "
		"so not of each step. At most 1024; of more, each second one, each fourth ..."},

	{"list", SCHEMA_OUTPUT, "Runs, the newest last."},
	{"runs", "[run]", ""},
	{"older", "bool", "there are more, see --limit"},

	{"wait", SCHEMA_OUTPUT, "Runs that ended (--any: the first), or why that is not known."},
	{"runs", "[waited]", ""},
	{"exit", "count", "the exit code"},

	{"waited", SCHEMA_OBJECT, "One of them."},
	{"id", "count", ""},
	{"name", "?text", ""},
	{"state", "text|null", "null: error says why"},
	{"reason", "?text|null", ""},
	{"error", "?text", ""},
	{"exit", "count", "what the exit code would be for it alone"},

	{"cancel", SCHEMA_OUTPUT, "Runs that are cancelled, or why not."},
	{"runs", "[cancelled]", ""},
	{"exit", "count", "the exit code"},

	{"cancelled", SCHEMA_OBJECT, "One of them."},
	{"id", "count", ""},
	{"state", "text|null", "null: error says why"},
	{"already", "?bool", "nothing was changed: it has ended, or is about to"},
	{"error", "?text", ""},
	{"exit", "count", "what the exit code would be for it alone"},

	{"log", SCHEMA_OUTPUT, "With logs --follow: a message."},
	{"id", "count|null", "of the run; null: gpt2d itself"},
	{"...", "log_line", ""},

	{"compare", SCHEMA_OUTPUT, "The arms of an experiment against its baseline."},
	{"...", "comparison", ""},
	{"machine", "machine|null", "from the run's files; null: they could not be read"},
	{"slow_rank", "slow_rank|null",
		"null: no rank has 5% more work than the others, and most in three quarters of a "
		"segment's parts, in more than half of the segments"},

	{"machine", SCHEMA_OBJECT, "What the experiment ran on."},
	{"host", "?text|null", "of rank 0"},
	{"gpu", "?text|null", ""},
	{"build", "?text|null", "of gpt2d"},
	{"cuda", "?text|null", ""},
	{"driver", "?text", "of the GPUs"},
	{"collectives", "?text|null", "the library, with its version"},
	{"blas", "?text|null", ""},

	{"compare-runs", SCHEMA_OUTPUT, "Two runs side by side, without a verdict."},
	{"runs", "[comparison]", "the two"},
	{"throughput_percent", "real|null", "of the second's first arm over the first's"},
	{"differs", "[key_difference]", "keys in which these arms differ"},
	{"note", "text", "why there is no verdict"},

	{"tune", SCHEMA_OUTPUT, "A search for faster values of keys."},
	{"rounds", "[tune_round]", "experiments of the search"},
	{"winner", "text|null", "the best candidate; null: none was faster than the base"},
	{"values", "object|null", "the keys in which it differs from the base"},
	{"confirmation", "comparison|null", "on fresh blocks; the verdict is here"},
	{"seconds", "real", ""},

	{"tune_round", SCHEMA_OBJECT, "An experiment with all candidates that were left."},
	{"run", "count", ""},
	{"candidates", "count", ""},
	{"blocks", "count", ""},
	{"best", "text|null", ""},
	{"throughput_percent", "real|null", "of the best over the base"},

	{"judge", SCHEMA_OUTPUT, "Repeated results of two programs, or of one in two settings."},
	{"sides", "[judged_side]", "two; the first is the baseline"},
	{"paired", "bool", ""},
	{"unit", "=time,rate", ""},
	{"margin", "real", "ratios closer to 1 than this fraction count as the same"},
	{"theta", "real", "ln(baseline's time / other's time)"},
	{"throughput_percent", "real", "of the second over the first"},
	{"step_time_percent", "real", ""},
	{"throughput_low_percent", "real|null", "the 95% interval; null: too few runs"},
	{"throughput_high_percent", "real|null", ""},
	{"half_width", "real|null", "of the interval of theta"},
	{"p", "real|null", "exact, two-sided"},
	{"verdict", "=FASTER,SLOWER,SAME,AMBIGUOUS", "of the second, against the first"},
	{"reason", "text", "the rule that decided"},
	{"reason_text", "text", "in words"},
	{"refusal", "text|null", "too few runs for a verdict"},
	{"blocks_needed", "count|null", "pairs that would settle it"},

	{"judged_side", SCHEMA_OBJECT, "The runs of a side, in the unit of its files."},
	{"name", "text", ""},
	{"runs", "count", ""},
	{"median", "real", ""},
	{"mean", "real", ""},
	{"min", "real", ""},
	{"max", "real", ""},

	{"slow_rank", SCHEMA_OBJECT, "A rank that the others wait for, whatever the arm."},
	{"rank", "count", ""},
	{"segments", "count",
		"in which it has at least 5% more work than the others' median, and most work "
		"in at least three quarters of its parts"},
	{"of", "count", "segments that tell"},
	{"work_ratio", "real", "mean over those segments, of its work to the others' median"},

	{"data prepare", SCHEMA_OUTPUT, "Token files were written."},
	{"tokenizer", "text", ""},
	{"vocabulary", "text|null", "its file; null: the tokenizer needs none"},
	{"vocab_size", "count", ""},
	{"largest_token", "int", "-1: there is none"},
	{"documents", "count", "of all inputs"},
	{"inputs", "[input]", ""},
	{"files", "[token_file]", ""},

	{"data show", SCHEMA_OUTPUT, "What is in a token file."},
	{"path", "text", ""},
	{"format", "=headed,raw", ""},
	{"bytes", "count", ""},
	{"tokens", "count", ""},
	{"largest_token", "int", "-1: there is none"},
	{"distinct_tokens", "count", "different IDs"},
	{"sha256", "text", "of the file"},
	{"first_tokens", "[count]", "as many as --first asks for"},
	{"tokenizer", "text|null", "that text is decoded with; null: no vocabulary was found"},
	{"separators", "count|null", "tokens that separate documents; null: likewise"},
	{"text", "text|null", "of first_tokens; null: likewise"},

	{"data verify", SCHEMA_OUTPUT, "A token file is sound."},
	{"path", "text", ""},
	{"format", "=headed,raw", ""},
	{"tokens", "count", ""},
	{"largest_token", "int", ""},
	{"sha256", "text", "of the file"},
	{"inputs", "[input]", "whose tokens it holds; none: it was checked alone"},

	{"input", SCHEMA_OBJECT, "A file that was read."},
	{"path", "text", ""},
	{"bytes", "count", "of text, unpacked"},
	{"documents", "count", ""},
	{"tokens", "count", "without separators"},

	{"token_file", SCHEMA_OBJECT, "A file that was written."},
	{"use", "=train,val", ""},
	{"path", "text", ""},
	{"tokens", "count", ""},
	{"bytes", "count", ""},
	{"format", "=headed,raw", ""},

	{"import deepspeed", SCHEMA_OUTPUT, "A DeepSpeed configuration was read."},
	{"spec", "object", "the run spec, without the keys that are missing"},
	{"notes", "[import_note]", "keys that the spec does not have as they are"},
	{"missing", "[text]", "keys that a spec requires, and that --set does not give"},

	{"import_note", SCHEMA_OBJECT, "What becomes of a key."},
	{"line", "count", "0: the file does not have the key"},
	{"column", "count", "in characters; 0: the file does not have the key"},
	{"key", "text", "dotted"},
	{"kind", "=mapped,auto,default,harmless,unsupported,unknown", ""},
	{"message", "text", ""},

	{"version", SCHEMA_OUTPUT, "Versions of both sides."},
	{"gpt2ctl", "side", ""},
	{"gpt2d", "?side|null", "null: none runs; absent: it did not say"},
	{"error", "?failure", "why it did not; on standard error as well"},

	{"side", SCHEMA_OBJECT, "A program."},
	{"version", "text", ""},
	{"build", "text", ""},
	{"protocol", "count", ""},
	{"libraries", "{text}", ""},

	{"help", SCHEMA_OUTPUT, "The verbs, and the options of all of them."},
	{"verbs", "[verb]", ""},
	{"options", "[option]", ""},

	{"verb", SCHEMA_OBJECT, "A verb."},
	{"name", "text", ""},
	{"args", "text", ""},
	{"summary", "text", ""},
	{"text", "text", ""},
	{"options", "[option]", "its own"},

	{"option", SCHEMA_OBJECT, "An option."},
	{"name", "text", "without dashes"},
	{"arg", "text|null", "what its value is called; null for a flag"},
	{"help", "text", ""},

	{"error", SCHEMA_OUTPUT, "What did not work; it is on standard error as text as well."},
	{"error", "failure", ""},

	{"failure", SCHEMA_OBJECT, "Why."},
	{"exit", "count", "the exit code"},
	{"message", "text", ""},
	{"code", "?int", "of gpt2d's refusal, see gpt2d-protocol(7)"},
	{"data", "?object", "what gpt2d sent with its refusal"},
	{"file", "?text", "the spec that was refused"},
	{"errors", "?[spec_error]", "all of a spec's"},

	{NULL, NULL, NULL},
};

static const struct schema_row *const tables[] = {schema_outputs, schema_messages, schema_events,
	schema_objects, schema_checkpoints, schema_nodes, schema_comparison, NULL};
const struct schema_document schema_outputs_document = {
	.title = "lines of gpt2ctl --json",
	.tables = tables,
	.lines = true,
	.lines_version = OUTPUT_SCHEMA,
};
