/*
 * engine_pool_private.h: what engine_pool.c (what the processes go through) and engine_pool_json.c
 * (what is told of it) share. Nobody else includes it.
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_POOL_PRIVATE_H
#define GPT2D_DAEMON_ENGINES_ENGINE_POOL_PRIVATE_H

#include "daemon/config/clock.h"
#include "daemon/engines/engine_pool.h"

struct engine_link;
struct event;

enum pool_state {
	POOL_DOWN,
	POOL_STARTING,
	POOL_READY,
	POOL_FAILING,
	POOL_RELEASING,
	POOL_RELEASED,
	POOL_STOPPING,
	POOL_STOPPED,
};

enum rank_state { RANK_DOWN, RANK_STARTED, RANK_GREETED, RANK_READY };

struct rank {
	struct engine_pool *pool;
	int rank;
	enum rank_state state;
	struct engine_link *link;
	char *address;
	json_t *device;
	json_t *gpu; /* of its last sign of life; NULL: it told of none */
};

struct engine_pool {
	struct engine_pool_options o;
	enum pool_state state;
	char reason[1024];  /* of the last loss */
	bool told;          /* lost() was called for these engines */
	bool warm_next;     /* releasing, and to be started once that is over */
	int64_t started_ns; /* of the last start */
	int64_t ready_ns;   /* how long it took; 0: it has not ended well */
	int64_t retry_ns;   /* when down: the next start */
	int64_t backoff_ms; /* 0: the next start is immediate */
	int64_t restarts;
	struct event *timer; /* start, kill */
	struct event *watch; /* deadlines, each second */
	struct clock_watch awake;
	struct rank *ranks;
};

#endif
