/* text.h: parts of runs, queues and holds that several verbs print for people. */
#ifndef GPT2D_CTL_PRINT_TEXT_H
#define GPT2D_CTL_PRINT_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/print/format.h"
#include "ctl/print/table.h"
#include "ctl/print/term.h"

/* The reason without the state's name in front ("cancelled: asked for"). */
const char *text_reason(const char *state, const char *reason);
/* "STATE: REASON" of a run, coloured, and a newline. */
void text_state(const struct term *t, const json_t *run);
/* "ann (uid 1234)", or "uid 1234" if the user has no name here. */
enum { TEXT_USER_BYTES = 100 };
const char *text_user(int64_t uid, char out[TEXT_USER_BYTES]);
/*
 * "LABEL since 2026-01-31 12:00:03Z by ann (uid 1234): new disk"; "by uid 1234" if the user has no
 * name here; nothing for null.
 */
void text_hold(const struct term *t, const char *label, const json_t *hold);

/* For a follower of runs: gpt2d cannot write its store (status's "store"), or it can again. */
void text_store(const struct term *t, const json_t *store);

/* Whether a run waits for anything but its own preparation, which takes a moment. */
bool text_waits(const char *waiting);
/*
 * "waiting" of a status, an outlook or a reply, in out; without the code of a run that waits behind
 * another one, which the text repeats.
 */
const char *text_waiting(const json_t *object, char *out, size_t bytes);
/* A line about an outlook object of protocol.h; nothing for null. */
void text_outlook(const struct term *t, const json_t *outlook);
/* Of the reply to "status": how many runs are queued, why, and the first rows of them. */
void text_queue(const struct term *t, const json_t *status, size_t rows);

/* From the reply to "status": the run in progress, or that there is none. */
void text_running(const struct term *t, const json_t *status);
/* Lines with a bar for a progress object of protocol.h; nothing for null. */
void text_progress(const struct term *t, const json_t *progress);
/*
 * Of a reply that has "running", the ID of the run in progress or null, and "stopping": the run,
 * what happens to it unless it is being stopped, and how to wait for it.
 */
void text_stopping(const struct term *t, const json_t *reply, const char *otherwise);

/* "8 buckets of 1,048,576 el (4.19 MB)" of an engine's plan, or "-". */
void text_plan(const json_t *plan, char *out, size_t out_bytes);
/* Whether the array has an equal value. */
bool text_has(const json_t *array, const json_t *value);
/*
 * The warnings of the checks of a run's arms: once if all arms have it, else as "arm NAME: ...".
 * Before them a warning if the spec has one arm. The caller owns the array.
 */
json_t *text_warnings(const json_t *spec, const json_t *checks);
void text_print_warnings(const struct term *t, const json_t *warnings);

#endif
