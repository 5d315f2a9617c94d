#include "engine/comm/nccl_comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"

/* Two sizes, so that NCCL sets up its paths for small and for large messages. */
enum { SMALL_ELEMS = 256, LARGE_ELEMS = 4 << 20, NAP_MS = 2 };

struct opening {
	struct nccl_comm_options o;
	ncclComm_t comm;
	int status;
	char error[256];
	atomic_bool done;
};

static bool succeeded(struct opening *p, const char *what, ncclResult_t result)
{
	if (result == ncclSuccess)
		return true;
	snprintf(p->error, sizeof(p->error), "%s: %s: %.160s", what, ncclGetErrorString(result),
		ncclGetLastError(NULL));
	p->status = -EIO;
	return false;
}

/* Sums have a separate kernel for each type. */
static bool run_sums(struct opening *p, char *buf, size_t each, cudaStream_t s)
{
	static const struct {
		ncclDataType_t type;
		size_t bytes;
		bool scattered;
	} types[] = {
		{ncclFloat, 4, true},
		{ncclBfloat16, 2, true},
		{ncclHalf, 2, true},
		{ncclInt64, 8, false},
		{ncclDouble, 8, false},
	};
	size_t bytes = each * sizeof(float), world = (size_t)p->o.world;
	bool good = true;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && good; i++) {
		size_t n = bytes / types[i].bytes;
		ncclDataType_t type = types[i].type;
		char *own = buf + bytes * (size_t)p->o.rank;

		if (types[i].scattered)
			good = succeeded(p, "reduce-scatter",
				ncclReduceScatter(buf, own, n, type, ncclSum, p->comm, s));
		good = good &&
			succeeded(p, "all-reduce",
				ncclAllReduce(buf, buf, n * world, type, ncclSum, p->comm, s));
	}
	return good;
}

/* All collectives on the bytes of `each` fp32 elements of every rank. */
static bool run_all(struct opening *p, float *buf, size_t each, cudaStream_t s)
{
	size_t n = each * (size_t)p->o.world;
	float *own = buf + each * (size_t)p->o.rank;
	ncclComm_t comm = p->comm;

	return run_sums(p, (char *)buf, each, s) &&
		succeeded(p, "all-gather", ncclAllGather(own, buf, each, ncclFloat, comm, s)) &&
		succeeded(p, "broadcast", ncclBroadcast(buf, buf, n, ncclFloat, 0, comm, s));
}

static void warm_up(struct opening *p, struct k_stream *s)
{
	size_t large = LARGE_ELEMS / (size_t)p->o.world;
	float *buf = k_alloc(p->o.ctx, large * (size_t)p->o.world * sizeof(*buf));
	cudaStream_t stream = k_stream_native(s);

	if (buf == NULL) {
		snprintf(p->error, sizeof(p->error), "no memory for a trial");
		p->status = -ENOMEM;
		return;
	}
	if (run_all(p, buf, SMALL_ELEMS, stream) && run_all(p, buf, large, stream)) {
		p->status = k_stream_sync(s, p->o.timeout_ns);
		if (p->status != 0)
			snprintf(p->error, sizeof(p->error), "trial of the collectives: %s",
				strerror(-p->status));
	}
	k_free(p->o.ctx, buf);
}

static void *make(void *arg)
{
	struct opening *p = arg;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct k_stream *s;

	config.blocking = 1;
	p->status = k_stream_create(p->o.ctx, K_STREAM_COMM, "nccl", &s);
	if (p->status != 0) {
		snprintf(p->error, sizeof(p->error), "no stream: %s", strerror(-p->status));
	} else {
		k_stream_native(s); /* sets the device of this thread */
		if (succeeded(p, "ncclCommInitRankConfig",
			    ncclCommInitRankConfig(
				    &p->comm, p->o.world, p->o.id, p->o.rank, &config)))
			warm_up(p, s);
		k_stream_destroy(s);
	}
	atomic_store(&p->done, true);
	return NULL;
}

static int wait_for(struct opening *p)
{
	const struct timespec nap = clock_timespec(NAP_MS * CLOCK_MS_NS);
	int64_t since = clock_mono_ns();

	while (!atomic_load(&p->done)) {
		int status = p->o.watch(p->o.arg);

		if (status != 0)
			return status;
		if (clock_mono_ns() - since >= p->o.timeout_ns)
			return -ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	return 0;
}

int nccl_comm_open(
	const struct nccl_comm_options *options, ncclComm_t *out, char *error, size_t error_bytes)
{
	struct opening *p = memory_zeroed(1, sizeof(*p));
	pthread_t thread;
	int status;

	p->o = *options;
	status = thread_start(&thread, make, p, "nccl open");
	if (status != 0) {
		snprintf(error, error_bytes, "no thread to make a communicator");
		free(p);
		return status;
	}
	status = wait_for(p);
	if (status != 0) {
		snprintf(error, error_bytes, "no communicator of %d ranks after %g s",
			options->world, (double)options->timeout_ns * 1e-9);
		pthread_detach(thread);
		return status; /* p belongs to the thread */
	}
	pthread_join(thread, NULL);
	status = p->status;
	if (status == 0)
		*out = p->comm;
	else
		snprintf(error, error_bytes, "%s", p->error);
	free(p);
	return status;
}
