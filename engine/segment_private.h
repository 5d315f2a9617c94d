/*
 * segment_private.h: shared by segment.c and segment_checkpoint.c: the checkpoints that a segment
 * resumes and writes, and the parts of its steps that these need. False always means that
 * s->failure has the reason.
 */
#ifndef GPT2D_ENGINE_SEGMENT_PRIVATE_H
#define GPT2D_ENGINE_SEGMENT_PRIVATE_H

#include <stdbool.h>

struct link;
struct measure_step;
struct segment;
struct warm;

/* ---- segment.c ---- */

/* Room for the times of the remaining steps, once resume.open is known. */
bool segment_begin_measure(struct segment *s);
/* Sets the failure after an error of step_run; always false. */
bool segment_step_failed(struct segment *s, int rc, const char *error);
void segment_send_step(struct segment *s, struct link *link, const struct measure_step *m);

/* ---- segment_checkpoint.c ---- */

/*
 * Before the ranks agree: finds and opens the checkpoint from which the training continues. From
 * earlier attempts the newest complete one; else that of resume_from.
 */
bool segment_resume_find(struct segment *s, const struct warm *w);
/*
 * On all ranks, after training_reset: loads it. If one of an earlier attempt is damaged, all ranks
 * use the one before it.
 */
bool segment_resume(struct segment *s, struct warm *w);
void segment_resume_finish(struct segment *s);

/* Before the ranks agree, with the group: folder and memory for the checkpoints, if any are due. */
bool segment_save_begin(struct segment *s, const struct warm *w);
/*
 * On all ranks of several nodes together: each checks that it sees the folder that rank 0 has
 * created.
 */
bool segment_save_visible(struct segment *s, struct warm *w);
/* Whether a checkpoint is being written, so that the step is not measured. */
bool segment_saving(const struct segment *s);
/* After each step, on all ranks. */
bool segment_save_if_due(struct segment *s, struct warm *w);
/*
 * After a step at which the ranks agreed to stop: one more checkpoint if gpt2d interrupts the run,
 * which may be queued again, and none if a user cancels it. Rank 0 knows which (s->stop).
 */
bool segment_save_interrupted(struct segment *s, struct warm *w);
/*
 * After the last step, on all ranks, also after a failure that all share: waits until it is
 * written.
 */
bool segment_save_end(struct segment *s, struct warm *w);

#endif
