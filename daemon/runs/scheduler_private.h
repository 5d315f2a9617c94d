/*
 * scheduler_private.h: what scheduler.c (what is sent and how runs end) and scheduler_messages.c
 * (what the engines report) share. Nobody else includes it.
 */
#ifndef GPT2D_DAEMON_RUNS_SCHEDULER_PRIVATE_H
#define GPT2D_DAEMON_RUNS_SCHEDULER_PRIVATE_H

#include <sys/queue.h>

#include "daemon/config/clock.h"
#include "daemon/runs/attempt.h"
#include "daemon/runs/pace.h"
#include "daemon/runs/scheduler.h"
#include "daemon/store/record.h"

/* A run that has begun and not ended. */
struct task {
	TAILQ_ENTRY(task) link;
	struct scheduler *scheduler;
	struct run *run;
	struct attempt *attempt;
	int64_t sent, trained, done; /* segments: given to the engines, trained, durable */
	unsigned char *reports;      /* of each segment, enum attempt_report */
	int64_t started_ns;          /* monotonic, of the first segment */
	int64_t written_ns; /* the last news of artifacts, or the start of the wait for them */
	double tokens;      /* of the segments that are durable */
	json_t *artifacts;  /* of segments that are being written: {"0": [{path, bytes}]} */
	json_t *data;       /* files that its segments have opened, as first reported */
	bool sent_again;    /* a segment went to the next engines: nobody had begun it */
	bool failed;        /* a segment has failed: the run cannot become done */

	/* asked to stop: the state and reason the run ends with once the engines have let go */
	bool stopping;
	enum run_state stop_state;
	char stop_reason[RUN_REASON_BYTES];
	bool requeue; /* interrupted for want of room: queued again whatever its spec says */

	/* its engines are ending: it ends as its directory says */
	bool left, inspecting;
	int64_t cut; /* the segment that was being trained, -1: none */
	char cut_reason[RUN_REASON_BYTES];
};

TAILQ_HEAD(task_head, task);

struct scheduler {
	struct scheduler_options options;
	/* have sent a segment and not ended; at most the last one has segments left to send */
	struct task_head begun;
	struct task_head left; /* see leave() */
	struct attempt *next;  /* prepared ahead; its run is still queued */
	int64_t ended;         /* the run that ended last; 0: none has */

	struct task *slot; /* whose segment the engines train; NULL: they are free */
	int64_t slot_segment;
	bool slot_begun;  /* the engines have reported something about it */
	int64_t heard_ns; /* the last message about it */
	int64_t stop_ns;  /* segment.cancel was sent; 0: not */
	int64_t steps;    /* of its segments, as the engine reports */
	struct pace pace; /* of that run */

	struct event *watch; /* deadlines, each second */
	struct clock_watch awake;
	struct event *wake; /* scheduler_wake */
	struct event *idle; /* the engines end when it is over */
	int64_t idle_s;     /* what it was set to */
	int64_t idle_at_ns; /* UTC, when it was over last */

	char peer_lost[RUN_REASON_BYTES]; /* a rank failed because of another: why */
	struct event *peer_timer;
};

/* A segment's state to the store; reason and dir may be NULL. */
void scheduler_record(
	struct task *t, int64_t segment, const char *state, const char *reason, const char *dir);
/* The same to the followers, at once: no end. reason may be NULL. */
void scheduler_report(const struct task *t, int64_t segment, const char *state, const char *reason);
/*
 * The segment has ended as r says: to the store and, once that is durable, to the followers.
 * summary: what r's is the text of, or NULL.
 */
void scheduler_record_end(struct task *t, const struct record_segment *r, json_t *summary);

/* The engines are free. */
void scheduler_free_slot(struct scheduler *s);

/* The run ends here, whatever its segments still do; t is freed. */
void scheduler_end(struct task *t, enum run_state state, const char *reason);
/*
 * The run cannot go on. It fails; or, when the disk takes no writes, gpt2d holds the queue and the
 * run goes back there. A stop that somebody asked for before overrides both. t is freed, at once or
 * once the engines have let go of its segment.
 */
void scheduler_fail(struct task *t, const char *reason);
/* Ask the engines to let go of the run's segment and end it then; at once when they have none. */
void scheduler_stop(struct task *t, enum run_state state, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A segment is complete: its run becomes done with its last one, and t may be freed afterwards.
 * summary may be NULL. */
void scheduler_segment_done(struct task *t, int64_t segment, json_t *summary);

/* No news of the lost peer came in time. */
void scheduler_peer_timer(int fd, short what, void *arg);

#endif
