/*
 * ranks.h: processes that are the ranks of one world, for tests and benchmarks of collectives.
 */
#ifndef GPT2D_TESTS_UNIT_ENGINE_RANKS_H
#define GPT2D_TESTS_UNIT_ENGINE_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/comm/collectives.h"
#include "kernels/kernels.h"

enum { RANKS_MAX = 16, RANKS_SHARED_BYTES = 1 << 16, RANKS_TEXT_BYTES = 512 };

struct ranks_self {
	int rank, world;
	struct k_context *ctx;
	struct k_stream *compute, *comm;
	struct collectives *c;
	struct collectives_group *all;
	const void *arg;
	/* RANKS_SHARED_BYTES, aligned for anything, zero at first, of all ranks and the caller */
	char *shared;
};

struct ranks_options {
	int world;
	int64_t timeout_ns; /* 0: 30 s */
	/* ranks there after this (0: 60 s) are killed; stopped ones once the others have ended */
	int64_t limit_ns;
	void (*before)(int rank); /* in the rank, before anything; NULL for nothing */
	int absent;               /* so many of the last ranks end between address and connect */
	int (*fn)(struct ranks_self *); /* returns the exit status */
	const void *arg;
	/*
	 * called instead of fn when connect failed, and its return is the status; NULL: status 99
	 */
	int (*refused)(struct ranks_self *, int status, const char *error);
};

struct ranks_end {
	int exit_status[RANKS_MAX]; /* -signal that ended it, -1000 when it had to be killed */
	pid_t pids[RANKS_MAX];
	char shared[RANKS_SHARED_BYTES];
};

/* Run fn in every rank, collectives connected, and wait for their ends. 0 or a negative errno. */
int ranks_run(const struct ranks_options *options, struct ranks_end *end);
/*
 * The same of ranks that are to end well, with limits that only a rank that hangs reaches. 0: all
 * ended with status 0, and the first bytes of what they share are in out (NULL with 0 bytes).
 * Otherwise not 0, with a message on stderr.
 */
int ranks_run_well(
	int world, int (*fn)(struct ranks_self *), const void *arg, void *out, size_t out_bytes);

/*
 * In a rank: leave the text of collectives_error for the caller, who reads it with ranks_error_of.
 */
void ranks_keep_error(struct ranks_self *self);
const char *ranks_error_of(const struct ranks_end *end, int rank);

/* Large and small collectives until one fails, or so many rounds are over. */
void ranks_work(struct ranks_self *self, int rounds);

bool ranks_shared_memory(void); /* false under UCX_TLS=tcp */
void ranks_nap_us(int64_t us);
void *ranks_kill_later(
	void *us); /* thread: kill -9 of its own process after so many us (int64_t) */

#endif
