/*
 * gpt2ctl tune: searches the best values of some keys within a time limit, and confirms them on
 * fresh blocks.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/page.h"
#include "ctl/print/states.h"
#include "ctl/results/comparison_text.h"
#include "ctl/verbs/compare.h"
#include "ctl/verbs/follow.h"
#include "ctl/verbs/show.h"
#include "ctl/verbs/submit.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/stats/verdict.h"

static const struct option_row options[] = {
	{"budget", 0, OPTION_STRING, "TIME", 0, 0,
		"how long the search and its confirmation may take, as 10m; the confirmation has "
		"at least 8 blocks, whatever the budget"},
	{"keys", 0, OPTION_STRING, "KEY=VALUE,...", 0, 0,
		"try these values; several --keys make a grid (default: both bucket sizes over "
		"powers of two, from the smallest legal size to the whole model)",
		true},
	{"set", 0, OPTION_STRING, "KEY=VALUE", 0, 0, "override a key of the spec", true},
	{"name", 0, OPTION_STRING, "NAME", 0, 0, "the name of the runs; overrides the spec"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* Most blocks of the confirmation, and of a round of the search. */
enum { CONFIRM_BLOCKS_MAX = 40, ROUND_BLOCKS_MAX = 8, PLAN_ALIGN_ELEMS = 128, PLAN_BUCKETS = 4096 };

struct tune {
	struct ctl *ctl;
	struct client *client;
	json_t *base;   /* the spec without arms */
	json_t *arms;   /* the candidates left: name to changed keys */
	json_t *rounds; /* for --json */
	int64_t budget_ns, start_ns;
	double segment_s; /* wall time of one, from the last experiment */
	int64_t runs;     /* submitted so far */
	const char *best; /* of the last round; a key of arms */
	double theta;
};

/* ---- candidates ---- */

static json_t *bucket_arm(int64_t elems)
{
	return json_pack("{s:{s:I, s:I}}", "zero_optimization", "reduce_bucket_size",
		(json_int_t)elems, "allgather_bucket_size", (json_int_t)elems);
}

/* Both bucket sizes over powers of two; the engine's plan has the size of the model. */
static int bucket_arms(struct tune *u, struct ctl_error *e)
{
	char *text = json_dumps(u->base, 0);
	json_t *reply, *plan;
	int64_t arena, world, elems = PLAN_ALIGN_ELEMS;
	char name[32];
	int exit = client_request(u->client, METHOD_DRY_RUN, json_pack("{s:s}", "spec", text),
		CLIENT_CHECK_S, &reply, e);

	free(text);
	if (exit)
		return exit;
	plan = json_object_get(json_array_get(json_object_get(reply, "arms"), 0), "check");
	world = format_int(json_object_get(plan, "batch"), "world", 1);
	plan = json_object_get(plan, "plan");
	arena = format_int(plan, "arena_elems", 0);
	json_decref(reply);
	if (arena <= 0)
		return ctl_error_set(e, CTL_TRANSPORT, "tune: gpt2d sent no bucket plan");
	while (elems < world * PLAN_ALIGN_ELEMS || elems < arena / PLAN_BUCKETS + 1)
		elems *= 2;
	for (bool whole = false; !whole; elems *= 2) {
		whole = elems >= arena;
		snprintf(name, sizeof(name), "%" PRId64, elems);
		json_object_set_new(u->arms, name, bucket_arm(elems));
	}
	return 0;
}

/* The spec as gpt2ctl reads it, with the arms of --keys. */
static int read_spec(struct tune *u, const struct spec_source *source, struct ctl_error *e)
{
	char *text = submit_parse(u->ctl, source, e);
	const bool swept = options_has(source->args, "keys");
	const char *name;
	json_t *arm;
	void *next;

	if (!text)
		return CTL_USAGE;
	u->base = json_loads(text, 0, NULL);
	free(text);
	if (!swept && json_object_get(u->base, "arms"))
		return ctl_error_set(e, CTL_USAGE,
			"tune: the spec has arms (expected a spec of one configuration)");
	u->arms = swept ? json_incref(json_object_get(u->base, "arms")) : json_object();
	/* the base and its control are not candidates */
	json_object_foreach_safe(u->arms, next, name, arm)
		if (json_object_size(arm) == 0)
			json_object_del(u->arms, name);
	json_object_del(u->base, "arms");
	json_object_del(u->base, "design");
	return 0;
}

/* ---- experiments ---- */

static char *experiment_text(const struct tune *u, int64_t blocks, bool control)
{
	json_t *spec = json_deep_copy(u->base), *arms = json_object(), *arm;
	const char *name;
	char *text;

	json_object_set_new(arms, "base", json_object());
	json_object_foreach(u->arms, name, arm)
		json_object_set(arms, name, arm);
	json_object_set_new(spec, "arms", arms);
	json_object_set_new(spec, "design",
		json_pack("{s:I, s:b, s:I}", "repetitions", (json_int_t)blocks, "aa_control",
			control, "seed", (json_int_t)(u->runs + 1)));
	text = json_dumps(spec, JSON_REAL_PRECISION(17));
	json_decref(spec);
	return text;
}

static int submit(struct tune *u, int64_t blocks, bool control, int64_t *id, struct ctl_error *e)
{
	struct page p = {.term = &u->ctl->output.out};
	char *text = experiment_text(u, blocks, control);
	json_t *reply;
	int exit = client_request(u->client, METHOD_SUBMIT, json_pack("{s:s}", "spec", text),
		CLIENT_CHECK_S, &reply, e);

	free(text);
	if (exit)
		return exit;
	*id = format_int(reply, "id", 0);
	u->runs++;
	json_decref(reply);
	if (u->ctl->output.json)
		return 0;
	page_part(&p, "run %" PRId64 ": %zu candidate%s, %" PRId64 " block%s", *id,
		json_object_size(u->arms), json_object_size(u->arms) == 1 ? "" : "s", blocks,
		blocks == 1 ? "" : "s");
	page_end(&p);
	output_flush(&u->ctl->output);
	return 0;
}

static void on_event(struct watch *w, struct watch_run *r, const char *event, json_t *params)
{
	struct output *o = &w->ctl->output;

	if (o->json || strcmp(event, EVENT_STEP) != 0)
		return;
	json_object_set_new(params, "name", json_string(r->name));
	progress_show(&((struct following *)w)->progress, params, clock_mono_ns());
	output_flush(o);
}

/* Waits until the run has ended; a failed one may have results. */
static int wait_for(struct tune *u, int64_t id, struct ctl_error *e)
{
	struct watch_run r = {.id = id};
	struct following w = {.watch = {.ctl = u->ctl,
				      .client = u->client,
				      .runs = &r,
				      .n = 1,
				      .deadline_ns = -1,
				      .event = on_event}};
	const int exit = follow_watch(&w, &u->ctl->output.out, e);

	if (!exit && states_exit(r.state) != CTL_OK && states_exit(r.state) != CTL_RUN_FAILED)
		return ctl_error_set(
			e, states_exit(r.state), "tune: run %" PRId64 " was %s", id, r.state);
	return exit;
}

/* Trains the candidates beside the base: 0 and the comparison, the caller's. */
static int run_experiment(
	struct tune *u, int64_t blocks, bool control, json_t **comparison, struct ctl_error *e)
{
	const int64_t begun_ns = clock_mono_ns();
	json_t *show = NULL;
	char word[32];
	int64_t id = 0;
	int exit = submit(u, blocks, control, &id, e);

	if (!exit)
		exit = wait_for(u, id, e);
	snprintf(word, sizeof(word), "%" PRId64, id);
	if (!exit)
		exit = show_fetch(u->ctl, word, &show, e);
	if (!exit)
		exit = compare_make(show, NULL, comparison, e);
	if (!exit)
		u->segment_s = (double)(clock_mono_ns() - begun_ns) * 1e-9 /
			(double)format_int(*comparison, "segments_used", 1);
	json_decref(show);
	return exit;
}

/* ---- the search ---- */

struct ranked {
	const char *name;
	double theta;
};

static int by_theta(const void *a, const void *b)
{
	const double x = ((const struct ranked *)a)->theta, y = ((const struct ranked *)b)->theta;

	return (x < y) - (x > y);
}

/* Keeps the better half of the candidates; those without a figure are dropped. */
static void halve(struct tune *u, const json_t *comparison)
{
	const size_t n = json_object_size(u->arms), keep = (n + 1) / 2;
	struct ranked *rows = memory_zeroed(n, sizeof(*rows));
	json_t *left = json_object(), *arm;
	const char *name;
	size_t i = 0;

	json_object_foreach(u->arms, name, arm) {
		json_t *key = json_string(name);
		const json_t *row =
			comparison_text_arm(json_object_get(comparison, "comparisons"), key);
		const double theta =
			format_int(row, "blocks", 0) > 0 ? format_real(row, "theta") : (double)NAN;

		rows[i++] = (struct ranked){name, isfinite(theta) ? theta : -(double)INFINITY};
		json_decref(key);
	}
	qsort(rows, n, sizeof(*rows), by_theta);
	for (i = 0; i < n && i < keep && isfinite(rows[i].theta); i++)
		json_object_set(left, rows[i].name, json_object_get(u->arms, rows[i].name));
	u->theta = n > 0 ? rows[0].theta : -(double)INFINITY;
	free(rows);
	json_decref(u->arms);
	u->arms = left;
	u->best = json_object_iter_key(json_object_iter(left));
}

static double seconds_left(const struct tune *u)
{
	return (double)(u->budget_ns - (clock_mono_ns() - u->start_ns)) * 1e-9;
}

/* Number of segments of this many blocks with this many arms. */
static double cost_s(const struct tune *u, int64_t blocks, size_t arms)
{
	return (double)blocks * 2.0 * (double)arms * u->segment_s;
}

static void add_round(struct tune *u, const json_t *comparison, size_t tried, int64_t blocks)
{
	const double percent = estimate_throughput_percent(u->theta);
	struct page p = {.term = &u->ctl->output.out};
	const json_t *run = json_object_get(comparison, "run");
	char text[FORMAT_BYTES];

	json_array_append_new(u->rounds,
		json_pack("{s:O, s:I, s:I, s:s?, s:o}", "run", json_object_get(run, "id"),
			"candidates", (json_int_t)tried, "blocks", (json_int_t)blocks, "best",
			u->best, "throughput_percent", rpc_real(percent)));
	if (u->ctl->output.json)
		return;
	page_part(&p, "best %s %s", u->best ? u->best : "-", format_signed(percent, text));
	page_part(&p, "%zu left", json_object_size(u->arms));
	page_end(&p);
}

/* Doubles the blocks and halves the candidates, until one is left or the time is short. */
static int search(struct tune *u, struct ctl_error *e)
{
	int64_t blocks = 1;
	int exit = 0;

	while (!exit && json_object_size(u->arms) > (u->best ? 1 : 0)) {
		const size_t tried = json_object_size(u->arms);
		json_t *comparison = NULL;

		if (u->best &&
			cost_s(u, blocks, tried + 1) + cost_s(u, VERDICT_BLOCKS_MIN, 3) >
				seconds_left(u))
			break;
		exit = run_experiment(u, blocks, false, &comparison, e);
		if (exit)
			break;
		halve(u, comparison);
		add_round(u, comparison, tried, blocks);
		json_decref(comparison);
		blocks = blocks * 2 < ROUND_BLOCKS_MAX ? blocks * 2 : ROUND_BLOCKS_MAX;
	}
	return exit;
}

/* Compares the winner with the base on blocks that the search did not see. */
static int confirm(struct tune *u, json_t **comparison, struct ctl_error *e)
{
	const double fit = seconds_left(u) / cost_s(u, 1, 3);
	int64_t blocks = VERDICT_BLOCKS_MIN;
	json_t *arm = json_incref(json_object_get(u->arms, u->best));
	char name[SPEC_NAME_MAX + 1];

	if (fit > (double)blocks)
		blocks = fit < CONFIRM_BLOCKS_MAX ? (int64_t)fit : CONFIRM_BLOCKS_MAX;
	snprintf(name, sizeof(name), "%s", u->best);
	json_object_clear(u->arms);
	json_object_set_new(u->arms, name, arm);
	return run_experiment(u, blocks, true, comparison, e);
}

/* ---- the verb ---- */

static void print_tune(struct output *o, const json_t *reply)
{
	const json_t *confirmation = json_object_get(reply, "confirmation");
	struct page p = {.term = &o->out};
	char winner[80];

	if (json_is_object(confirmation)) {
		page_part(&p,
			"confirmation of %s on fresh blocks, on which alone the verdict rests:",
			format_string(reply, "winner", "", winner, sizeof(winner)));
		page_end(&p);
		comparison_text_print(o, confirmation);
		return;
	}
	page_part(&p, "no candidate was faster than the base in the search: keep the base");
	page_end(&p);
}

static int tune(struct tune *u, const struct spec_source *source, struct ctl_error *e)
{
	char winner[SPEC_NAME_MAX + 1] = "";
	json_t *confirmation = NULL, *reply, *values = NULL;
	int exit = read_spec(u, source, e);

	if (!exit)
		exit = client_open(&u->ctl->link, &u->client, e);
	if (!exit && json_object_size(u->arms) == 0)
		exit = bucket_arms(u, e);
	if (!exit)
		exit = search(u, e);
	if (!exit && u->best && u->theta > 0.0) {
		snprintf(winner, sizeof(winner), "%s", u->best);
		values = json_deep_copy(json_object_get(u->arms, winner));
		exit = confirm(u, &confirmation, e);
	}
	if (!exit) {
		reply = json_pack("{s:O, s:s?, s:O?, s:O?, s:f}", "rounds", u->rounds, "winner",
			*winner ? winner : NULL, "values", values, "confirmation", confirmation,
			"seconds", (double)(clock_mono_ns() - u->start_ns) * 1e-9);
		output_print(&u->ctl->output, "tune", reply, print_tune);
		json_decref(reply);
	}
	json_decref(values);
	json_decref(confirmation);
	return exit;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const char *budget = options_string(args, "budget", NULL);
	struct tune u = {.ctl = ctl, .start_ns = clock_mono_ns(), .theta = -(double)INFINITY};
	struct spec_source source;
	int64_t seconds;
	int exit;

	if (!budget)
		ctl_error_set(e, CTL_USAGE, "tune: missing --budget TIME, such as --budget 10m");
	else
		verb_parse_time("--budget", budget, &seconds, e);
	if (e->exit || spec_source_load(args, &source, e) != 0)
		return e->exit;
	u.budget_ns = seconds * CLOCK_S_NS;
	u.rounds = json_array();
	interrupt_begin();
	exit = tune(&u, &source, e);
	client_close(u.client);
	json_decref(u.base);
	json_decref(u.arms);
	json_decref(u.rounds);
	spec_source_unload(&source);
	return exit;
}

const struct verb verb_tune = {
	.name = "tune",
	.args = "FILE|-",
	.min_args = 1,
	.max_args = 1,
	.summary = "search for faster values of keys, and confirm the best",
	.text = "FILE is the spec of one configuration. tune submits experiments to gpt2d one "
		"after another: all candidates beside the spec's own values in one block, then "
		"the better half in twice as many blocks, until one candidate is left or the "
		"budget requires the confirmation. The confirmation compares the winner with the "
		"base on fresh blocks. The verdict rests on the confirmation alone, because the "
		"winner of a search looks better than it is. tune shows the progress of each "
		"experiment as follow does. An interrupt leaves the experiment in progress to "
		"gpt2d.",
	.options = options,
	.run = run,
};
