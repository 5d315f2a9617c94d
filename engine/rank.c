#include "engine/rank.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/agreement.h"
#include "engine/check/check.h"
#include "engine/comm/nodes.h"
#include "engine/comm/ucx_wire.h"
#include "engine/generate.h"
#include "engine/report/topology.h"
#include "engine/segment.h"
#include "engine/writer.h"
#include "proto/host/clock.h"
#include "proto/protocol.h"
#include "proto/host/memory.h"
#include "proto/host/starved.h"
#include "proto/host/thread.h"
#include "proto/version.h"

/* Freeing terabytes of a host's memory takes seconds. */
#define TAKE_DOWN_NS (20 * CLOCK_S_NS)

/* ---- hello ---- */

static json_t *pack_device(const struct k_context *ctx)
{
	struct k_device_info info;

	k_context_info(ctx, &info);
	return json_pack("{s:s, s:s, s:s, s:I, s:I}", "backend", info.backend, "name", info.name,
		"library", info.library, "memory_total_bytes", (json_int_t)info.memory_total_bytes,
		"memory_free_bytes", (json_int_t)info.memory_free_bytes);
}

/* local_rank: -1 if there is none. */
static void say_hello(struct link *link, const char *role, int rank, int local_rank,
	const char *address, const struct k_context *ctx)
{
	json_t *params = json_pack("{s:i, s:s, s:s, s:i, s:i}", "protocol", PROTOCOL_VERSION,
		"build", version_build, "role", role, "rank", rank, "pid", (int)getpid());

	if (local_rank >= 0)
		json_object_set_new(params, "local_rank", json_integer(local_rank));
	if (ctx)
		json_object_set_new(params, "device", pack_device(ctx));
	if (address)
		json_object_set_new(params, "address", json_string(address));
	link_send(link, ENGINE_HELLO, params);
}

/* ---- heartbeats ---- */

static json_t *known(int64_t value, double unit)
{
	return value < 0 ? json_null() : json_real((double)value * unit);
}

static json_t *count(int64_t value)
{
	return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static json_t *vitals(void *arg)
{
	const struct warm *w = arg;
	struct nvml_sample s;

	if (!gpu_log_latest(w->gpu_log, &s))
		return json_object();
	return json_pack("{s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}}", "gpu", "utilization",
		known(s.gpu_percent, 1e-2), "memory_used_bytes", count(s.used_bytes),
		"memory_total_bytes", count(s.total_bytes), "temperature_c",
		known(s.temperature_c, 1.0), "power_w", known(s.power_mw, 1e-3), "other_processes",
		count(s.others), "other_pid", count(s.other_pid), "other_memory_bytes",
		count(s.other_bytes));
}

/* ---- topology ---- */

/* On a thread, because the driver takes long to list all GPUs. */
static void *report_topology(void *arg)
{
	link_send(arg, ENGINE_TOPOLOGY, json_pack("{s:o}", "topology", topology_read("", NULL)));
	return NULL;
}

/* ---- role rank ---- */

/* The addresses of engine.connect, freed with free(); NULL: the number is wrong. */
static const char **read_addresses(struct link *link, const json_t *params, int world)
{
	const json_t *addresses = json_object_get(params, "addresses");
	const char **texts, *text;

	if ((int)json_array_size(addresses) != world) {
		link_log(link, "error", "engine.connect: %d addresses, %d ranks",
			(int)json_array_size(addresses), world);
		return NULL;
	}
	texts = memory_zeroed((size_t)world, sizeof(*texts));
	for (int i = 0; i < world; i++) {
		text = json_string_value(json_array_get(addresses, (size_t)i));
		texts[i] = text ? text : "";
	}
	return texts;
}

/*
 * The nodes of engine.connect or check, freed with free(); NULL: the ranks are on one node, or
 * *wrong: the number is wrong, or they are not numbers.
 */
static int *read_nodes(const json_t *params, int world, bool *wrong)
{
	const json_t *list = json_object_get(params, "nodes"), *node;
	int *nodes;

	*wrong = false;
	if (!list || json_is_null(list))
		return NULL;
	*wrong = (int)json_array_size(list) != world;
	nodes = memory_zeroed((size_t)world, sizeof(*nodes));
	for (int i = 0; i < world && !*wrong; i++) {
		node = json_array_get(list, (size_t)i);
		nodes[i] = (int)json_integer_value(node);
		*wrong = !json_is_integer(node);
	}
	if (!*wrong)
		return nodes;
	free(nodes);
	return NULL;
}

static int connect_ranks(struct link *link, struct warm *w, const json_t *params)
{
	const char **texts;
	char error[512];
	bool wrong;
	int rc;

	free(w->nodes);
	w->nodes = read_nodes(params, w->world, &wrong);
	if (wrong) {
		link_log(link, "error", "engine.connect: nodes are not %d numbers, one a rank",
			w->world);
		return ENGINE_EXIT_BOOTSTRAP;
	}
	if (w->world == 1)
		return 0;
	texts = read_addresses(link, params, w->world);
	if (!texts)
		return ENGINE_EXIT_BOOTSTRAP;
	rc = collectives_connect(w->collectives, texts, w->nodes, error, sizeof(error));
	free(texts);
	w->used_ns = clock_mono_ns();
	if (!rc)
		return 0;
	link_log(link, "error", "%s", error);
	return ENGINE_EXIT_BOOTSTRAP;
}

/* 0, or the exit code. Takes params. */
static int run_segment(struct link *link, struct warm *w, struct writer *writer,
	struct saver *saver, json_t *params)
{
	struct segment *s = segment_create(params, saver, link);
	bool trained, agreed, writes;
	int exit_code;

	agreed = agreement_reach(s, w, segment_prepare(s, w), link);
	trained = agreed && segment_train(s, w, link);
	exit_code = s->failure.poisoned ? s->failure.exit_code : 0;
	writes = w->rank == 0 && (agreed || s->cancelled) && !exit_code;

	if (writes)
		writer_wait(writer);
	if (w->rank == 0 && trained)
		link_send(link, SEGMENT_TRAINED,
			json_pack("{s:I, s:I}", "run", (json_int_t)s->run, "segment",
				(json_int_t)s->segment));
	if (writes) {
		writer_add(writer, s);
		return 0;
	}
	if (s->failure.reason)
		segment_report_failure(s, link);
	if (!exit_code) /* else the process ends while a thread may still write a checkpoint of s */
		segment_destroy(s);
	return exit_code;
}

/* Handles one message: -1 to continue, or an exit code. */
static int handle(struct link *link, struct warm *w, struct writer *writer, struct saver *saver,
	struct generate_model **kept, struct rpc_message *m)
{
	int code;

	if (strcmp(m->method, SEGMENT_START) == 0) {
		generate_drop(kept);
		code = run_segment(link, w, writer, saver, json_incref(m->params));
		return code ? code : -1;
	}
	if (strcmp(m->method, GENERATE_START) == 0)
		return generate_run(link, w, kept, m->params) ? -1 : ENGINE_EXIT_POISONED;
	if (strcmp(m->method, ENGINE_EXIT) == 0)
		return ENGINE_EXIT_OK;
	if (strcmp(m->method, ENGINE_CONNECT) == 0) {
		code = connect_ranks(link, w, m->params);
		if (code)
			return code;
		link_send(link, ENGINE_READY, json_object());
		return -1;
	}
	/* a cancellation after its segment's end has nothing to stop */
	if (strcmp(m->method, SEGMENT_CANCEL) != 0)
		link_log(link, "warning", "%.64s: no such message", m->method);
	return -1;
}

static int serve(struct link *link, struct warm *w, struct writer *writer, struct saver *saver)
{
	struct generate_model *kept = NULL;
	struct rpc_message m;
	int code = -1;

	while (code < 0) {
		if (link_receive(link, &m)) {
			code = ENGINE_EXIT_ORPHAN;
			break;
		}
		code = handle(link, w, writer, saver, &kept, &m);
		rpc_clear(&m);
	}
	generate_drop(&kept);
	return code;
}

/* The exit code of an engine that could not start because of status. */
static int exit_code_of(int status)
{
	switch (status) {
	case -EAGAIN:
		return ENGINE_EXIT_STARVED;
	case -ENOSPC:
	case -ENODEV: /* the interface to other nodes */
	case -ENETDOWN:
	case -EADDRNOTAVAIL:
		return ENGINE_EXIT_BOOTSTRAP;
	default:
		return ENGINE_EXIT_POISONED;
	}
}

int rank_run(struct link *link, const struct warm_options *options)
{
	struct writer_options wo = {
		.link = link, .threads = options->threads, .peak_tflops = options->peak_tflops};
	struct writer *writer = NULL;
	pthread_t reporter;
	struct saver *saver = NULL;
	struct warm *w;
	char error[512];
	bool report;
	int code = ENGINE_EXIT_POISONED, rc;

	rc = warm_create(options, &w, error, sizeof(error));
	if (rc) {
		link_log(link, "error", "%s", error);
		return exit_code_of(rc);
	}
	if (w->rank == 0 && w->tuned.note[0])
		link_log(link, "warning", "choosing algorithms again: %s", w->tuned.note);
	k_context_info(w->ctx, &wo.device);
	wo.collectives = w->collectives ? collectives_library(w->collectives) : NULL;
	rc = w->rank == 0 ? writer_create(&wo, &writer) : 0;
	if (!rc)
		rc = saver_create(w->ctx, &saver);
	if (rc) {
		link_log(link, "error", "no thread to write files");
		code = exit_code_of(rc);
		goto out;
	}
	say_hello(link, "rank", w->rank, w->local_rank,
		w->collectives ? collectives_address(w->collectives) : NULL, w->ctx);
	report = w->local_rank == 0 &&
		thread_start(&reporter, report_topology, link, "topology") == 0;
	if (w->gpu_log)
		link_set_vitals(link, vitals, w);
	code = serve(link, w, writer, saver);
	link_set_vitals(link, NULL, NULL);
	if (report)
		pthread_join(reporter, NULL);
out:
	writer_destroy(writer);
	/*
	 * without its peers, or on a broken device, an orderly end would wait for ever; after a
	 * failed connect it may, because of a thread's work on the device
	 */
	if (code == ENGINE_EXIT_PEER_LOST || code == ENGINE_EXIT_POISONED)
		return code;
	saver_destroy(saver);
	if (!warm_destroy_within(w, TAKE_DOWN_NS) && code == ENGINE_EXIT_OK)
		code = ENGINE_EXIT_POISONED;
	return code;
}

/* ---- role check ---- */

static json_t *spec_error_list(const struct spec_errors *errors)
{
	json_t *list = json_array();

	for (size_t i = 0; i < errors->n; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:s}", "key", errors->error[i].key, "message",
				errors->error[i].message));
	return list;
}

/* All arms of a spec, and specs that follow each other, see one reading of the memory. */
#define FACTS_AGE_NS CLOCK_S_NS

/* The process that checks. */
struct checks {
	struct k_context *ctx;
	int threads;
	struct dataset_cache cache;
	struct training_facts facts;
};

struct verdict {
	bool refused;
	json_t *errors, *report;
};

/* The only error of a check. */
static void refuse(struct verdict *v, const char *key, const char *message)
{
	v->refused = true;
	v->errors = json_pack("[{s:s, s:s}]", "key", key, "message", message);
	v->report = json_object();
}

/* Parses the spec and the arm of a "check" message: the arm's index, or -1 with the verdict. */
static int read_arm(const json_t *params, int world, struct spec **spec, struct verdict *v)
{
	struct spec_options options = {.world = world};
	struct spec_errors wrong;
	const char *text = json_string_value(json_object_get(params, "spec"));
	int arm;

	if (!text) {
		refuse(v, "", "gpt2d sent no spec");
		return -1;
	}
	if (spec_parse(text, strlen(text), &options, spec, &wrong)) {
		v->refused = true;
		v->errors = spec_error_list(&wrong);
		v->report = json_object();
		return -1;
	}
	arm = check_find_arm(*spec, json_string_value(json_object_get(params, "arm")));
	if (arm < 0)
		refuse(v, "", "gpt2d named no arm of the spec");
	return arm;
}

static void check_arm(struct checks *c, const json_t *params, struct verdict *v)
{
	char error[512];
	int world = (int)json_integer_value(json_object_get(params, "world"));
	struct check_options check = {
		.world = world,
		.cache = &c->cache,
		.submit = true,
		.resume = json_object_get(params, "resume"),
		.runs = json_string_value(json_object_get(params, "runs")),
		.probe = json_string_value(json_object_get(params, "probe")),
	};
	struct spec *spec = NULL;
	int arm = read_arm(params, world, &spec, v), *nodes = NULL;
	bool wrong;

	if (arm < 0)
		goto out;
	nodes = read_nodes(params, world, &wrong);
	if (wrong) {
		refuse(v, "", "gpt2d sent invalid nodes (expected one number per rank)");
		goto out;
	}
	if (data_roots_read(&check.data_roots, json_object_get(params, "data_roots")) < 0) {
		refuse(v, "data", "gpt2d sent invalid data_roots (expected an array of folders)");
		goto out;
	}
	check.config = &spec->arms[arm].config;
	if (check.config->gpus <= world)
		check.together = nodes_fullest(nodes, (int)check.config->gpus);
	training_read_facts(&c->facts, c->ctx, FACTS_AGE_NS);
	if (training_device(c->ctx, c->threads, check.config, world, &c->facts, &check.device,
		    error, sizeof(error))) {
		refuse(v, "", error);
		goto out;
	}
	check_run(&check, &v->errors, &v->report);
	v->refused = json_array_size(v->errors) > 0;
out:
	free(nodes);
	spec_free(spec);
}

static void answer_check(struct link *link, struct checks *c, const json_t *params)
{
	struct verdict v = {0};

	check_arm(c, params, &v);
	link_send(link, CHECK_REPLY,
		json_pack("{s:O, s:b, s:o, s:o}", "token", json_object_get(params, "token"), "ok",
			!v.refused, "errors", v.errors, "check",
			v.refused ? json_null() : json_incref(v.report)));
	json_decref(v.report);
}

static int serve_checks(struct link *link, struct checks *c)
{
	struct rpc_message m;
	bool done = false;

	while (!done) {
		if (link_receive(link, &m))
			return ENGINE_EXIT_ORPHAN;
		if (strcmp(m.method, CHECK_REQUEST) == 0)
			answer_check(link, c, m.params);
		done = strcmp(m.method, ENGINE_EXIT) == 0;
		rpc_clear(&m);
		if (k_context_error(c->ctx)) /* a later reply would be the same */
			return ENGINE_EXIT_POISONED;
	}
	return ENGINE_EXIT_OK;
}

int rank_check(struct link *link, int threads)
{
	char why[256] = "";
	struct k_context_options options = {.threads = 1, .error = why, .error_bytes = sizeof(why)};
	struct checks *c = memory_zeroed(1, sizeof(*c));
	int code = ENGINE_EXIT_POISONED;
	int rc = k_context_create(&options, &c->ctx);

	if (rc) {
		link_log(link, "error", "check: no device found: %s",
			why[0] ? why : starved_text(rc));
		code = rc == -EAGAIN ? ENGINE_EXIT_STARVED : code;
		goto out;
	}
	c->threads = threads;
	say_hello(link, "check", 0, -1, NULL, c->ctx);
	link_send(link, ENGINE_READY, json_object());
	code = serve_checks(link, c);
out:
	k_context_destroy(c->ctx);
	free(c);
	return code;
}

/* ---- role connect ---- */

static int connect_wire(struct link *link, struct ucx_wire *wire, int world, const json_t *params)
{
	const char **texts = read_addresses(link, params, world);
	char error[512];
	bool wrong;
	int *nodes = read_nodes(params, world, &wrong);
	int rc = texts && !wrong ? ucx_wire_connect(wire, texts, nodes, error, sizeof(error)) : 0;

	free(texts);
	free(nodes);
	if (rc)
		link_log(link, "error", "%s", error);
	if (!texts || wrong || rc)
		return ENGINE_EXIT_BOOTSTRAP;
	link_send(link, ENGINE_READY, json_object());
	return -1;
}

int rank_connect(struct link *link, const struct warm_options *options)
{
	const struct ucx_wire_options wo = {.rank = options->rank,
		.world = options->world,
		.timeout_ns = options->collective_timeout_ns,
		.interface = options->interface};
	char error[512] = "";
	struct ucx_wire *wire;
	struct rpc_message m;
	int code = -1;
	int rc = ucx_wire_create(&wo, &wire, error, sizeof(error));

	if (rc) {
		link_log(link, "error", "%s", error[0] ? error : strerror(-rc));
		return ENGINE_EXIT_BOOTSTRAP;
	}
	say_hello(link, "connect", options->rank, -1, ucx_wire_address(wire), NULL);
	while (code < 0) {
		if (link_receive(link, &m))
			return ENGINE_EXIT_ORPHAN;
		if (strcmp(m.method, ENGINE_CONNECT) == 0)
			code = connect_wire(link, wire, options->world, m.params);
		else if (strcmp(m.method, ENGINE_EXIT) == 0)
			code = ENGINE_EXIT_OK;
		rpc_clear(&m);
	}
	ucx_wire_destroy(wire);
	return code;
}
