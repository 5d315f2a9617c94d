/* gpt2ctl plan: predicts the step time of a spec on more nodes. */
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/page.h"
#include "ctl/verbs/submit.h"
#include "proto/rpc.h"
#include "proto/stats/scaling.h"

enum { RANKS_PER_NODE = 8 };

static const struct option_row options[] = {
	{"nodes", 0, OPTION_INT, "N", 1, SPEC_WORLD_MAX, "the number of nodes; required"},
	{"network", 0, OPTION_STRING, "FILE", 0, 0, "a file with figures of the network; required"},
	{"ranks-per-node", 0, OPTION_INT, "N", 1, SPEC_WORLD_MAX, "GPUs of a node (default 8)"},
	{"compute-ms", 0, OPTION_REAL, "MS", 1e-3, 1e9,
		"forward and backward of a step on one GPU, measured with the spec's micro-batch "
		"and accumulation (default: estimated for an H200)"},
	{"set", 0, OPTION_STRING, "KEY=VALUE", 0, 0, "override a key of the spec", true},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct planning {
	struct scaling_network network;
	struct scaling_world world;
	struct scaling_work work;
	bool estimated;
	double dropout;
	int64_t reduce_elems, gather_elems; /* the spec's */
};

/* ---- the network ---- */

static int unknown_key(const char *file, const char *of, const json_t *object,
	const char *const keys[2], struct ctl_error *e)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value) {
		if (strcmp(key, keys[0]) != 0 && strcmp(key, keys[1]) != 0)
			return ctl_error_set(e, CTL_USAGE,
				"%.400s: %s%s%.80s: unknown key (expected %s and %s)", file, of,
				*of ? "." : "", key, keys[0], keys[1]);
	}
	return 0;
}

static int read_link(const char *file, const char *name, const json_t *network,
	struct scaling_link *link, struct ctl_error *e)
{
	static const char *const keys[2] = {"alpha_us", "gb_s"};
	const json_t *object = json_object_get(network, name);
	double values[2];

	if (!json_is_object(object))
		return ctl_error_set(e, CTL_USAGE,
			"%.400s: %s: missing (expected {\"alpha_us\": number, \"gb_s\": number})",
			file, name);
	for (size_t i = 0; i < 2; i++) {
		values[i] = format_real(object, keys[i]);
		if (!(values[i] >= (i == 0 ? 0.0 : 1e-6) && values[i] <= 1e6))
			return ctl_error_set(e, CTL_USAGE,
				"%.400s: %s.%s: invalid (expected a number from %s to 1e6)", file,
				name, keys[i], i == 0 ? "0" : "1e-6");
	}
	*link = (struct scaling_link){.alpha_us = values[0], .gb_s = values[1]};
	return unknown_key(file, name, object, keys, e);
}

static int read_network(const char *file, struct scaling_network *network, struct ctl_error *e)
{
	static const char *const keys[2] = {"within", "between"};
	json_error_t error;
	json_t *object = json_load_file(file, JSON_REJECT_DUPLICATES, &error);

	if (!object && error.line > 0)
		return ctl_error_set(e, CTL_USAGE, "%.400s:%d: %s", file, error.line, error.text);
	if (!object) /* the text names the file */
		return ctl_error_set(e, CTL_USAGE, "--network: %s", error.text);
	if (!json_is_object(object))
		ctl_error_set(e, CTL_USAGE, "%.400s: invalid (expected an object)", file);
	else if (read_link(file, keys[0], object, &network->within, e) == 0 &&
		read_link(file, keys[1], object, &network->between, e) == 0)
		unknown_key(file, "", object, keys, e);
	json_decref(object);
	return e->exit;
}

/* ---- the work ---- */

static double rate(enum spec_precision precision)
{
	return precision == SPEC_FP32    ? SCALING_TFLOPS_FP32
		: precision == SPEC_TF32 ? SCALING_TFLOPS_TF32
					 : SCALING_TFLOPS_16BIT;
}

static int take_config(struct planning *p, const struct spec_config *c, const struct options *args,
	struct ctl_error *e)
{
	const struct scaling_model model = {.n_layer = c->model.n_layer,
		.n_embd = c->model.n_embd,
		.vocab_size = c->model.vocab_size,
		.n_positions = c->model.n_positions,
		.tied_head = c->model.tied_head};
	const int64_t world = p->world.nodes * p->world.per_node;

	if (c->gpus != world)
		return ctl_error_set(e, CTL_USAGE,
			"plan: the spec has gpus %lld (expected %lld, %lld nodes of %lld)\n"
			"change --nodes, --ranks-per-node, or the spec: --set gpus=%lld",
			(long long)c->gpus, (long long)world, (long long)p->world.nodes,
			(long long)p->world.per_node, (long long)world);
	if (c->zero_stage > 1)
		return ctl_error_set(e, CTL_USAGE,
			"plan: zero_optimization.stage %lld: no model for it (expected 0 or 1)",
			(long long)c->zero_stage);
	p->estimated = !options_has(args, "compute-ms");
	p->dropout = c->model.dropout;
	p->reduce_elems = c->reduce_bucket_elems;
	p->gather_elems = c->allgather_bucket_elems;
	p->work = (struct scaling_work){.params = scaling_params(&model),
		.late_params = scaling_late_params(&model),
		.elem_bytes = c->precision == SPEC_BF16 || c->precision == SPEC_FP16 ? 2 : 4,
		.zero_stage = c->zero_stage,
		.accumulation = c->accumulation,
		.overlap = c->overlap_comm,
		.compute_us = 1e3 * options_real(args, "compute-ms", 0.0),
		.compute_error = SCALING_MEASURED_ERROR,
		.optimizer_us = scaling_optimizer_us(scaling_params(&model))};
	if (p->estimated) {
		p->work.compute_error = SCALING_COMPUTE_ERROR;
		p->work.compute_us = scaling_compute_us(
			&model, c->seq_len, c->micro_batch, c->accumulation, rate(c->precision));
	}
	return 0;
}

/* The spec for all these ranks: 0, or the exit status, with e unless the errors were printed. */
static int read_spec(
	struct ctl *ctl, struct planning *p, const struct options *args, struct ctl_error *e)
{
	const struct spec_options how = {
		.base_dir = "/", .world = (int)(p->world.nodes * p->world.per_node)};
	struct spec_source source;
	struct spec_errors errors;
	struct spec *spec = NULL;
	char *text;
	int exit = spec_source_load(args, &source, e);

	if (exit)
		return exit;
	source.world = how.world;
	text = submit_parse(ctl, &source, e);
	spec_source_unload(&source);
	if (!text)
		return CTL_USAGE;
	exit = spec_parse(text, strlen(text), &how, &spec, &errors) == 0
		? take_config(p, &spec->arms[0].config, args, e)
		: ctl_error_set(e, CTL_USAGE, "plan: the canonical spec is invalid");
	spec_free(spec);
	free(text);
	return exit;
}

/* ---- the result ---- */

static json_t *row_json(const struct planning *p, int64_t reduce, int64_t gather, bool of_spec)
{
	struct scaling_prediction r;

	scaling_predict(&p->network, &p->world, &p->work, reduce, gather, &r);
	return json_pack("{s:I, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "bucket_size",
		(json_int_t)reduce, "of_spec", of_spec, "reduce_buckets", (json_int_t)r.n_reduce,
		"gather_buckets", (json_int_t)r.n_gather, "communication_ms",
		rpc_real(r.expected.comm_us / 1e3), "exposed_ms",
		rpc_real(r.expected.exposed_us / 1e3), "exposed_low_ms",
		rpc_real(r.low.exposed_us / 1e3), "exposed_high_ms",
		rpc_real(r.high.exposed_us / 1e3), "step_ms", rpc_real(r.expected.step_us / 1e3),
		"step_low_ms", rpc_real(r.low.step_us / 1e3), "step_high_ms",
		rpc_real(r.high.step_us / 1e3));
}

/* The spec's bucket size, then one size for each other number of buckets. */
static json_t *rows_json(const struct planning *p)
{
	static const int64_t sizes[] = {500000000, 200000000, 100000000, 50000000, 25000000,
		10000000, 5000000, 2000000, 1000000};
	json_t *rows = json_array(), *row;
	int64_t n, before = 0;

	json_array_append_new(rows, row_json(p, p->reduce_elems, p->gather_elems, true));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		row = row_json(p, sizes[i], sizes[i], false);
		n = format_int(row, "reduce_buckets", 0);
		if (n != before && (sizes[i] != p->reduce_elems || sizes[i] != p->gather_elems))
			json_array_append(rows, row);
		before = n;
		json_decref(row);
	}
	return rows;
}

static int64_t fastest(const json_t *rows)
{
	const json_t *row, *best = json_array_get(rows, 0);
	size_t i;

	json_array_foreach(rows, i, row) {
		if (format_real(row, "step_ms") < format_real(best, "step_ms"))
			best = row;
	}
	return format_int(best, "bucket_size", 0);
}

static json_t *assumptions_json(const struct planning *p)
{
	json_t *texts = json_array();

	json_array_append_new(texts,
		json_string("Collectives are rings. A collective costs 15 us and alpha_us for each "
			    "hop; its bytes travel at the slower one of both rates. Fitted to four "
			    "H200 of one host; more ranks and several nodes were not measured."));
	json_array_append_new(texts,
		json_string("The bars cover rates and latencies that are 15% and 50% off within a "
			    "node, 0.6 to 1.2 and 0.4 to 2 times the stated ones between nodes. "
			    "They move all rows together."));
	json_array_append_new(texts,
		json_string("A third of the computation is forward. Gradients become complete "
			    "evenly during backward, those of the embeddings at its end."));
	json_array_append_new(texts,
		json_string("Communication beside computation slows it by 0.65 of its time (0.5 to "
			    "0.9 measured). No rank is slower than another, and no other job uses "
			    "the network."));
	if (p->estimated)
		json_array_append_new(texts,
			json_string("Computation is estimated from FLOPs as gpt2d's steps on an "
				    "H200, within 15%. A measured --compute-ms is better."));
	if (p->estimated && p->dropout > 0.0)
		json_array_append_new(texts,
			json_string("Dropout is not in the estimate and costs time: give "
				    "--compute-ms."));
	return texts;
}

static json_t *link_json(const struct scaling_link *link)
{
	return json_pack("{s:f, s:f}", "alpha_us", link->alpha_us, "gb_s", link->gb_s);
}

static json_t *plan_json(const struct planning *p)
{
	json_t *rows = rows_json(p);

	return json_pack("{s:I, s:I, s:I, s:{s:o, s:o}, s:o, s:f, s:b, s:o, s:o, s:I, s:o}",
		"nodes", (json_int_t)p->world.nodes, "ranks_per_node",
		(json_int_t)p->world.per_node, "parameters", (json_int_t)p->work.params, "network",
		"within", link_json(&p->network.within), "between", link_json(&p->network.between),
		"compute_ms", rpc_real(p->work.compute_us / 1e3), "compute_error",
		p->work.compute_error, "compute_estimated", p->estimated, "optimizer_ms",
		rpc_real(p->work.optimizer_us / 1e3), "rows", rows, "fastest",
		(json_int_t)fastest(rows), "assumptions", assumptions_json(p));
}

/* ---- text ---- */

static void print_rows(const struct term *term, const json_t *rows)
{
	struct table t;
	const json_t *row;
	size_t i;

	table_init(&t);
	table_columns(&t, ">BUCKET\t>BUCKETS\t>COMM ms\t>EXPOSED ms\t>STEP ms");
	json_array_foreach(rows, i, row) {
		members_cells(&t, row,
			json_is_true(json_object_get(row, "of_spec")) ? "spec: {bucket_size:count}"
								      : "{bucket_size:count}");
		members_cells(&t, row,
			"{reduce_buckets}\t{communication_ms:.2}\t"
			"{exposed_ms:.2} ({exposed_low_ms:.2} to {exposed_high_ms:.2})\t"
			"{step_ms:.2} ({step_low_ms:.2} to {step_high_ms:.2})");
	}
	table_print(&t, term, "");
	table_finish(&t);
}

static void print_plan(struct output *o, const json_t *plan)
{
	struct page p = {.term = &o->out};
	FILE *out = o->out.file;
	const json_t *text;
	size_t i;

	members_print(out, plan,
		"predicted, not measured: {nodes} node{nodes:s} of {ranks_per_node} "
		"GPU{ranks_per_node:s}, {parameters:si} parameters\n"
		"computation {compute_ms:.2} ms");
	fputs(json_is_true(json_object_get(plan, "compute_estimated")) ? " +-15% (estimated)"
								       : " +-3% (given)",
		out);
	members_print(out, plan,
		", AdamW on one GPU {optimizer_ms:.2} ms\n"
		"network: within a node {network.within.alpha_us:6g} us, "
		"{network.within.gb_s:6g} GB/s; between nodes {network.between.alpha_us:6g} us, "
		"{network.between.gb_s:6g} GB/s\n\n");
	print_rows(&o->out, json_object_get(plan, "rows"));
	members_print(out, plan,
		"\nleast step time: buckets of {fastest:count} elements\nassumptions:\n");
	json_array_foreach(json_object_get(plan, "assumptions"), i, text) {
		page_part(&p, "- %s", json_string_value(text));
		page_end(&p);
	}
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct planning p = {.world = {options_int(args, "nodes", 0),
				     options_int(args, "ranks-per-node", RANKS_PER_NODE)}};
	const char *file = options_string(args, "network", NULL);
	json_t *plan;
	int exit;

	if (p.world.nodes == 0 || !file)
		ctl_error_set(
			e, CTL_USAGE, "plan: missing option %s", file ? "--nodes" : "--network");
	else if (p.world.nodes * p.world.per_node > SPEC_WORLD_MAX)
		ctl_error_set(e, CTL_USAGE, "plan: %lld ranks are too many (at most %d)",
			(long long)(p.world.nodes * p.world.per_node), SPEC_WORLD_MAX);
	if (e->exit || read_network(file, &p.network, e) != 0)
		return e->exit;
	exit = read_spec(ctl, &p, args, e);
	if (exit)
		return exit;
	plan = plan_json(&p);
	output_print(&ctl->output, "prediction", plan, print_plan);
	json_decref(plan);
	return CTL_OK;
}

const struct verb verb_plan = {
	.name = "plan",
	.args = "FILE",
	.min_args = 1,
	.max_args = 1,
	.summary = "predict a spec's step time on several nodes, by bucket size",
	.text = "FILE is a run spec or - for stdin; if the spec has arms, the first arm counts. "
		"The prediction comes from a model of the network and of gpt2d's steps on H200. "
		"plan needs no gpt2d and measures nothing. The file of --network is a JSON object: "
		"{\"within\": {\"alpha_us\": 3.4, \"gb_s\": 319}, \"between\": {\"alpha_us\": 9.6, "
		"\"gb_s\": 340}}. alpha_us is the latency of one hop in microseconds. within.gb_s "
		"is the rate in GB/s at which a GPU sends to the other GPUs of its node. "
		"between.gb_s is the rate at which a node sends through all its network cards. "
		"Exposed communication and step time have error bars in parentheses. The "
		"assumptions follow.",
	.options = options,
	.run = run,
};
