/* The files that gpt2d writes when an experiment is over. */
#include <stddef.h>

#include "proto/artifact.h"
#include "proto/schema/schema.h"

const struct schema_row schema_experiment[] = {
	{ARTIFACT_EXPERIMENT, SCHEMA_FILE,
		"Of an experiment that has ended, also early: the comparison of its arms and every "
		"sample. Its segments are the order in which the arms ran. run has the state and "
		"the reason with which the experiment ended."},
	{"...", "comparison", ""},
	{"spec", "object", "canonical, see gpt2d-spec(5)"},
	{"segments", "[segment]", "as the reply to show has them"},
	{"versions", "experiment_versions", ""},
	{"engines", "[object]", "ranks and their devices, as status has them"},
	{"machine", "experiment_machine", ""},
	{"written_at", "time", ""},

	{"experiment_versions", SCHEMA_OBJECT, "What gpt2d is built from."},
	{"gpt2d", "text", ""},
	{"build", "text", ""},
	{"compiler", "text", ""},
	{"build_type", "text", "meson's"},
	{"jansson", "text", ""},

	{"experiment_machine", SCHEMA_OBJECT, "Where gpt2d runs."},
	{"hostname", "text", ""},
	{"system", "text", ""},
	{"release", "text", ""},
	{"architecture", "text", ""},
	{"processors", "count", "on line"},

	{ARTIFACT_TABLE, SCHEMA_FILE,
		"Of an experiment that has ended: a line for each segment under a line of names. "
		"What is not known is empty. Here a line by its names."},
	{"segment", "count", ""},
	{"block", "count", ""},
	{"position", "count", "in the block"},
	{"arm", "text", ""},
	{"state", "text", ""},
	{"void", "text|null", "why its block does not count"},
	{"tokens_measured", "count|null", ""},
	{"seconds_measured", "real|null", ""},
	{"tok_s", "real|null", ""},
	{"step_median_ns", "count|null", ""},
	{"step_p95_ns", "count|null", ""},
	{"exposed_comm_mean_s", "real|null", ""},
	{"exposed_transfer_mean_s", "real|null", ""},
	{"exposed_wait_mean_s", "real|null", ""},
	{"energy_j", "real|null", ""},
	{"mfu", "real|null", ""},
	{"loss_last", "real|null", ""},
	{"val_loss", "real|null", ""},
	{"steps_attempted", "count|null", ""},
	{"steps_applied", "count|null", ""},
	{"steps_skipped", "count|null", ""},
	{"switch_ns", "int|null", ""},
	{"started_at", "time|null", ""},
	{"ended_at", "time|null", ""},
	{"reason", "text|null", ""},
	{NULL, NULL, NULL},
};
