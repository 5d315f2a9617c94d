#include "daemon/runs/summary.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum source { METRICS, STEPS, PHASES, PLAN, EPOCH, SOURCES };

static const struct row {
	const char *key;
	enum source source;
	const char *from; /* NULL: the same key */
	bool as_ns;       /* it is in seconds there */
} rows[] = {
	{"tokens_measured", METRICS, NULL, false},
	{"tokens_total", METRICS, NULL, false},
	{"seconds_measured", METRICS, NULL, false},
	{"tok_s_global", METRICS, NULL, false},
	{"tok_s_per_gpu", METRICS, NULL, false},
	{"step_median_ns", EPOCH, "step_time_p50_sec", true},
	{"step_p95_ns", EPOCH, "step_time_p95_sec", true},
	{"exposed_comm_mean_s", PHASES, NULL, false},
	{"forward_mean_s", PHASES, NULL, false},
	{"backward_mean_s", PHASES, NULL, false},
	{"optimizer_mean_s", PHASES, NULL, false},
	{"data_mean_s", PHASES, NULL, false},
	{"steps_attempted", STEPS, "attempted", false},
	{"steps_applied", STEPS, "applied", false},
	{"steps_skipped", STEPS, "skipped", false},
	{"loss_last", METRICS, NULL, false},
	{"loss_hash", METRICS, NULL, false},
	{"val_loss", EPOCH, "val_loss_avg_global", false},
	{"grad_norm_last", METRICS, NULL, false},
	{"step_time_ns", METRICS, NULL, false},
	{"losses", METRICS, NULL, false},
	{"nonfinite", METRICS, NULL, false},
	{"init_ns", METRICS, NULL, false},
	{"switch_ns", METRICS, NULL, false},
};

static const char *const plan_keys[] = {
	"reduce_elems", "n_reduce", "gather_elems", "n_gather", "arena_elems", "elem_bytes"};

/* The members that are asked for, or NULL when one is not there. */
static json_t *pick(const json_t *from, const char *const *keys, size_t n)
{
	json_t *picked = json_object();

	for (size_t i = 0; i < n; i++)
		if (json_object_set(picked, keys[i], json_object_get(from, keys[i])) < 0) {
			json_decref(picked);
			return NULL;
		}
	return picked;
}

/* NULL: it is not there, or no time that can be. */
static json_t *value_of(const struct row *row, const json_t *source)
{
	json_t *value = json_object_get(source, row->from ? row->from : row->key);
	double s = json_number_value(value);

	if (!row->as_ns || !json_is_number(value))
		return json_incref(value);
	return s >= 0 && s < 1e9 ? json_integer(llround(s * 1e9)) : NULL;
}

json_t *summary_of_metrics(const json_t *metrics)
{
	const json_t *ours = json_object_get(metrics, "gpt2d");
	const json_t *note = json_object_get(ours, "steps_note");
	json_t *slowest = json_object_get(ours, "slowest_rank"); /* older engines wrote none */
	const json_t *sources[SOURCES] = {
		[METRICS] = ours,
		[STEPS] = json_object_get(ours, "steps"),
		[PHASES] = json_object_get(ours, "phases"),
		[PLAN] = json_object_get(ours, "plan"),
		[EPOCH] = json_array_get(json_object_get(metrics, "epochs"), 0),
	};
	json_t *summary = json_object();
	int rc = json_object_set_new(summary, "plan",
		pick(sources[PLAN], plan_keys, sizeof(plan_keys) / sizeof(plan_keys[0])));

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == 0; i++)
		rc = json_object_set_new(
			summary, rows[i].key, value_of(&rows[i], sources[rows[i].source]));
	if (rc == 0 && json_is_string(note))
		rc = json_object_set(summary, "step_time_note", (json_t *)note);
	if (rc == 0 && slowest)
		rc = json_object_set(summary, "slowest_rank", slowest);
	if (rc == 0)
		return summary;
	json_decref(summary);
	return NULL;
}
