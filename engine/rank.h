/*
 * rank.h: the main functions of an engine process: send hello, connect to the other ranks, then run
 * segments one after another (role rank), reply to checks (role check), or nothing more (role
 * connect). All return an exit code of proto/protocol.h; after ENGINE_EXIT_PEER_LOST and
 * ENGINE_EXIT_POISONED nothing was freed, and the process ends with _exit.
 */
#ifndef GPT2D_ENGINE_RANK_H
#define GPT2D_ENGINE_RANK_H

#include "engine/link.h"
#include "engine/train/warm.h"

int rank_run(struct link *link, const struct warm_options *options);

/* The device is only queried. threads: those of each rank, for the memory plan. */
int rank_check(struct link *link, int threads);

/*
 * Connects to the other ranks over UCX and ends at engine.exit, without a device: gpt2d --check
 * uses it to test whether ranks can connect in this environment.
 */
int rank_connect(struct link *link, const struct warm_options *options);

#endif
