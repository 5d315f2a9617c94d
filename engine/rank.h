/*
 * rank.h: the life of an engine process: say hello, meet the other ranks, then one segment after
 * another (role rank), answers to checks (role check), or nothing more (role connect). All return
 * an exit code of proto/protocol.h; after ENGINE_EXIT_PEER_LOST and ENGINE_EXIT_POISONED nothing
 * has been taken down, and the process ends with _exit.
 */
#ifndef GPT2D_ENGINE_RANK_H
#define GPT2D_ENGINE_RANK_H

#include "engine/link.h"
#include "engine/train/warm.h"

int rank_run(struct link *link, const struct warm_options *options);

/* No device is used beyond asking what it is. threads: those of each rank, for the memory plan. */
int rank_check(struct link *link, int threads);

/*
 * Meets the other ranks over UCX and ends at engine.exit, with no device: gpt2d --check finds out
 * this way whether the environment lets ranks connect.
 */
int rank_connect(struct link *link, const struct warm_options *options);

#endif
