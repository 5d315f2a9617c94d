/*
 * The engine's step alone, one rank, no daemon and no files: what a spec's first arm takes.
 *
 *   bench_step [--no-graphs] [--no-branches] [--tuning-dir DIR] SPEC [THREADS]
 *       one JSON object: median step, tokens/s, phases, start, memory
 *   bench_step --lines [--no-branches] [--tuning-dir DIR]
 *       the same for each line "[--no-graphs] SPEC" of standard input, in one warm engine
 *
 * --tuning-dir: choices of products are read there before a training that has none yet, and kept,
 * as an engine does; with gpt2d's STATE/tuning the step is that of its engine.
 */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/train/training.h"
#include "proto/stats/stats.h"

/* Nano, small enough for every run of the tests. */
static const char default_spec[] =
	"{\"name\": \"bench\", \"model\": \"nano\", \"data\": {\"kind\": \"synthetic\"},"
	" \"seq_len\": 64, \"gpus\": 1, \"train_micro_batch_size_per_gpu\": 4,"
	" \"gradient_clipping\": 1.0,"
	" \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}},"
	" \"work\": {\"optimizer_steps\": 30, \"warmup_steps\": 5}}";

struct times {
	int64_t n, *step_ns;
	struct measure_step sum;
	double loss_first, loss_last;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static char *read_file(const char *path)
{
	FILE *in = fopen(path, "rb");
	char *text = calloc(1, SPEC_BYTES_MAX + 1);

	if (!in || !text || fread(text, 1, SPEC_BYTES_MAX, in) == 0) {
		free(text);
		text = NULL;
	}
	if (in)
		fclose(in);
	return text;
}

static struct spec *read_spec(const char *path)
{
	struct spec_options options = {.base_dir = "/", .world = 1};
	struct spec_errors errors = {0};
	struct spec *spec = NULL;
	char *text = path ? read_file(path) : strdup(default_spec);

	if (!text)
		fprintf(stderr, "%s: cannot be read\n", path ? path : "spec");
	else if (spec_parse(text, strlen(text), &options, &spec, &errors))
		spec_errors_print(&errors, path ? path : "spec", stderr);
	free(text);
	return spec;
}

static int run_steps(struct training *t, struct times *times)
{
	const struct spec_config *c = t->config;
	char error[512];

	for (int64_t i = 0; i < c->optimizer_steps; i++) {
		struct step_result r;
		int rc = step_run(&t->step, false, &r, error, sizeof(error));

		if (rc) {
			fprintf(stderr, "step %" PRId64 ": %s\n", i + 1, error);
			return rc;
		}
		if (i == 0)
			times->loss_first = r.measure.loss;
		times->loss_last = r.measure.loss;
		if (i < c->warmup_steps)
			continue;
		times->step_ns[times->n++] = r.measure.step_ns;
		times->sum.step_ns += r.measure.step_ns;
		times->sum.data_ns += r.measure.data_ns;
		times->sum.forward_ns += r.measure.forward_ns;
		times->sum.backward_ns += r.measure.backward_ns;
		times->sum.optimizer_ns += r.measure.optimizer_ns;
	}
	return 0;
}

static void report(const struct warm *w, const struct training *t, const struct times *times,
	int64_t create_ns, int64_t init_ns)
{
	const struct spec_config *c = t->config;
	double n = (double)times->n * 1e6;
	const struct measure_step *sum = &times->sum;
	struct k_device_info info;
	int64_t median = 0;

	k_context_info(w->ctx, &info);
	stats_percentile(times->step_ns, (size_t)times->n, 50, &median);
	printf("{\"tokens_per_s\": %.1f, \"step_ms_median\": %.3f, \"step_ms_mean\": %.3f,"
	       " \"data_ms\": %.3f, \"forward_ms\": %.3f, \"backward_ms\": %.3f,"
	       " \"optimizer_ms\": %.3f, \"start_ms\": %.1f, \"init_ms\": %.3f,"
	       " \"memory_mib\": %.1f, \"params\": %" PRId64 ", \"steps\": %" PRId64
	       ", \"loss_first\": %.5f, \"loss_last\": %.5f, \"threads\": %d,"
	       " \"graph_steps\": %" PRId64 ", \"capture_ms\": %.3f, \"no_graph\": \"%s\","
	       " \"library\": \"%s\", \"device\": \"%s\"}\n",
		stats_tokens_per_s(times->n * c->batch * c->seq_len, sum->step_ns),
		(double)median / 1e6, (double)sum->step_ns / n, (double)sum->data_ns / n,
		(double)sum->forward_ns / n, (double)sum->backward_ns / n,
		(double)sum->optimizer_ns / n, (double)create_ns / 1e6, (double)init_ns / 1e6,
		(double)t->device_bytes / 1048576, t->arena.model_params, times->n,
		times->loss_first, times->loss_last, w->threads, t->step.replayed,
		(double)t->step.capture_ns / 1e6, t->step.no_graph, info.library, info.name);
}

/* Before the first step of a training that this process has not seen. */
static int tune(struct training *t, char *error, size_t error_bytes)
{
	struct warm *w = t->warm;
	struct tuned read;
	int64_t changed = 0;
	int rc;

	if (!w->tuned.dir || tuned_has(&w->tuned, t->config))
		return 0;
	tuned_init(&read, w->ctx, w->tuned.dir);
	memcpy(read.shape, w->tuned.shape, sizeof(read.shape));
	read.shapes = w->tuned.shapes;
	w->tuned = read;
	graphs_finish(&w->graphs);
	rc = training_try(t, error, error_bytes);
	if (!rc)
		rc = tuned_share(&w->tuned, NULL, 0, &changed);
	if (w->tuned.note[0])
		fprintf(stderr, "bench_step: %s\n", w->tuned.note);
	tuned_add(&w->tuned, t->config);
	return rc;
}

static int bench(struct warm *w, const struct spec_config *c, int64_t create_ns)
{
	struct times times = {.step_ns = calloc((size_t)c->optimizer_steps, sizeof(int64_t))};
	struct dataset data;
	struct training t;
	char error[512] = "no memory";
	int64_t from;
	int rc = times.step_ns ? 0 : -1;

	if (!rc)
		rc = dataset_open(&data, c, false, error, sizeof(error));
	if (rc)
		goto out;
	rc = training_init(&t, w, c, &data, error, sizeof(error));
	if (rc)
		goto out_data;
	rc = training_join(&t, NULL);
	if (!rc)
		rc = tune(&t, error, sizeof(error));
	from = now_ns();
	training_reset(&t);
	from = now_ns() - from;
	if (!rc && !run_steps(&t, &times))
		report(w, &t, &times, create_ns, from);
	training_finish(&t);
out_data:
	dataset_close(&data);
out:
	if (rc)
		fprintf(stderr, "bench_step: %s\n", error);
	free(times.step_ns);
	return rc;
}

/* One run of a spec's first arm; what started at `from` is the start. */
static int bench_file(struct warm *w, const char *path, int64_t from)
{
	struct spec *spec = read_spec(path);
	int rc = -1;

	if (spec)
		rc = bench(w, &spec->arms[0].config, now_ns() - from);
	spec_free(spec);
	fflush(stdout);
	return rc;
}

/* A run for each line of standard input: "SPEC" or "--no-graphs SPEC"; the engine stays warm. */
static int bench_lines(struct warm *w)
{
	static const char option[] = "--no-graphs ";
	char line[4096];
	int rc = 0;

	while (!rc && fgets(line, sizeof(line), stdin)) {
		size_t skip;

		line[strcspn(line, "\n")] = '\0';
		w->no_graphs = strncmp(line, option, strlen(option)) == 0;
		skip = w->no_graphs ? strlen(option) : 0;
		rc = bench_file(w, line + skip, now_ns());
	}
	return rc;
}

/* The option at argv[1] is taken away. */
static bool take_option(int *argc, char ***argv, const char *name)
{
	if (*argc < 2 || strcmp((*argv)[1], name) != 0)
		return false;
	--*argc;
	++*argv;
	return true;
}

int main(int argc, char **argv)
{
	struct warm_options options = {.world = 1, .threads = 2};
	bool lines = take_option(&argc, &argv, "--lines");
	int64_t from = now_ns();
	struct warm *w;
	char error[512];
	int rc;

	setlocale(LC_NUMERIC, "C");
	options.no_graphs = take_option(&argc, &argv, "--no-graphs");
	options.no_branches = take_option(&argc, &argv, "--no-branches");
	if (take_option(&argc, &argv, "--tuning-dir") && argc > 1) {
		options.tuning_dir = argv[1];
		argc--;
		argv++;
	}
	if (argc > 2)
		options.threads = atoi(argv[2]);
	if (warm_create(&options, &w, error, sizeof(error))) {
		fprintf(stderr, "bench_step: %s\n", error);
		return 1;
	}
	rc = lines ? bench_lines(w) : bench_file(w, argc > 1 ? argv[1] : NULL, from);
	warm_destroy(w);
	return rc ? 1 : 0;
}
