/*
 * scheduler_private.h: what scheduler.c (what is sent and how runs end) and scheduler_messages.c
 * (what the engines say) share. Nobody else includes it.
 */
#ifndef GPT2D_DAEMON_RUNS_SCHEDULER_PRIVATE_H
#define GPT2D_DAEMON_RUNS_SCHEDULER_PRIVATE_H

#include "daemon/runs/attempt.h"
#include "daemon/config/clock.h"
#include "daemon/runs/pace.h"
#include "daemon/store/record.h"
#include "daemon/runs/scheduler.h"

struct scheduler {
	struct daemon *daemon;
	/* have sent a segment and not ended; at most the last one has segments left to send */
	TAILQ_HEAD(attempt_head, attempt) begun;
	struct attempt_head left; /* their engines are ending, see scheduler_leave */
	struct attempt *next;     /* made ready ahead; still queued */
	int64_t ended;            /* the run that ended last; 0: none has */

	struct attempt *slot; /* whose segment the engines train; NULL: they are free */
	int64_t slot_segment;
	bool slot_begun;     /* the engines have said something about it */
	int64_t heard_ns;    /* of the last message about it */
	int64_t stop_ns;     /* segment.cancel was sent; 0: not */
	int64_t steps;       /* of its segments, as the engine says */
	struct pace pace;    /* of that run */
	struct event *watch; /* deadlines, each second */
	struct clock_watch awake;

	char peer_lost[RUN_REASON_BYTES]; /* a rank failed because of another: why */
	struct event *peer_timer;
};

/* A segment's state to the store; reason and dir may be NULL. */
void scheduler_record(
	struct attempt *a, int64_t segment, const char *state, const char *reason, const char *dir);
/* The same to the followers, at once: no end. reason may be NULL. */
void scheduler_tell(
	const struct attempt *a, int64_t segment, const char *state, const char *reason);
/*
 * That it has ended, as r says, to the store and, once that is durable, to the followers. summary
 * is what r's is the text of (where there was no memory for it, nothing is written), or NULL.
 */
void scheduler_record_end(struct attempt *a, const struct record_segment *r, json_t *summary);

/* The engines are free. */
void scheduler_free_slot(struct scheduler *s);

/* The run ends here, whatever its segments still do; a is gone afterwards. */
void scheduler_end(
	struct scheduler *s, struct attempt *a, enum run_state state, const char *reason);
/* The same, failed, unless a stop had been asked for: then as that wants it. */
void scheduler_end_failed(struct scheduler *s, struct attempt *a, const char *reason);
/* Ask the engines to let go of the run's segment and end it then; at once when they have none. */
void scheduler_stop(struct scheduler *s, struct attempt *a, enum run_state state,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * The engines of a run that has begun are ending before it is done: once no process is left it ends
 * as its folder says. It is done when that is complete; else, and its markers are gone then, in
 * state, or as a stop that had been asked for before wants it. cut is the segment that was being
 * trained (-1: none, or what to say of it is not this reason): then that has failed.
 */
void scheduler_leave(struct scheduler *s, struct attempt *a, enum run_state state, int64_t cut,
	const char *reason);

/* A segment is complete: its run becomes done with its last one, and a may be gone afterwards.
 * summary may be NULL. */
void scheduler_segment_done(
	struct scheduler *s, struct attempt *a, int64_t segment, json_t *summary);

/* No news of the lost peer came in time. */
void scheduler_peer_timer(int fd, short what, void *arg);

#endif
