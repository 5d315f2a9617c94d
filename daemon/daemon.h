/*
 * daemon.h: the parts of a running gpt2d. Only the top layer knows them: startup, shutdown and the
 * commands.
 */
#ifndef GPT2D_DAEMON_DAEMON_H
#define GPT2D_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/store/run.h"
#include "proto/state_files.h"

struct daemon {
	struct event_base *base;
	const struct settings *settings;
	const struct engine_program *program;
	int threads; /* of each rank */
	struct {     /* to read the settings again; settings is the same object */
		int argc;
		char **argv;
		struct settings *settings;
	} words;
	char state_dir[SPEC_PATH_MAX]; /* absolute */
	char runs_dir[SPEC_PATH_MAX + sizeof("/" STATE_RUNS)];
	char tuning_dir[SPEC_PATH_MAX + sizeof("/" STATE_TUNING)];
	char socket[128];
	struct store *store;
	struct queue *queue;
	struct follow *follow;
	struct control *control;
	struct world *world;
	struct engine_pool *pool; /* the world's */
	struct checker *checker;
	struct generation *generation;
	struct scheduler *scheduler;
	TAILQ_HEAD(, cancel) cancels;             /* command_run.h */
	TAILQ_HEAD(, hold_request) hold_requests; /* command_hold.h */
	struct lifecycle *lifecycle;
	struct submitter *submitter;
	struct worker *worker;
	struct service *service;
	struct run_log *run_log;
	struct holds *holds;
	struct pruner *pruner;
	struct metrics *metrics;
	int64_t counts[RUN_STATES]; /* runs in the store */
	int64_t started_ns;         /* monotonic */
	int64_t started_utc_ns;
	int64_t last_change_ns; /* of a run before this start, for prune.h */
	bool stopping;          /* no submissions, no new starts */
	bool signalled;         /* a signal stops it, not a request */
	bool ready_said;

	/* private to startup.c and shutdown.c */
	int store_rc; /* the store's failure that was last reported; 0: none */
	bool engines_stopping;
	bool engines_gone;
	int64_t drain_ns;     /* until then the run in progress may continue; 0: no limit is set */
	int64_t finish_ns;    /* when stopping now: gpt2d waits until then for files of runs */
	int64_t linger_ns;    /* gpt2d waits until then for replies */
	bool ending_requests; /* control_end_requests was called */
	struct event *shutdown; /* the next step of stopping */
	struct event *signals[5];
	struct event *completions;
	int lock_fds[3]; /* locks of the database, of the socket, of the state directory */
};

#endif
