#include "engine/train/warm.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/host/clock.h"
#include "proto/host/starved.h"
#include "proto/host/thread.h"

int warm_init(struct warm *w)
{
	int rc;

	graphs_init(&w->graphs);
	tuned_init(&w->tuned, w->ctx, w->tuned.dir);
	zero_init(&w->zero, w->ctx, w->compute, w->comm, &w->time);
	rc = timeline_init(&w->time, w->ctx, w->compute);
	if (!rc)
		rc = k_event_create(w->ctx, &w->shared_in);
	if (!rc)
		rc = k_event_create(w->ctx, &w->shared_out);
	return rc;
}

void warm_finish(struct warm *w)
{
	graphs_finish(&w->graphs);
	zero_finish(&w->zero);
	timeline_finish(&w->time);
	k_event_destroy(w->shared_in);
	k_event_destroy(w->shared_out);
	for (int i = 0; i < WARM_SLOTS; i++)
		k_free(w->ctx, w->memory[i]);
	k_free_host(w->ctx, w->host);
}

static int make_device(struct warm *w, char *error, size_t error_bytes)
{
	char why[256] = "";
	struct k_context_options options = {.device = w->local_rank,
		.threads = w->threads,
		.no_branches = w->no_branches,
		.error = why,
		.error_bytes = sizeof(why)};
	int rc = k_context_create(&options, &w->ctx);

	if (!rc)
		rc = k_stream_create(w->ctx, K_STREAM_COMPUTE, "compute", &w->compute);
	if (!rc)
		rc = k_stream_create(w->ctx, K_STREAM_COMM, "comm", &w->comm);
	if (!rc)
		rc = warm_init(w);
	if (rc)
		snprintf(error, error_bytes, "device: %s", why[0] ? why : starved_text(rc));
	return rc;
}

/* Without NVML only its figures are missing. */
static void watch_device(struct warm *w, const char *pci)
{
	if (pci)
		gpu_log_create(NULL, pci, &w->gpu_log, w->no_gpu_log, sizeof(w->no_gpu_log));
}

int warm_create(
	const struct warm_options *options, struct warm **out, char *error, size_t error_bytes)
{
	struct warm *w = calloc(1, sizeof(*w));
	struct k_device_info info;
	int rc;

	if (!w) {
		snprintf(error, error_bytes, "no memory");
		return -ENOMEM;
	}
	w->rank = options->rank;
	w->local_rank = options->local_rank;
	w->idle_test_ns = options->idle_test_ns;
	w->world = options->world;
	w->threads = options->threads;
	w->no_graphs = options->no_graphs;
	w->no_branches = options->no_branches;
	w->tuned.dir = options->tuning_dir;
	rc = make_device(w, error, error_bytes);
	if (rc)
		goto fail;
	k_context_info(w->ctx, &info);
	w->ranks_graphs = info.graphs;
	watch_device(w, info.pci);
	if (w->world > 1) {
		struct collectives_options c = {
			.ctx = w->ctx,
			.rank = w->rank,
			.world = w->world,
			.timeout_ns = options->collective_timeout_ns,
			.interface = options->interface,
		};
		char why[384] = "";

		rc = collectives_create(&c, &w->collectives, why, sizeof(why));
		if (rc) {
			snprintf(error, error_bytes, "collectives: %s",
				why[0] ? why : strerror(-rc));
			goto fail;
		}
	}
	*out = w;
	return 0;

fail:
	warm_destroy(w);
	return rc;
}

void warm_destroy(struct warm *w)
{
	if (!w)
		return;
	gpu_log_destroy(w->gpu_log);
	k_stream_destroy(w->comm);
	k_stream_destroy(w->compute);
	if (w->ctx) /* else there was no device */
		warm_finish(w);
	collectives_destroy(w->collectives);
	k_context_destroy(w->ctx);
	free(w->nodes);
	free(w);
}

struct taking_down {
	struct warm *w;
	atomic_bool done;
};

static void *take_down(void *arg)
{
	struct taking_down *t = arg;

	warm_destroy(t->w);
	atomic_store(&t->done, true);
	return NULL;
}

bool warm_destroy_within(struct warm *w, int64_t limit_ns)
{
	const struct timespec nap = clock_timespec(CLOCK_MS_NS);
	int64_t until = clock_mono_ns() + limit_ns;
	struct taking_down *t = calloc(1, sizeof(*t));
	pthread_t thread;

	if (t)
		t->w = w;
	if (!t || thread_start(&thread, take_down, t, "take down")) {
		free(t);
		return false;
	}
	while (!atomic_load(&t->done)) {
		if (clock_mono_ns() >= until)
			return false; /* the thread may still use t */
		nanosleep(&nap, NULL);
	}
	pthread_join(thread, NULL);
	free(t);
	return true;
}

static void drop(struct warm *w, int slot)
{
	/* peers may have mapped this memory for collectives of graphs */
	graphs_finish(&w->graphs);
	if (slot >= WARM_SCRATCH)
		k_stream_reserve(w->compute, (enum k_scratch)(slot - WARM_SCRATCH), 0);
	k_free(w->ctx, w->memory[slot]);
	w->memory[slot] = NULL;
	w->bytes[slot] = 0;
}

static int take_scratch(struct warm *w, enum warm_slot slot, int64_t bytes, void **out)
{
	*out = NULL;
	drop(w, (int)slot);
	if (k_stream_reserve(w->compute, (enum k_scratch)(slot - WARM_SCRATCH), bytes))
		return -ENOMEM;
	w->bytes[slot] = bytes;
	return 0;
}

int warm_take(struct warm *w, enum warm_slot slot, int64_t bytes, void **out)
{
	if (bytes > w->bytes[slot] && slot >= WARM_SCRATCH)
		return take_scratch(w, slot, bytes, out);
	if (bytes > w->bytes[slot]) {
		drop(w, (int)slot);
		w->memory[slot] = k_alloc(w->ctx, (size_t)bytes);
		if (!w->memory[slot])
			return -ENOMEM;
		w->bytes[slot] = bytes;
		k_zero(w->compute, w->memory[slot], (size_t)bytes);
	}
	*out = w->memory[slot];
	return 0;
}

int warm_take_host(struct warm *w, int64_t bytes, void **out)
{
	if (bytes > w->host_bytes) {
		k_free_host(w->ctx, w->host);
		w->host_bytes = 0;
		w->host = k_alloc_host(w->ctx, (size_t)bytes);
		if (!w->host)
			return -ENOMEM;
		w->host_bytes = bytes;
	}
	*out = w->host;
	return 0;
}

int64_t warm_growth(const struct warm *w, const int64_t bytes[WARM_SLOTS])
{
	int64_t growth = 0;

	for (int i = 0; i < WARM_SLOTS; i++)
		if (bytes[i] > w->bytes[i])
			growth += bytes[i] - w->bytes[i];
	return growth;
}

int64_t warm_shrink(struct warm *w, const int64_t bytes[WARM_SLOTS])
{
	int64_t freed = 0;

	for (int i = 0; i < WARM_SLOTS; i++) {
		if (bytes[i] >= w->bytes[i])
			continue;
		freed += w->bytes[i];
		drop(w, i);
	}
	return freed;
}
