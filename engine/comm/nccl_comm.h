/*
 * nccl_comm.h: creates a communicator of NCCL, with a deadline.
 *
 * NCCL's own non-blocking mode is not used, because every later launch would go through a thread of
 * NCCL. Instead a thread creates the communicator in blocking mode and the caller waits for that
 * thread.
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
 * When it returns, each collective has run once with each type: NCCL makes its connections at the
 * first use, which takes 330 ms, and loads its kernels then. 0, or with error: -ENOMEM, -EAGAIN (no
 * thread), -EIO (NCCL's or CUDA's reason), -ETIMEDOUT, or the result of watch. After the last two
 * the thread may still be in NCCL, with ctx: only the end of the process ends it.
 */
int nccl_comm_open(const struct nccl_comm_options *options, ncclComm_t *out, char *error,
	size_t error_bytes);

#endif
