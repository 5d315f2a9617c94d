/*
 * segment_private.h: what segment.c and segment_checkpoint.c share: the checkpoints that a segment
 * resumes and writes, and the parts of its steps that these need. False always means that
 * s->failure says why.
 */
#ifndef GPT2D_ENGINE_SEGMENT_PRIVATE_H
#define GPT2D_ENGINE_SEGMENT_PRIVATE_H

#include <stdbool.h>

struct link;
struct measure_step;
struct segment;
struct warm;

/* ---- segment.c ---- */

/* Room for the times of the steps that are left, once resume.open is known. */
bool segment_begin_measure(struct segment *s);
/* What an error of step_run comes to; always false. */
bool segment_step_failed(struct segment *s, int rc, const char *error);
void segment_send_step(struct segment *s, struct link *link, const struct measure_step *m);

/* ---- segment_checkpoint.c ---- */

/*
 * Before the ranks agree: the checkpoint that the training goes on from is found and opened. Of
 * earlier attempts the newest one that is whole; else the one that resume_from names.
 */
bool segment_resume_find(struct segment *s, const struct warm *w);
/*
 * On all ranks, after training_reset: it is loaded. A damaged one of an earlier attempt gives way
 * to the one before it, on all ranks alike.
 */
bool segment_resume(struct segment *s, struct warm *w);
void segment_resume_finish(struct segment *s);

/* Before the ranks agree, with the group: folder and memory for the checkpoints, if any are due. */
bool segment_save_begin(struct segment *s, const struct warm *w);
/* On all ranks of several nodes together: each of them sees the folder that rank 0 has made. */
bool segment_save_visible(struct segment *s, struct warm *w);
/* Whether one is being written, beside which a step's time is no measure. */
bool segment_saving(const struct segment *s);
/* After each step, on all ranks. */
bool segment_save_if_due(struct segment *s, struct warm *w);
/*
 * After a step that the ranks have agreed to stop at: one more checkpoint where gpt2d interrupts
 * the run, which may be queued again, and none where a user cancels it. Rank 0 knows which
 * (s->stop).
 */
bool segment_save_interrupted(struct segment *s, struct warm *w);
/* After the last step, on all ranks, also after a failure that all share: until it is written. */
bool segment_save_end(struct segment *s, struct warm *w);

#endif
