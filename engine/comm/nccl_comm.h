/*
 * nccl_comm.h: making a communicator of NCCL, with an end to the wait for it.
 *
 * NCCL's own non-blocking mode is not used: every later launch would go through a thread of NCCL's.
 * Instead a thread makes the communicator in blocking mode and the caller waits for that thread.
 */
#ifndef GPT2D_ENGINE_COMM_NCCL_COMM_H
#define GPT2D_ENGINE_COMM_NCCL_COMM_H

#include <stddef.h>
#include <stdint.h>

#include <nccl.h>

#include "kernels/kernels.h"

struct nccl_comm_options {
	struct k_context *ctx;
	ncclUniqueId id;
	int rank, world;
	int64_t timeout_ns;
	int (*watch)(void *arg); /* called every few ms of the wait; not 0: give up */
	void *arg;
};

/*
 * Every collective has been run once, with each type, when it returns: NCCL makes its connections
 * at the first use, which takes 330 ms, and its kernels are loaded then. 0, or with error: -ENOMEM,
 * -EAGAIN (no thread), -EIO (NCCL's or CUDA's reason), -ETIMEDOUT, or what watch said. After the
 * last two the thread may still be in NCCL, with ctx: only the end of the process ends it.
 */
int nccl_comm_open(const struct nccl_comm_options *options, ncclComm_t *out, char *error,
	size_t error_bytes);

#endif
