#include "daemon/runs/experiment.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/log.h"
#include "daemon/control/follow.h"
#include "daemon/runs/experiment_files.h"
#include "daemon/runs/run_log.h"
#include "daemon/store/record.h"
#include "daemon/runs/worker.h"
#include "proto/experiment/blocks.h"
#include "proto/experiment/comparison.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/spec/spec.h"
#include "proto/stats/verdict.h"

enum {
	LOST_MAX = 2, /* engines of one arm in a row */
	TICK_MS = 100,
	STANDSTILL_MS = 500, /* a later tick shows that gpt2d was suspended */
};

struct experiment {
	struct experiment_options options;
	struct spec *spec;
	struct run *run;
	const struct design_segment *order;
	int64_t length;  /* segments of a block */
	json_t *rows;    /* of all planned segments, as in "show" */
	int64_t begun;   /* experiment_begun */
	int64_t next;    /* no segment before this one waits */
	int64_t ended;   /* number of leading blocks in which every segment has ended */
	int64_t decided; /* blocks that the last decision included */
	struct blocks_wanted wanted;
	json_t *comparison; /* of the decided blocks; NULL: none of their segments is done */
	bool deciding;      /* a decision is with the worker */
	bool storing;       /* the number of segments has changed and is not durable */
	int lost[SPEC_ARMS_MAX];
	char failures[SPEC_ARMS_MAX]
		     [RUN_REASON_BYTES]; /* why an arm has failed; empty: it has not */
	char failure[RUN_REASON_BYTES];  /* of the first arm that has failed */
	/* each TICK_MS while the engines train; NULL: not started */
	struct event *tick;
	int64_t tick_ns;          /* the last one, by the clock that counts suspension */
	int64_t training, ticked; /* segments: the current and the next; -1: none */
	int jobs;                 /* jobs at the worker or the store */
	bool destroyed;           /* freed after the last job */
};

/* ---- rows ---- */

static json_t *row_at(const struct experiment *e, int64_t segment)
{
	return json_array_get(e->rows, (size_t)segment);
}

static bool is_in(const json_t *row, const char *state)
{
	return strcmp(rpc_text(row, "state"), state) == 0;
}

static bool is_void(const json_t *row)
{
	return rpc_text(row, "void")[0] != '\0';
}

static bool is_open(const json_t *row)
{
	return is_in(row, "training") || is_in(row, "trained");
}

static int64_t n_rows(const struct experiment *e)
{
	return (int64_t)json_array_size(e->rows);
}

static int64_t block_of(const struct experiment *e, int64_t segment)
{
	return segment / e->length;
}

int64_t experiment_segments_most(const struct spec *spec)
{
	return (int64_t)design_count(spec->n_arms, blocks_most(spec), spec->mirrored);
}

struct design_segment *experiment_order(const struct spec *spec)
{
	struct design_segment *order =
		memory_zeroed((size_t)experiment_segments_most(spec), sizeof(*order));

	design_order(spec->n_arms, blocks_most(spec), spec->mirrored, spec->design_seed, order);
	return order;
}

static json_t *new_row(const struct experiment *e, int64_t segment)
{
	const struct design_segment *s = &e->order[segment];

	return json_pack("{sI sI sI ss ss ss sn sn sn ss sn sn}", "segment",
		(json_int_t)segment + 1, "block", (json_int_t)s->block + 1, "position",
		(json_int_t)s->position + 1, "arm", e->spec->arms[s->arm].name, "state", "waiting",
		"reason", "", "void", "started_at", "ended_at", "dir", "", "summary", "artifacts");
}

/* ---- the beginning and the end ---- */

static bool has_failed(const struct experiment *e, size_t arm)
{
	return e->failures[arm][0] != '\0';
}

static bool is_failed_row(const json_t *row)
{
	return strstr(rpc_text(row, "reason"), COMPARISON_ARM_FAILED) != NULL;
}

/* Restores the state that an earlier start of gpt2d has left. */
static void read_rows(struct experiment *e)
{
	for (int64_t i = 0; i < n_rows(e); i++) {
		const json_t *row = row_at(e, i);

		if (is_failed_row(row)) {
			snprintf(e->failures[e->order[i].arm], RUN_REASON_BYTES, "%s",
				rpc_text(row, "reason"));
			if (e->failure[0] == '\0')
				strcpy(e->failure, e->failures[e->order[i].arm]);
		}
		if (!is_in(row, "waiting"))
			e->begun = i + 1;
	}
	/* a block in which segments wait after others that ended is void and does not continue */
	e->begun = (e->begun + e->length - 1) / e->length * e->length;
	e->next = e->begun;
}

struct experiment *experiment_create(
	const struct spec *spec, struct run *run, const struct design_segment *order, json_t *rows)
{
	struct experiment *e = memory_zeroed(1, sizeof(*e));

	e->spec = spec_copy(spec);
	e->run = run;
	e->order = order;
	e->rows = rows;
	e->length = (int64_t)design_count(spec->n_arms, 1, spec->mirrored);
	e->training = e->ticked = -1;
	e->wanted.blocks = n_rows(e) / e->length;
	read_rows(e);
	return e;
}

static void release(struct experiment *e)
{
	json_decref(e->rows);
	json_decref(e->comparison);
	spec_free(e->spec);
	free(e);
}

void experiment_destroy(struct experiment *e)
{
	if (e == NULL)
		return;
	if (e->tick != NULL)
		event_free(e->tick);
	e->destroyed = true;
	if (e->jobs == 0)
		release(e);
}

/* A job has returned; whether the experiment still exists. */
static bool job_back(struct experiment *e)
{
	e->jobs--;
	if (e->destroyed && e->jobs == 0)
		release(e);
	else
		return !e->destroyed;
	return false;
}

/* ---- the number of blocks ---- */

static void on_resized(void *arg, int rc)
{
	struct experiment *e = arg;

	if (!job_back(e))
		return;
	e->storing = false;
	e->options.changed(e->options.arg);
}

static void resize(struct experiment *e, int64_t blocks)
{
	const int64_t segments = blocks * e->length;

	if (segments == n_rows(e))
		return;
	log_write(LOG_INFO, "run %lld: %lld blocks instead of %lld", (long long)e->run->id,
		(long long)blocks, (long long)block_of(e, n_rows(e)));
	while (n_rows(e) > segments)
		json_array_remove(e->rows, (size_t)n_rows(e) - 1);
	while (n_rows(e) < segments)
		json_array_append_new(e->rows, new_row(e, n_rows(e)));
	e->run->segments = segments;
	e->storing = true;
	e->jobs++;
	record_resize(e->options.store, e->run->id, e->spec, e->order, segments, on_resized, e);
}

/*
 * Nothing is left to compare: the baseline has failed, or all others have. A control alone is not
 * worth a block, unless it was the only comparison from the beginning.
 */
static bool is_hopeless(const struct experiment *e)
{
	const bool only_control = e->spec->n_arms == 2;
	bool others = false;

	for (size_t i = 1; i < e->spec->n_arms; i++)
		others |= !has_failed(e, i) && (only_control || i != e->spec->control);
	return has_failed(e, 0) || !others;
}

/* ---- decisions ---- */

struct decision {
	struct worker_job job;
	struct experiment *e;
	const struct spec *spec; /* e's, while the job runs */
	json_t *show;
	int64_t blocks;
	struct blocks_wanted before, wanted;
	json_t *comparison; /* NULL: no segment is done */
};

static int decide_work(struct worker_job *job)
{
	struct decision *d = (struct decision *)job;

	if (comparison_make(d->spec, d->show, NULL, &d->comparison) < 0)
		d->comparison = NULL;
	d->wanted = blocks_decide(d->spec, d->comparison, d->blocks, &d->before);
	return 0;
}

static json_t *block_rows(const json_t *comparison)
{
	json_t *all = json_array();
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		json_t *brief = json_pack("{sO sO sO sO sO}", "arm", json_object_get(row, "arm"),
			"throughput_percent", json_object_get(row, "throughput_percent"), "low",
			json_object_get(row, "throughput_low_percent"), "high",
			json_object_get(row, "throughput_high_percent"), "half_width",
			json_object_get(row, "half_width"));

		if (json_integer_value(json_object_get(row, "blocks")) >= VERDICT_BLOCKS_MIN)
			json_object_set(brief, "verdict", json_object_get(row, "verdict"));
		json_array_append_new(all, brief);
	}
	return all;
}

static void send_event(const struct experiment *e)
{
	const json_t *last = row_at(e, e->decided * e->length - 1);
	json_t *progress = follow_progress(e->options.follow, e->run->id);
	json_t *eta = json_object_get(progress, "eta_s");
	json_t *design = json_object_get(e->comparison, "design");
	json_t *reason = json_object_get(last, "void");

	follow_event(e->options.follow, e->run->id, EVENT_BLOCK,
		json_pack("{sO sI sI sO? so sO?}", "block", json_object_get(last, "block"),
			"blocks", (json_int_t)block_of(e, n_rows(e)), "kept",
			(json_int_t)json_integer_value(json_object_get(design, "kept")), "void",
			reason, "comparisons", block_rows(e->comparison), "eta_s", eta));
	json_decref(progress);
}

static int64_t begun_blocks(struct experiment *e)
{
	while (e->next < n_rows(e) && !is_in(row_at(e, e->next), "waiting"))
		e->next++;
	return block_of(e, e->next + e->length - 1);
}

static void decide(struct experiment *e);

static void on_decided(struct worker_job *job, int rc)
{
	struct decision *d = (struct decision *)job;
	struct experiment *e = d->e;
	int64_t blocks, begun;

	json_decref(d->show);
	if (!job_back(e) || rc < 0) { /* gpt2d ends */
		json_decref(d->comparison);
		free(d);
		return;
	}
	json_decref(e->comparison);
	e->comparison = d->comparison;
	e->deciding = false;
	e->decided = d->blocks;
	e->wanted = d->wanted;
	free(d);
	blocks = is_hopeless(e) ? e->ended : e->wanted.blocks;
	begun = begun_blocks(e);
	resize(e, blocks > begun ? blocks : begun);
	send_event(e);
	decide(e);
	e->options.changed(e->options.arg);
}

/*
 * Compares the blocks that have ended. Their rows do not change any more, so the worker's thread
 * may read them.
 */
static void decide(struct experiment *e)
{
	struct decision *d;
	json_t *rows;

	if (e->deciding || e->decided == e->ended)
		return;
	rows = json_array();
	for (int64_t i = 0; i < e->ended * e->length; i++)
		json_array_append(rows, row_at(e, i));
	d = memory_zeroed(1, sizeof(*d));
	*d = (struct decision){
		.job = {.work = decide_work, .done = on_decided},
		.e = e,
		.spec = e->spec,
		.show = json_pack("{so}", "segments", rows),
		.blocks = e->ended,
		.before = e->wanted,
	};
	e->deciding = true;
	e->jobs++;
	worker_add(e->options.worker, &d->job);
}

static void count_ended(struct experiment *e)
{
	for (; e->ended < block_of(e, n_rows(e)); e->ended++)
		for (int64_t i = 0; i < e->length; i++) {
			const json_t *row = row_at(e, e->ended * e->length + i);

			if (is_open(row) || is_in(row, "waiting"))
				return;
		}
}

static void check_end(struct experiment *e)
{
	count_ended(e);
	decide(e);
}

/* The four blocks that a suspect control adds are in addition to the spare blocks in use. */
static bool was_extended(const struct experiment *e)
{
	int64_t n_void = 0;

	for (int64_t b = 0; b < block_of(e, n_rows(e)); b++)
		n_void += is_void(row_at(e, b * e->length));
	if (n_void > e->spec->spare_blocks)
		n_void = e->spec->spare_blocks;
	return block_of(e, n_rows(e)) > e->spec->repetitions + n_void;
}

/* ---- void blocks ---- */

/* Voids the block of this segment, unless the block has ended. Its waiting segments are skipped. */
static void void_block(struct experiment *e, int64_t segment, const char *reason)
{
	const int64_t block = block_of(e, segment);
	json_t *row;

	if (block < e->ended || is_void(row_at(e, segment)))
		return;
	log_write(LOG_WARNING, "run %lld: block %lld is void: %s", (long long)e->run->id,
		(long long)block + 1, reason);
	run_log_write(e->options.run_log, e->run, -1, LOG_WARNING, "block %lld is void: %s",
		(long long)block + 1, reason);
	for (int64_t i = block * e->length; i < (block + 1) * e->length; i++) {
		row = row_at(e, i);
		json_object_set_new(row, "void", json_string(reason));
		if (is_in(row, "waiting"))
			json_object_set_new(row, "state", json_string("skipped"));
	}
	record_void(e->options.store, e->run->id, block, reason);
	check_end(e);
}

/* ---- standstills ---- */

static void start_ticks(struct experiment *e)
{
	static const struct timeval interval = {0, TICK_MS * 1000};

	if (evtimer_pending(e->tick, NULL))
		return;
	e->tick_ns = clock_boot_ns();
	event_add(e->tick, &interval);
}

void experiment_check_standstill(struct experiment *e)
{
	const int64_t now = clock_boot_ns(), late = now - e->tick_ns - TICK_MS * CLOCK_MS_NS;
	char reason[64];

	if (!evtimer_pending(e->tick, NULL))
		return;
	snprintf(reason, sizeof(reason), "standstill: gpt2d, %.1f s", (double)late / 1e9);
	if (late > STANDSTILL_MS * CLOCK_MS_NS && e->ticked >= 0)
		void_block(e, e->ticked, reason);
	if (late > STANDSTILL_MS * CLOCK_MS_NS && e->training >= 0)
		void_block(e, e->training, reason);
	e->tick_ns = now;
	e->ticked = e->training;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct experiment *e = arg;

	experiment_check_standstill(e);
	if (e->ticked < 0)
		event_del(e->tick);
}

void experiment_begin(struct experiment *e, const struct experiment_options *options)
{
	e->options = *options;
	e->tick = event_new(options->base, -1, EV_PERSIST, on_tick, e);
	e->wanted.extended = was_extended(e);
	check_end(e);
}

int64_t experiment_begun(const struct experiment *e)
{
	return e->begun;
}

bool experiment_deciding(const struct experiment *e)
{
	return e->deciding;
}

bool experiment_at_block(const struct experiment *e, int64_t segment)
{
	return segment % e->length == 0;
}

/* ---- the next segment ---- */

static void leave_out(struct experiment *e, int64_t segment)
{
	const char *why = e->failures[e->order[segment].arm];
	const struct record_segment r = {e->run->id, segment, "skipped", why, NULL, NULL, NULL};

	record_segment(e->options.store, &r, NULL, NULL);
	json_object_set_new(row_at(e, segment), "state", json_string("skipped"));
	json_object_set_new(row_at(e, segment), "reason", json_string(why));
}

int64_t experiment_next(struct experiment *e)
{
	const int64_t blocks = block_of(e, n_rows(e));
	bool left_out = false;

	if (e->storing)
		return EXPERIMENT_WAIT;
	for (; e->next < n_rows(e); e->next++) {
		if (!is_in(row_at(e, e->next), "waiting"))
			continue;
		/* whether to stop is known once the previous block is compared */
		if ((e->spec->stop_half_width > 0.0 || is_hopeless(e)) &&
			e->decided < block_of(e, e->next))
			return EXPERIMENT_WAIT;
		if (!has_failed(e, e->order[e->next].arm))
			return e->next;
		leave_out(e, e->next);
		left_out = true;
	}
	if (left_out)
		check_end(e);
	return e->decided == blocks && !e->deciding ? EXPERIMENT_OVER : EXPERIMENT_WAIT;
}

/* ---- reports ---- */

bool experiment_is_open(const struct experiment *e, int64_t segment)
{
	return is_open(row_at(e, segment));
}

int64_t experiment_done(const struct experiment *e)
{
	int64_t n = 0;

	for (int64_t i = 0; i < n_rows(e); i++)
		n += is_in(row_at(e, i), "done");
	return n;
}

/* Why the engine found that the machine disturbed the segment; NULL: it did not. */
static const char *void_of(const json_t *summary)
{
	return json_string_value(json_array_get(json_object_get(summary, "void"), 0));
}

void experiment_report(struct experiment *e, int64_t segment, const char *state, const char *reason,
	const char *dir, json_t *summary)
{
	json_t *row = row_at(e, segment);
	const bool is_end = !is_in(row, state) && strcmp(state, "training") != 0 &&
		strcmp(state, "trained") != 0;

	if (summary != NULL) {
		json_object_set(row, "summary", summary);
		e->lost[e->order[segment].arm] = 0;
		if (void_of(summary) != NULL)
			void_block(e, segment, void_of(summary));
	}
	if (dir != NULL)
		json_object_set_new(row, "dir", json_string(dir));
	if (segment == e->training)
		e->training = -1;
	if (strcmp(state, "training") == 0) {
		json_object_set_new(row, "started_at", clock_json(clock_utc_ns()));
		e->training = segment;
		start_ticks(e);
	}
	if (is_end)
		json_object_set_new(row, "ended_at", clock_json(clock_utc_ns()));
	json_object_set_new(row, "reason", json_string(reason ? reason : ""));
	json_object_set_new(row, "state", json_string(state));
	if (strcmp(state, "waiting") == 0) { /* the next engines train it */
		e->next = segment;
		return;
	}
	if (is_end)
		check_end(e);
}

static void fail_arm(struct experiment *e, size_t arm, const char *reason)
{
	snprintf(e->failures[arm], RUN_REASON_BYTES, COMPARISON_ARM_FAILED "%s: %.*s",
		e->spec->arms[arm].name, RUN_REASON_BYTES / 2, reason);
	if (e->failure[0] == '\0')
		strcpy(e->failure, e->failures[arm]);
}

const char *experiment_fail_arm(struct experiment *e, int64_t segment, const char *reason)
{
	fail_arm(e, e->order[segment].arm, reason);
	if (is_hopeless(e)) /* the rest of the block would be trained for nothing */
		void_block(e, segment, e->failures[e->order[segment].arm]);
	return e->failures[e->order[segment].arm];
}

void experiment_lose(struct experiment *e, int64_t segment, const char *reason)
{
	char why[RUN_REASON_BYTES];

	if (segment >= 0 && is_open(row_at(e, segment)) &&
		++e->lost[e->order[segment].arm] == LOST_MAX)
		fail_arm(e, e->order[segment].arm, reason);
	snprintf(why, sizeof(why), "engine_replaced: %.*s", RUN_REASON_BYTES / 2, reason);
	for (int64_t i = e->ended * e->length; i < n_rows(e); i++)
		if (!is_in(row_at(e, i), "waiting") && !is_in(row_at(e, i), "skipped"))
			void_block(e, i, why);
}

/* Blocks count only if the comparison keeps them. */
static void say_all_void(struct experiment *e)
{
	const json_t *design = json_object_get(e->comparison, "design");

	if (json_integer_value(json_object_get(design, "kept")) > 0)
		return;
	snprintf(e->failure, sizeof(e->failure), "no_block: no block counts; the last one: %.*s",
		RUN_REASON_BYTES / 2, rpc_text(row_at(e, n_rows(e) - 1), "void"));
}

const char *experiment_arm_failed(const struct experiment *e, int64_t segment)
{
	const size_t arm = e->order[segment].arm;

	return has_failed(e, arm) ? e->failures[arm] : NULL;
}

const char *experiment_failure(struct experiment *e)
{
	if (e->failure[0] == '\0' && e->decided > 0 && e->decided == block_of(e, n_rows(e)))
		say_all_void(e);
	return e->failure[0] != '\0' ? e->failure : NULL;
}

/* ---- files ---- */

struct writing {
	struct worker_job job;
	struct experiment *e;
	struct experiment_files files;
	void (*done)(void *arg, int rc, const char *hashes);
	void *arg;
};

static int write_work(struct worker_job *job)
{
	return experiment_files_write(&((struct writing *)job)->files);
}

static void on_written(struct worker_job *job, int rc)
{
	struct writing *w = (struct writing *)job;

	if (job_back(w->e))
		w->done(w->arg, rc, w->files.hashes);
	json_decref(w->files.rows);
	json_decref(w->files.run);
	json_decref(w->files.engines);
	free(w);
}

void experiment_write(struct experiment *e, const char *dir, json_t *run, json_t *engines,
	void (*done)(void *arg, int rc, const char *hashes), void *arg)
{
	struct writing *w = memory_zeroed(1, sizeof(*w));
	const json_t *row;
	size_t i;

	w->job = (struct worker_job){.work = write_work, .done = on_written};
	w->e = e;
	w->files = (struct experiment_files){
		.spec = e->spec, .rows = json_array(), .run = run, .engines = engines};
	json_array_foreach(e->rows, i, row) /* a segment may still end while the thread writes */
		json_array_append_new(w->files.rows, json_copy((json_t *)row));
	snprintf(w->files.dir, sizeof(w->files.dir), "%s", dir);
	w->done = done;
	w->arg = arg;
	e->jobs++;
	worker_add(e->options.worker, &w->job);
}
