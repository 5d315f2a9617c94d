/*
 * nccl_log.h: reads from NCCL's log which network it uses, because NCCL has no function for this
 * (2.18 to 2.28). The log goes to memory of this process, and from there to standard error
 * according to the user's NCCL_DEBUG.
 */
#ifndef GPT2D_ENGINE_COMM_NCCL_LOG_H
#define GPT2D_ENGINE_COMM_NCCL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/comm/collectives.h"

enum { NCCL_LOG_LINE_BYTES = 1024 };

struct nccl_log {
	int fd; /* -1: it cannot be read */
	off_t at;
	enum { NCCL_LOG_SILENT, NCCL_LOG_WARNINGS, NCCL_LOG_ALL } echo;
	char line[NCCL_LOG_LINE_BYTES]; /* the last line, as far as it was read */
	size_t n;
	struct collectives_network network;
};

/*
 * Before the first call of NCCL: sets NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE, but
 * nothing if the user set NCCL_DEBUG_FILE: then the network is not known.
 */
void nccl_log_begin(struct nccl_log *l);
/* Reads what NCCL has written. One thread at a time. */
void nccl_log_read(struct nccl_log *l);
void nccl_log_end(struct nccl_log *l); /* also when all 0 */

/* Parses one line of NCCL's log for facts about the network. */
void nccl_log_take(struct collectives_network *network, const char *line);

#endif
