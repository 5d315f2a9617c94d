/* text.h: the parts of output_text, one subject per file. */
#ifndef GPT2D_CTL_PRINT_TEXT_H
#define GPT2D_CTL_PRINT_TEXT_H

#include <jansson.h>

#include "ctl/ctl.h"
#include "ctl/print/format.h"

struct progress;
struct view;

void text_submitted(struct ctl *ctl, const json_t *reply);
void text_dry_run(struct ctl *ctl, const json_t *reply, bool verbose);
/*
 * What the checks of a run's arms warn of, as sentences: once where all arms have it, else "arm
 * NAME: ...". The caller's; NULL without memory.
 */
json_t *text_warnings(const json_t *checks);
void text_print_warnings(const struct term *t, const json_t *warnings);
void text_status(struct ctl *ctl, const json_t *reply, size_t queue_rows);
/* Of ranks and queue what fits into rows lines. */
enum { TEXT_ROWS_ALL = 1 << 20 };
void text_top(const struct term *t, const struct view *v, int rows);
void text_list(struct ctl *ctl, const json_t *reply);
void text_show(struct ctl *ctl, const json_t *reply);
void text_artifacts(struct ctl *ctl, const json_t *result);
/* On standard error, with --json too: what is altered, missing or not in the copy, and why. */
void text_artifacts_trouble(struct ctl *ctl, const json_t *result);
void text_logs(struct ctl *ctl, const json_t *result);
void text_log_line(struct ctl *ctl, const json_t *line);
void text_pruned(struct ctl *ctl, const json_t *result);
void text_kept(struct ctl *ctl, const json_t *reply);
void text_cancelled(struct ctl *ctl, const json_t *result);
void text_gate(struct ctl *ctl, const char *method, const json_t *reply);
void text_priority(struct ctl *ctl, const json_t *reply);
void text_compare(struct ctl *ctl, const json_t *comparison);
void text_event(
	struct ctl *ctl, struct progress *progress, const char *event, const json_t *params);

/* To whom waits for a run's end: that gpt2d cannot write it down (status's store), or can again. */
void text_store(const struct term *t, const json_t *store);
/*
 * "LABEL since 2026-01-31 12:00:03Z by ann (uid 1234): new disk", by uid 1234 where that has no
 * name here; nothing for null. Why runs wait has the number only, as gpt2d knows no names.
 */
void text_hold(const struct term *t, const char *label, const json_t *hold);
/* Why row i of the queue waits, of which the head's reason stands above: that is not repeated. */
const char *text_row_waits(size_t i, const char *head, const char *waiting);
/* Whether why a run waits is more than that it is made ready, which is over in a moment. */
bool text_waits(const char *waiting);
/* A line of what protocol.h calls an outlook; nothing for null. */
void text_outlook(const struct term *t, const json_t *outlook);

/*
 * What follows "unstored: " in a reason, that its end is not on disk yet and how it ended; NULL for
 * every other reason.
 */
const char *text_unstored(const char *reason);
/* The reason without the state's name, which daemons repeat in it ("cancelled: asked for"). */
const char *text_reason(const char *state, const char *reason);
/*
 * "2026-01-31 12:00:03Z" of a timestamp (ISO string, or nanoseconds or seconds since 1970), or "-".
 */
const char *text_time(const json_t *object, const char *key, char *out, size_t out_bytes);

/* "8 buckets of 1,048,576 el (4.19 MB)" of an engine's plan, or "-". */
void text_plan(const json_t *plan, char *out, size_t out_bytes);
/* A line with a bar of what protocol.h calls progress; nothing for null. */
void text_progress_line(const struct term *t, const json_t *progress);
/* A table of the first ranks of an engine, with the load of their processors or GPUs. */
void text_ranks(const struct term *t, const json_t *engine, size_t rows);
/* Up to rows lines, one for each rank whose GPU others compute on: how many were printed. */
int text_other_processes(const struct term *t, const json_t *ranks, int rows);
/* cpu_load as "98%" of a processor, or "-". */
const char *text_load(const json_t *object, char *out, size_t out_bytes);
/* "61.2 GB", or "-" */
const char *text_size(const json_t *object, const char *key, char out[FORMAT_BYTES]);
/* Of the reply to "status": the running run, its state and progress, or that there is none. */
void text_running(const struct term *t, const json_t *status);

#endif
