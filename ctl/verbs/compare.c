/* gpt2ctl compare: the arms of an experiment against its baseline, with a verdict for each. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/page.h"
#include "ctl/results/artifact_copy.h"
#include "ctl/results/comparison_table.h"
#include "ctl/results/comparison_text.h"
#include "ctl/print/ranks.h"
#include "ctl/verbs/compare.h"
#include "ctl/verbs/show.h"
#include "ctl/verbs/verb.h"
#include "proto/artifact.h"
#include "proto/experiment/comparison.h"
#include "proto/rpc.h"
#include "proto/spec/spec.h"
#include "proto/spec/spec_table.h"
#include "proto/suggest.h"

static const struct option_row options[] = {
	{"baseline", 'b', OPTION_STRING, "ARM", 0, 0,
		"the arm that the others are compared with (default: the first)"},
	{"md", 0, OPTION_FLAG, NULL, 0, 0, "print a Markdown table"},
	{"csv", 0, OPTION_FLAG, NULL, 0, 0, "print a CSV table, a row per arm"},
	{"methods", 0, OPTION_FLAG, NULL, 0, 0, "print a paragraph for a paper's methods section"},
	{"fail-if", 0, OPTION_STRING, "RULE", 0, 0,
		"slower>1%, faster>1% or changed>1%: exit with 5 if the near end of an arm's "
		"throughput interval is beyond that, with 14 if its verdict is AMBIGUOUS, or if no "
		"arm is compared"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* ---- the comparison of a run ---- */

static int unknown_arm(const struct spec *spec, const char *name, struct ctl_error *e)
{
	const char *names[SPEC_ARMS_MAX], *near;
	char list[SPEC_ARMS_MAX * (SPEC_NAME_MAX + 3)] = "";

	for (size_t i = 0; i < spec->n_arms; i++) {
		names[i] = spec->arms[i].name;
		strcat(list, i ? ", " : "");
		strcat(list, names[i]);
	}
	near = suggest_nearest(name, names, spec->n_arms);
	return ctl_error_set(e, CTL_USAGE, "compare: %.80s: unknown arm (expected %.900s)%s%s%s",
		name, list, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static void nothing_done(const json_t *run, struct ctl_error *e)
{
	const long long id = format_int(run, "id", 0);
	char state[32], reason[1024];

	format_string(run, "state", "?", state, sizeof(state));
	if (!json_is_string(json_object_get(run, "ended_at")))
		ctl_error_set(e, CTL_WRONG_STATE,
			"run %lld: nothing to compare yet (state %s, no segment is done)", id,
			state);
	else
		ctl_error_set(e, CTL_WRONG_STATE,
			"run %lld: nothing to compare (state %s, no segment is done): %s\n"
			"see its messages: gpt2ctl logs %lld",
			id, state,
			format_string(run, "reason", "no reason", reason, sizeof(reason)), id);
}

int compare_make(const json_t *show, const char *baseline, json_t **out, struct ctl_error *e)
{
	struct spec *spec = show_spec(show, e);
	int rc;

	if (!spec)
		return e->exit;
	rc = comparison_make(spec, show, baseline, out);
	if (rc == -ENOENT)
		unknown_arm(spec, baseline, e);
	else if (rc < 0)
		nothing_done(json_object_get(show, "run"), e);
	spec_free(spec);
	return e->exit;
}

/* ---- the machine, from the files of the first segment that is done ---- */

static json_t *read_metrics(struct ctl *ctl, const json_t *run, const json_t *segment)
{
	const char *all = json_string_value(json_object_get(run, "dir"));
	const char *own = json_string_value(json_object_get(segment, "dir"));
	const size_t n = all ? strlen(all) : 0;
	json_t *metrics = NULL;
	struct client *c = NULL;
	struct ctl_error e = {0};
	char path[256], *text = NULL;
	size_t bytes;

	if (!own || n == 0 || strncmp(own, all, n) != 0)
		return NULL;
	snprintf(path, sizeof(path), "%.200s%s" ARTIFACT_METRICS, own[n] == '/' ? own + n + 1 : "",
		own[n] == '/' ? "/" : "");
	if (client_open(&ctl->link, &c, &e) == 0 &&
		artifact_copy_read(c, format_int(run, "id", 0), path, 0, PROTOCOL_ARTIFACT_PIECE,
			&text, &bytes, &e) == 0)
		metrics = json_loadb(text, bytes, 0, NULL);
	ctl_error_clear(&e);
	client_close(c);
	free(text);
	return metrics;
}

/* The nodes of a segment's ranks, in the order of their first ranks. */
static json_t *nodes_of(const json_t *metrics)
{
	const json_t *ranks = json_object_get(json_object_get(metrics, "gpt2d"), "ranks"), *rank;
	json_t *nodes = json_array(), *seen = json_object();
	char number[32];
	size_t i;

	json_array_foreach(ranks, i, rank) {
		const json_t *gpu = json_object_get(rank, "gpu");

		snprintf(number, sizeof(number), "%lld", (long long)format_int(rank, "node", 0));
		if (json_object_get(seen, number))
			continue;
		json_object_set_new(seen, number, json_true());
		json_array_append_new(nodes,
			json_pack("{s:O?, s:O?, s:O?}", "host", json_object_get(rank, "hostname"),
				"gpu", json_object_get(gpu, "name"), "driver",
				json_object_get(gpu, "driver")));
	}
	json_decref(seen);
	return nodes;
}

static json_t *machine_of(struct ctl *ctl, const json_t *show)
{
	static const char *const keys[][3] = {
		{"host", "host", "hostname"},
		{"gpu", "hardware", "gpu_name"},
		{"build", "env", "gpt2d_build"},
		{"cuda", "env", "cuda_version"},
		{"collectives", "env", "collectives"},
		{"blas", "env", "blas"},
	};
	const char *driver;
	const json_t *segment;
	json_t *metrics = NULL, *machine = json_object();
	size_t i;

	json_array_foreach(json_object_get(show, "segments"), i, segment) {
		if (json_is_object(json_object_get(segment, "summary"))) {
			metrics = read_metrics(ctl, json_object_get(show, "run"), segment);
			break;
		}
	}
	for (i = 0; metrics && i < sizeof(keys) / sizeof(keys[0]); i++) {
		json_t *value = json_object_get(json_object_get(metrics, keys[i][1]), keys[i][2]);

		json_object_set(machine, keys[i][0], value);
	}
	if (json_unpack(metrics, "{s:{s:[{s:{s:s}}]}}", "gpt2d", "ranks", "gpu", "driver",
		    &driver) == 0)
		json_object_set_new(machine, "driver", json_string(driver));
	if (metrics)
		json_object_set_new(machine, "nodes", nodes_of(metrics));
	if (json_object_size(machine) == 0) {
		json_decref(machine);
		machine = json_null();
	}
	json_decref(metrics);
	return machine;
}

/* ---- --fail-if ---- */

struct gate {
	bool slower, faster;
	double percent;
};

static int read_gate(const char *text, struct gate *gate, struct ctl_error *e)
{
	char word[8], unit, rest;

	if (sscanf(text, "%7[a-z]>%lf%c%c", word, &gate->percent, &unit, &rest) == 3 &&
		unit == '%' && gate->percent >= 0.0 && isfinite(gate->percent)) {
		gate->slower = strcmp(word, "slower") == 0 || strcmp(word, "changed") == 0;
		gate->faster = strcmp(word, "faster") == 0 || strcmp(word, "changed") == 0;
	}
	if (!gate->slower && !gate->faster)
		return ctl_error_set(e, CTL_USAGE,
			"compare: --fail-if %.80s: invalid (expected slower>N%%, faster>N%% or "
			"changed>N%%)",
			text);
	return 0;
}

static int apply_gate(const struct gate *gate, const json_t *comparison, struct ctl_error *e)
{
	const json_t *row;
	bool compared = false;
	char arm[80];
	size_t i;

	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		const char *verdict = json_string_value(json_object_get(row, "verdict"));
		const double low = format_real(row, "throughput_low_percent");
		const double high = format_real(row, "throughput_high_percent");

		if (comparison_text_hidden(comparison, row))
			continue;
		compared = true;
		format_string(row, "arm", "", arm, sizeof(arm));
		if (!verdict || strcmp(verdict, "AMBIGUOUS") == 0) {
			if (e->exit == 0)
				ctl_error_set(e, CTL_AMBIGUOUS, "%s: AMBIGUOUS", arm);
		} else if ((gate->slower && high < -gate->percent) ||
			(gate->faster && low > gate->percent)) {
			ctl_error_set(e, CTL_GATE_FAILED, "%s: throughput %+.2f%% [%+.2f, %+.2f]",
				arm, format_real(row, "throughput_percent"), low, high);
			break;
		}
	}
	if (!compared)
		ctl_error_set(e, CTL_AMBIGUOUS, "--fail-if: no arm to compare with the baseline");
	return e->exit;
}

/* ---- two runs ---- */

/* The differences of two runs. */
struct unlike {
	json_t *differs;
	bool training; /* one of the keys changes the training */
};

static void add_difference(
	const struct spec_row *row, const char *own, const char *others, void *arg)
{
	struct unlike *unlike = arg;

	unlike->training |= row->effect == SPEC_EFFECT_TRAINING;
	json_array_append_new(unlike->differs,
		json_pack("{s:s, s:s, s:s}", "key", row->key, "value", own, "baseline", others));
}

/* The keys in which the first arms of two runs differ. */
static void find_keys(
	const json_t *first, const json_t *second, struct unlike *unlike, struct ctl_error *e)
{
	struct spec *a = show_spec(first, e), *b = a ? show_spec(second, e) : NULL;

	if (a && b) {
		a->arms[1] = b->arms[0];
		a->n_arms = 2;
		spec_differences(a, 1, 0, add_difference, unlike);
	}
	spec_free(a);
	spec_free(b);
}

/* From the first done segment: a hash of its token sequences. */
static const json_t *data_of(const json_t *show)
{
	const json_t *segment, *hash;
	size_t i;

	json_array_foreach(json_object_get(show, "segments"), i, segment) {
		hash = json_object_get(json_object_get(segment, "summary"), "data_hash");
		if (json_is_string(hash))
			return hash;
	}
	return NULL;
}

static void find_data(const json_t *first, const json_t *second, struct unlike *unlike)
{
	const json_t *a = data_of(first), *b = data_of(second);

	if (!a || !b || json_equal(a, b))
		return;
	unlike->training = true;
	json_array_append_new(unlike->differs,
		json_pack("{s:s, s:O, s:O}", "key", "the token sequences (hash)", "value", b,
			"baseline", a));
}

static void find_machines(struct ctl *ctl, json_t *const shows[2], struct unlike *unlike)
{
	static const char *const keys[] = {"host", "gpu", "build", "driver", "cuda", "collectives"};
	json_t *a = machine_of(ctl, shows[0]), *b = machine_of(ctl, shows[1]);
	char own[128], others[128];

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		format_string(b, keys[i], "", own, sizeof(own));
		format_string(a, keys[i], "", others, sizeof(others));
		if (json_is_object(a) && json_is_object(b) && strcmp(own, others) != 0)
			json_array_append_new(unlike->differs,
				json_pack("{s:s, s:s, s:s}", "key", keys[i], "value", own,
					"baseline", others));
	}
	json_decref(a);
	json_decref(b);
}

static double rate_of(const json_t *comparison)
{
	return format_real(json_array_get(json_object_get(comparison, "arms"), 0), "tok_s");
}

static void print_pair(struct output *o, const json_t *pair)
{
	const json_t *comparison, *difference;
	struct page p = {.term = &o->out};
	size_t i;

	json_array_foreach(json_object_get(pair, "runs"), i, comparison) {
		json_t *arms = json_object_get(comparison, "arms");
		json_t *both = json_pack("{s:O?, s:O?}", "run", json_object_get(comparison, "run"),
			"arm", json_array_get(arms, 0));

		page_members(&p, both,
			json_array_size(arms) > 1
				? "run {run.id} {run.name|}, arm {arm.arm|}: {arm.tok_s:si|-} tok/s"
				: "run {run.id} {run.name|}: {arm.tok_s:si|-} tok/s");
		page_members(&p, both, "median {arm.median_ns:ns|-}, p95 {arm.p95_ns:ns|-}");
		page_members(
			&p, both, "exposed communication {arm.exposed_comm_mean_s:duration|-}");
		page_end(&p);
		json_decref(both);
	}
	json_array_foreach(json_object_get(pair, "differs"), i, difference) {
		page_members(&p, difference, "{key|}: {baseline|-}, {value|-}");
		page_end(&p);
	}
	page_members(
		&p, pair, "throughput of the second over the first {throughput_percent:signed|-}");
	page_end(&p);
	page_part(&p, "one run each: no verdict");
	page_end(&p);
	page_part(&p, "%s",
		json_is_true(json_object_get(pair, "trains_differently"))
			? "the runs did not train the same: the change of throughput does not "
			  "show which one is faster"
			: "the runs trained at different times; for a verdict submit one spec with "
			  "both as its arms");
	page_end(&p);
}

static int compare_two(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	json_t *shows[2] = {NULL, NULL}, *made[2] = {NULL, NULL}, *pair;
	struct unlike unlike = {json_array(), false};
	int exit = 0;

	for (size_t i = 0; i < 2 && !exit; i++) {
		exit = show_fetch(ctl, args->words[i], &shows[i], e);
		if (!exit)
			exit = compare_make(shows[i], NULL, &made[i], e);
	}
	if (!exit) {
		find_keys(shows[0], shows[1], &unlike, e);
		if (!unlike.training)
			find_data(shows[0], shows[1], &unlike);
		find_machines(ctl, shows, &unlike);
		pair = json_pack("{s:[O, O], s:o, s:O, s:b, s:s}", "runs", made[0], made[1],
			"throughput_percent",
			rpc_real(100.0 * (rate_of(made[1]) / rate_of(made[0]) - 1.0)), "differs",
			unlike.differs, "trains_differently", unlike.training, "note",
			"one run each: no verdict");
		output_print(&ctl->output, "compare-runs", pair, print_pair);
		json_decref(pair);
	}
	json_decref(unlike.differs);
	for (size_t i = 0; i < 2; i++) {
		json_decref(shows[i]);
		json_decref(made[i]);
	}
	return exit;
}

/* ---- the verb ---- */

static const struct {
	const char *option;
	void (*print)(struct output *o, const json_t *comparison);
} forms[] = {
	{"md", comparison_table_markdown},
	{"csv", comparison_table_csv},
	{"methods", comparison_table_methods},
};

static int compare_one(
	struct ctl *ctl, const struct options *args, json_t **out, struct ctl_error *e)
{
	json_t *show;

	if (show_fetch(ctl, args->words[0], &show, e) != 0)
		return e->exit;
	if (compare_make(show, options_string(args, "baseline", NULL), out, e) == 0) {
		json_object_set_new(*out, "machine", machine_of(ctl, show));
		json_object_set_new(
			*out, "slow_rank", ranks_find_slow(json_object_get(show, "segments")));
	}
	json_decref(show);
	return e->exit;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	void (*print)(struct output * o, const json_t *comparison) = comparison_text_print;
	const char *rule = options_string(args, "fail-if", NULL);
	struct gate gate = {0};
	json_t *comparison;
	int exit = 0;

	if (rule && read_gate(rule, &gate, e) != 0)
		return e->exit;
	if (args->n_words == 2) {
		if (args->n_values > (size_t)ctl->output.json)
			ctl_error_set(e, CTL_USAGE,
				"compare: two runs have no verdict, so only --json is allowed");
		return e->exit ? e->exit : compare_two(ctl, args, e);
	}
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (options_has(args, forms[i].option))
			print = forms[i].print;
	if (compare_one(ctl, args, &comparison, e) != 0)
		return e->exit;
	output_print(&ctl->output, "compare", comparison, print);
	if (rule)
		exit = apply_gate(&gate, comparison, e);
	json_decref(comparison);
	return exit;
}

const struct verb verb_compare = {
	.name = "compare",
	.args = "ID [ID]",
	.min_args = 1,
	.max_args = 2,
	.summary = "the arms of an experiment against its baseline, with verdicts",
	.text = "Prints what differs between the arms, the change of throughput and step time with "
		"its interval and p, checks of the measurement, the proof of equal work, and last "
		"the verdict: FASTER, SLOWER, SAME or AMBIGUOUS. If the verdict is AMBIGUOUS, "
		"compare prints the reason and what would settle it. If the run has not ended, "
		"compare uses the segments that are done. With two IDs compare prints the figures "
		"of two runs without a verdict, because they ran at different times. Without "
		"--fail-if the exit status is 0, whatever the verdict.",
	.options = options,
	.run = run,
};
