/*
 * gpu_machinery: streams, events, graphs and failures of the CUDA library. The last line is
 * "N passed, N failed".
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static const int64_t wait_ns = 60000000000;
enum { N = 1 << 20 };

struct machine {
	struct k_context *ctx;
	struct k_stream *compute, *comm;
	int passed, failed;
};

static void check(struct machine *m, const char *what, bool good)
{
	printf("%-60s %s\n", what, good ? "ok" : "FAILED");
	fflush(stdout);
	if (good)
		m->passed++;
	else
		m->failed++;
}

static bool start(struct machine *m)
{
	struct k_context_options options = {.threads = 1};

	m->ctx = NULL;
	m->compute = m->comm = NULL;
	return k_context_create(&options, &m->ctx) == 0 &&
		k_stream_create(m->ctx, K_STREAM_COMPUTE, "compute", &m->compute) == 0 &&
		k_stream_create(m->ctx, K_STREAM_COMM, "comm", &m->comm) == 0;
}

static void end(struct machine *m)
{
	k_stream_destroy(m->comm);
	k_stream_destroy(m->compute);
	k_context_destroy(m->ctx);
}

static bool all_are(struct machine *m, const k_real *device, float value)
{
	float *x = malloc(N * sizeof *x);
	bool good = x != NULL;

	if (!x)
		return false;
	k_copy_out(m->compute, x, device, N * sizeof *x);
	good = k_stream_sync(m->compute, wait_ns) == 0;
	for (int i = 0; i < N; i++)
		good = good && x[i] == value;
	free(x);
	return good;
}

static void test_memory(struct machine *m)
{
	k_real *a = k_alloc(m->ctx, N * sizeof *a), *b = k_alloc(m->ctx, N * sizeof *b);
	struct k_device_info info;

	check(m, "k_alloc: zeroed", all_are(m, a, 0));
	check(m, "k_alloc: aligned", (uintptr_t)a % 256 == 0);
	k_fill(m->compute, a, N, 3);
	k_copy(m->compute, b, a, N * sizeof *b);
	check(m, "k_copy", all_are(m, b, 3));
	k_zero(m->compute, b, N * sizeof *b);
	check(m, "k_zero", all_are(m, b, 0));
	check(m, "k_alloc: more than there is gives NULL", !k_alloc(m->ctx, (size_t)1 << 50));
	check(m, "k_alloc: that was no failure", !k_context_error(m->ctx));
	k_context_info(m->ctx, &info);
	printf("%s, %s, %lld MB\n", info.name, info.library,
		(long long)(info.memory_total_bytes >> 20));
	check(m, "k_context_info", strcmp(info.backend, "cuda") == 0 && info.memory_free_bytes > 0);
	k_free(m->ctx, a);
	k_free(m->ctx, b);
	k_free(m->ctx, NULL);
}

static void count(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

/* comm waits for compute, compute for comm; in a graph or eager */
static void fork_and_join(
	struct machine *m, k_real *a, k_real *b, struct k_event *events[4], atomic_int *calls)
{
	const void *srcs[] = {a, b};

	k_event_record(events[0], m->compute);
	k_sum_in_order(m->compute, a, srcs, 2, N);
	k_event_record(events[1], m->compute);
	k_stream_wait(m->comm, events[1]);
	k_copy(m->comm, b, a, N * sizeof *b);
	k_event_record(events[2], m->comm);
	k_stream_wait(m->compute, events[2]);
	k_sum_in_order(m->compute, a, srcs, 2, N);
	k_stream_host(m->compute, count, calls);
	k_event_record(events[3], m->compute);
}

static void test_graph(struct machine *m)
{
	k_real *a = k_alloc(m->ctx, N * sizeof *a), *b = k_alloc(m->ctx, N * sizeof *b);
	struct k_event *events[4] = {NULL, NULL, NULL, NULL};
	struct k_graph *graph = NULL;
	atomic_int calls = 0;
	int rc = 0;

	for (int i = 0; i < 4; i++)
		rc |= k_event_create(m->ctx, &events[i]);
	check(m, "k_event_create", rc == 0);
	k_fill(m->compute, a, N, 1);
	k_fill(m->compute, b, N, 1);
	fork_and_join(m, a, b, events, &calls);
	check(m, "two streams, eager", all_are(m, a, 4) && calls == 1);
	check(m, "k_event_sync", k_event_sync(events[3], wait_ns) == 0);
	check(m, "k_event_elapsed_ns", k_event_elapsed_ns(events[0], events[3]) > 0);

	k_fill(m->compute, a, N, 1);
	k_fill(m->compute, b, N, 1);
	check(m, "k_graph_begin", k_graph_begin(m->compute) == 0);
	fork_and_join(m, a, b, events, &calls);
	check(m, "k_graph_end", k_graph_end(m->compute, &graph) == 0 && graph);
	check(m, "captured work has not run", all_are(m, a, 1) && calls == 1);
	for (int i = 0; i < 3; i++)
		rc |= k_graph_launch(graph, m->compute);
	/* 1,1 -> 4,2 -> 12,6 -> 36,18 */
	check(m, "two streams, as a graph, three times",
		rc == 0 && all_are(m, a, 36) && calls == 4);
	check(m, "events of a graph can be timed",
		k_event_sync(events[3], wait_ns) == 0 &&
			k_event_elapsed_ns(events[0], events[3]) > 0);
	check(m, "k_graph_launch takes NULL", k_graph_launch(NULL, m->compute) == 0);
	k_graph_destroy(graph);
	k_graph_destroy(NULL);
	for (int i = 0; i < 4; i++)
		k_event_destroy(events[i]);
	k_free(m->ctx, a);
	k_free(m->ctx, b);
}

static void block(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		;
}

static void test_deadline(struct machine *m)
{
	atomic_bool go = false;
	struct k_event *e = NULL;

	check(m, "k_event_create", k_event_create(m->ctx, &e) == 0);
	k_stream_host(m->compute, block, &go);
	k_event_record(e, m->compute);
	check(m, "k_stream_sync: deadline",
		k_stream_sync(m->compute, 1000000) == -ETIMEDOUT &&
			k_stream_sync(m->compute, 0) == -ETIMEDOUT);
	check(m, "k_event_sync: deadline", k_event_sync(e, 1000000) == -ETIMEDOUT);
	atomic_store(&go, true);
	check(m, "k_stream_sync: done", k_stream_sync(m->compute, wait_ns) == 0);
	k_event_destroy(e);
}

static void test_dtypes(struct machine *m)
{
	check(m, "fp16 is there", k_context_set_dtype(m->ctx, K_FP16) == 0);
	check(m, "fp16 has 2 bytes", k_elem_bytes(m->ctx) == 2);
	check(m, "fp64 is refused", k_context_set_dtype(m->ctx, K_FP64) == -ENOTSUP);
	check(m, "and fp16 stays", k_context_dtype(m->ctx) == K_FP16);
	check(m, "fp32 again", k_context_set_dtype(m->ctx, K_FP32) == 0);
}

/* A small graph of a training step: products are tried out during its capture. */
static void test_capture_of_products(struct machine *m)
{
	enum { R = 96, C = 64, OC = 128 };
	k_real *inp = k_alloc(m->ctx, R * C * sizeof *inp);
	k_real *weight = k_alloc(m->ctx, OC * C * sizeof *weight);
	k_real *out = k_alloc(m->ctx, R * OC * sizeof *out);
	struct k_graph *graph = NULL;
	float x[2] = {0, 0};

	k_fill(m->compute, inp, R * C, 1);
	k_fill(m->compute, weight, OC * C, 0.5);
	check(m, "a product under capture",
		k_graph_begin(m->compute) == 0 &&
			(k_linear_forward(m->compute, out, inp, weight, NULL, R, C, OC),
				k_graph_end(m->compute, &graph) == 0));
	k_graph_launch(graph, m->compute);
	k_copy_out(m->compute, x, out, sizeof x);
	check(m, "gives its result",
		k_stream_sync(m->compute, wait_ns) == 0 && x[0] == 32 && x[1] == 32);
	k_graph_destroy(graph);
	k_free(m->ctx, inp);
	k_free(m->ctx, weight);
	k_free(m->ctx, out);
}

/* ---- memory for trials ---- */

enum { TRIAL_R = 2048, TRIAL_C = 512, GUARD_BYTES = 1 << 20 };

/* A layer of a model, on its own context, which has no choices yet. */
struct layer {
	struct machine m;
	struct k_scratch_shape shape;
	k_real *inp, *weight, *out;
	char *lent; /* between two guards */
	int64_t lent_bytes;
	struct k_choice choice;
};

static bool layer_begin(struct layer *l, int64_t lent_bytes)
{
	*l = (struct layer){.shape = {.dtype = K_FP32,
				    .threads = 1,
				    .B = 1,
				    .T = TRIAL_R,
				    .NH = TRIAL_C / 64,
				    .C = TRIAL_C,
				    .Vp = 4 * TRIAL_C},
		.lent_bytes = lent_bytes};
	if (!start(&l->m))
		return false;
	l->inp = k_alloc(l->m.ctx, TRIAL_R * TRIAL_C * sizeof *l->inp);
	l->weight = k_alloc(l->m.ctx, (size_t)(4 * TRIAL_C * TRIAL_C) * sizeof *l->weight);
	l->out = k_alloc(l->m.ctx, (size_t)(4 * TRIAL_R * TRIAL_C) * sizeof *l->out);
	l->lent = k_alloc(l->m.ctx, (size_t)lent_bytes + 2 * GUARD_BYTES);
	if (!l->inp || !l->weight || !l->out || !l->lent)
		return false;
	k_fill(l->m.compute, l->inp, TRIAL_R * TRIAL_C, 1);
	k_fill(l->m.compute, l->weight, 4 * TRIAL_C * TRIAL_C, 0.5);
	return k_stream_sync(l->m.compute, wait_ns) == 0;
}

static void layer_end(struct layer *l)
{
	if (l->m.ctx) {
		k_free(l->m.ctx, l->inp);
		k_free(l->m.ctx, l->weight);
		k_free(l->m.ctx, l->out);
		k_free(l->m.ctx, l->lent);
	}
	end(&l->m);
}

static void layer_run(struct layer *l)
{
	k_linear_forward(l->m.compute, l->out, l->inp, l->weight, NULL, TRIAL_R, TRIAL_C,
		4 * TRIAL_C);
}

/* Whether every EVERY-th value is this one. */
static bool layer_gives(struct layer *l, float value)
{
	enum { EVERY = 1021, MOST = 4 * TRIAL_R * TRIAL_C };
	float *x = malloc(MOST * sizeof *x);
	bool good = x != NULL;

	if (!x)
		return false;
	k_copy_out(l->m.compute, x, l->out, MOST * sizeof *x);
	good = k_stream_sync(l->m.compute, wait_ns) == 0;
	for (int i = 0; i < MOST && good; i += EVERY)
		good = x[i] == value;
	free(x);
	return good;
}

/* Only zeroes around the lent memory, other values in it. */
static bool layer_kept_to_it(struct layer *l)
{
	size_t n = (size_t)l->lent_bytes + 2 * GUARD_BYTES;
	char *x = malloc(n);
	bool guards = x != NULL, inside = false;

	if (!x)
		return false;
	k_copy_out(l->m.compute, x, l->lent, n);
	guards = k_stream_sync(l->m.compute, wait_ns) == 0;
	for (size_t i = 0; i < n; i++) {
		if (i < GUARD_BYTES || i >= n - GUARD_BYTES)
			guards = guards && x[i] == 0;
		else
			inside = inside || x[i] != 0;
	}
	free(x);
	return guards && inside;
}

static bool layer_chooses(struct layer *l)
{
	bool begun = k_choices_begin(l->m.compute, l->lent + GUARD_BYTES, l->lent_bytes) == 0;

	if (!begun)
		return false;
	layer_run(l);
	return k_choices_end(l->m.compute) == 0;
}

/* Lends enough, too little or, at 0, nothing: then the product's first run chooses. */
static bool try_lent(struct machine *m, const char *what, int64_t bytes, struct layer *l)
{
	int64_t planned, took;
	char name[80];
	bool good = layer_begin(l, bytes);

	snprintf(name, sizeof name, "trials, %s: ", what);
	check(m, strcat(name, "begin"), good);
	if (!good)
		return false;
	planned = k_choices_bytes(l->m.ctx, &l->shape, bytes);
	if (bytes > 0) {
		check(m, "  the choice is made", layer_chooses(l));
		check(m, "  nothing but it has run", layer_gives(l, 0));
		check(m, "  in what was lent", layer_kept_to_it(l));
	}
	took = k_choices_took_bytes(l->m.ctx);
	layer_run(l);
	check(m, "  the result", layer_gives(l, TRIAL_C / 2));
	if (bytes == 0)
		took = k_choices_took_bytes(l->m.ctx);
	else
		check(m, "  is by that choice", k_choices_took_bytes(l->m.ctx) == took);
	check(m, "  it is timed",
		k_choices(l->m.ctx, &l->choice, 1) >= 1 && l->choice.timed == 1 &&
			l->choice.picoseconds > 0);
	printf("  %lld bytes lent: %lld of its own, %lld planned; %.1f us by %016llx\n",
		(long long)bytes, (long long)took, (long long)planned,
		(double)l->choice.picoseconds * 1e-6, (long long)l->choice.algorithm[0]);
	check(m, "  its own memory is what was planned or less", took <= planned);
	check(m, "  and none where there was enough", (took == 0) == (planned == 0));
	check(m, "  no failure", !k_context_error(l->m.ctx));
	return true;
}

static void test_memory_of_trials(struct machine *m)
{
	const int64_t enough = (int64_t)512 << 20, little = (int64_t)80 << 20;
	const struct {
		const char *what;
		int64_t bytes;
	} lent[] = {{"their own memory", 0}, {"lent too little", little}, {"lent", enough}};
	struct layer l;

	for (size_t i = 0; i < sizeof lent / sizeof lent[0]; i++) {
		if (try_lent(m, lent[i].what, lent[i].bytes, &l))
			check(m, "  planned",
				(k_choices_bytes(l.m.ctx, &l.shape, lent[i].bytes) == 0) ==
					(lent[i].bytes == enough));
		layer_end(&l);
	}
}

/* An uncapturable operation fails the choosing, not the context. */
static void test_failed_choosing(struct machine *m)
{
	k_real *a = k_alloc(m->ctx, N * sizeof *a);
	const void *srcs[1] = {a};

	check(m, "choosing begins", k_choices_begin(m->compute, a, N * sizeof *a) == 0);
	k_sum_in_order(m->compute, a, srcs, 1000, N);
	check(m, "its failure is reported at its end", k_choices_end(m->compute) == -EIO);
	check(m, "with the reason",
		k_graph_error(m->ctx) && strstr(k_graph_error(m->ctx), "1000 sources"));
	check(m, "the context goes on", !k_context_error(m->ctx));
	k_fill(m->compute, a, N, 7);
	check(m, "and computes", all_are(m, a, 7));
	k_free(m->ctx, a);
}

/* An uncapturable operation: the capture fails, the context does not. */
static void test_failed_capture(struct machine *m)
{
	k_real *a = k_alloc(m->ctx, N * sizeof *a);
	const void *srcs[1] = {a};
	struct k_graph *graph = NULL;

	check(m, "a capture begins", k_graph_begin(m->compute) == 0);
	k_sum_in_order(m->compute, a, srcs, 1000, N); /* more sources than allowed */
	check(m, "its failure is reported at its end",
		k_graph_end(m->compute, &graph) == -EIO && !graph);
	check(m, "with the reason",
		k_graph_error(m->ctx) && strstr(k_graph_error(m->ctx), "1000 sources"));
	check(m, "the context goes on", !k_context_error(m->ctx));
	k_fill(m->compute, a, N, 7);
	check(m, "and computes", all_are(m, a, 7));
	check(m, "a later capture", k_graph_begin(m->compute) == 0);
	k_fill(m->compute, a, N, 8);
	check(m, "succeeds",
		k_graph_end(m->compute, &graph) == 0 && graph && !k_graph_error(m->ctx) &&
			k_graph_launch(graph, m->compute) == 0);
	check(m, "and runs", all_are(m, a, 8));
	k_graph_destroy(graph);
	k_free(m->ctx, a);
}

/* The last test: the context fails for good. */
static void test_failure(struct machine *m)
{
	enum { R = 4, V = 10 };
	int32_t targets[R] = {0, 3, 10, 9};
	k_real *logits = k_alloc(m->ctx, R * V * sizeof *logits);
	k_real *losses = k_alloc(m->ctx, N * sizeof *losses);
	int32_t *on_device = k_alloc(m->ctx, sizeof targets);
	atomic_int calls = 0;

	k_copy_in(m->compute, on_device, targets, sizeof targets);
	k_cross_entropy(m->compute, losses, logits, on_device, R, V, V, 1, NULL);
	check(m, "a bad target fails the stream", k_stream_sync(m->compute, wait_ns) == -EIO);
	check(m, "and says which",
		k_context_error(m->ctx) &&
			strcmp(k_context_error(m->ctx),
				"k_cross_entropy: target 10 in row 2, 0..9 expected") == 0);
	k_fill(m->compute, losses, N, 5);
	k_stream_host(m->compute, count, &calls);
	check(m, "host functions still run",
		k_stream_sync(m->compute, wait_ns) == -EIO && calls == 1);
	check(m, "no graph afterwards", k_graph_begin(m->compute) == -EIO);
}

int main(void)
{
	struct machine m = {0};

	if (!start(&m)) {
		fprintf(stderr, "gpu_machinery: no context\n");
		return 1;
	}
	test_memory(&m);
	test_graph(&m);
	test_deadline(&m);
	test_dtypes(&m);
	test_capture_of_products(&m);
	test_memory_of_trials(&m);
	test_failed_choosing(&m);
	test_failed_capture(&m);
	check(&m, "no failure so far", !k_context_error(m.ctx));
	if (k_context_error(m.ctx))
		printf("%s\n", k_context_error(m.ctx));
	test_failure(&m);
	end(&m);
	printf("%d passed, %d failed\n", m.passed, m.failed);
	return m.failed == 0 ? 0 : 1;
}
