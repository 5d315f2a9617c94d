/*
 * scheduler_private.h: what scheduler.c shares with scheduler_messages.c, which handles the
 * messages of the engines. Only these two files include it.
 */
#ifndef GPT2D_DAEMON_RUNS_SCHEDULER_PRIVATE_H
#define GPT2D_DAEMON_RUNS_SCHEDULER_PRIVATE_H

#include "daemon/config/clock.h"
#include "daemon/runs/task.h"

TAILQ_HEAD(task_head, task);

struct scheduler {
	struct scheduler_options *options;
	/*
	 * runs that have sent a segment and not ended; only the last one may have segments to send
	 */
	struct task_head begun;
	struct task_head left; /* see leave() */
	struct attempt *next;  /* prepared ahead; its run is still queued */
	int64_t ended;         /* the run that ended last; 0: none */

	struct task *slot; /* whose segment the engines train; NULL: they are free */
	int64_t slot_segment;
	bool slot_begun;  /* the engines have reported progress of it */
	int64_t heard_ns; /* the last message about it */
	int64_t stop_ns;  /* segment.cancel was sent; 0: not */

	struct event *watch; /* deadlines, each second */
	struct clock_watch awake;
	struct event *wake; /* the event of scheduler_wake */
	struct event *idle; /* idle_release: the engines end when it expires */
	int64_t idle_s;     /* its present interval */
	int64_t idle_at_ns; /* UTC of its last expiry */

	char peer_lost[RUN_REASON_BYTES]; /* why a rank failed because of another one */
	struct event *peer_timer;
};

/* The engines train nothing. */
void scheduler_free_slot(struct scheduler *s);
/* The run has ended, or is queued again; t is freed. reason may be NULL, or t's. */
void scheduler_end_task(struct task *t, enum run_state state, const char *reason);
/* The run fails, or waits for room on the disk, once the engines have stopped it. */
void scheduler_fail_task(struct task *t, const char *reason);
/* All files of a segment are durable. May free t. */
void scheduler_segment_done(struct task *t, int64_t segment, json_t *summary);

#endif
