/*
 * task.h: a run in progress: its attempt, and the engines' reports of its segments. The scheduler
 * decides what happens to a task. These functions store its segments and send them to the
 * followers.
 */
#ifndef GPT2D_DAEMON_RUNS_TASK_H
#define GPT2D_DAEMON_RUNS_TASK_H

#include <sys/queue.h>

#include "daemon/runs/attempt.h"
#include "daemon/runs/pace.h"
#include "daemon/store/record.h"

struct follow;
struct scheduler;
struct store;

/* In this order. An experiment may go from TASK_INSPECTING back to TASK_TRAINS. */
enum task_phase {
	TASK_TRAINS,
	TASK_LEFT,       /* the engines are ending: the run's directory decides how it ends */
	TASK_INSPECTING, /* no process is left, and the store's thread reads the directory */
	TASK_INSPECTED,
};

/* A run that has started and not ended. */
struct task {
	TAILQ_ENTRY(task) link;
	struct scheduler *scheduler;
	struct store *store;
	struct follow *follow;
	struct run *run;
	struct attempt *attempt;
	struct experiment *experiment; /* the attempt's; NULL: the run has one segment */
	/* Number of segments that were sent, trained, durable; skipped segments count. */
	int64_t sent, trained, done;
	int64_t first;          /* the first one that this start of gpt2d trains */
	unsigned char *reports; /* of each segment, enum attempt_report */
	struct pace pace;
	int64_t started_ns; /* monotonic, of the first segment */
	int64_t written_ns; /* last report of artifacts, or start of the wait for them */
	double tokens;      /* of the segments that are durable */
	json_t *artifacts;  /* of segments that are being written: {"0": [{path, bytes}]} */
	json_t *data;       /* files that its segments have opened, as first reported */
	/* a segment went to the next engines, because the earlier ones had not started it */
	bool sent_again;
	bool failed; /* a segment has failed: the run cannot become done */

	/* the state and reason with which the run ends once the engines have stopped it */
	bool stopping;
	enum run_state stop_state;
	char stop_reason[RUN_REASON_BYTES];
	bool requeue; /* interrupted because the disk is full: queued again, also without restart */

	enum task_phase phase;
	bool replaced;  /* an experiment: it continues with the next engines */
	bool finishing; /* an experiment: its files are written, no block is run any more */
	int64_t cut;    /* the segment in training, -1: none */
	char cut_reason[RUN_REASON_BYTES];
};

struct task *task_create(
	struct scheduler *scheduler, struct store *store, struct follow *follow, struct attempt *a);
/* Does not end the attempt. */
void task_free(struct task *t);
/* How the run ends once the engines have stopped it. */
void task_set_stop(struct task *t, enum run_state state, const char *reason);

/* A segment's state to the store; reason and dir may be NULL. */
void task_record(
	struct task *t, int64_t segment, const char *state, const char *reason, const char *dir);
/* The same to the followers, at once; not for an end. reason may be NULL. */
void task_report(const struct task *t, int64_t segment, const char *state, const char *reason);
/*
 * A segment has ended: to the store and, once that is durable, to the followers. reason and summary
 * may be NULL. artifacts: JSON text; NULL: the remembered ones.
 */
void task_record_end(struct task *t, int64_t segment, const char *state, const char *reason,
	json_t *summary, const char *artifacts);
/* A step, to the followers. params: of segment.step. */
void task_report_step(struct task *t, int64_t segment, int64_t step, int64_t steps, double step_ns,
	json_t *params);

/* The first segment that opens a file determines its identity, which is sent to later segments. */
void task_remember_data(struct task *t, json_t *data);
/*
 * Remembers an artifact until the segment's end is stored with it, and sends it to the followers.
 */
void task_remember_artifact(struct task *t, int64_t segment, json_t *path, json_t *bytes);

#endif
