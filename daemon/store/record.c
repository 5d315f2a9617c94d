#include "daemon/store/record.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "proto/host/memory.h"

#define ENDED "state in ('done', 'failed', 'cancelled', 'interrupted')"

/* The common head of jobs whose caller waits for 0 or an error. */
struct write {
	struct store_job job;
	void (*done)(void *arg, int rc);
	void *arg;
};

static void write_done(struct store_job *job, int rc)
{
	struct write *w = (struct write *)job;

	if (w->done != NULL)
		w->done(w->arg, rc);
	free(w);
}

static void write_add(struct store *s, struct write *w,
	int (*work)(struct store_job *, struct sqlite3 *), void (*done)(void *arg, int rc),
	void *arg)
{
	w->job.work = work;
	if (w->job.done == NULL)
		w->job.done = write_done;
	w->done = done;
	w->arg = arg;
	store_add(s, &w->job);
}

/* ---- submit ---- */

struct submit_job {
	struct write write;
	struct run *run;
	char *canonical, *checks;
	struct design_segment *order;
	char (*arms)[SPEC_NAME_MAX + 1];
};

/* The transition as a line of the run's log. */
static int log_transition(struct sqlite3 *db, const struct run *run, int64_t at_ns)
{
	enum log_level level = LOG_INFO;
	char message[RUN_REASON_BYTES + 64], by[32] = "";

	if (run->state == RUN_FAILED)
		level = LOG_ERROR;
	else if (run->state == RUN_CANCELLED || run->state == RUN_INTERRUPTED)
		level = LOG_WARNING;
	if (run->state == RUN_QUEUED && run->attempt == 1)
		snprintf(by, sizeof(by), " by uid %u", (unsigned)run->uid);
	snprintf(message, sizeof(message), "%s%s%s%s", run_state_name(run->state), by,
		run->reason[0] ? ": " : "", run_reason(run));
	return store_sql(db, NULL, NULL,
		"insert into log(run, at_ns, rank, level, message) values(?, ?, null, ?, ?)",
		"iiit", run->id, at_ns, (int64_t)level, message);
}

static int add_transition(struct sqlite3 *db, const struct run *run, int64_t at_ns)
{
	int rc = store_sql(db, NULL, NULL,
		"insert into transitions(run, at_ns, state, reason) values(?, ?, ?, ?)", "iitt",
		run->id, at_ns, run_state_name(run->state), run->reason);

	return rc < 0 ? rc : log_transition(db, run, at_ns);
}

static int found(struct sqlite3_stmt *stmt, void *arg)
{
	*(bool *)arg = true;
	return 0;
}

/* Inserts the segments of the first n of an order that do not exist. */
static int add_segments(struct sqlite3 *db, int64_t run, const struct design_segment *order,
	char (*arms)[SPEC_NAME_MAX + 1], int64_t n)
{
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i++)
		rc = store_sql(db, NULL, NULL,
			"insert or ignore into segments(run, segment, block, position, arm, state,"
			" reason, started_ns, ended_ns, dir)"
			" values(?, ?, ?, ?, ?, 'waiting', '', 0, 0, '')",
			"iiiit", run, i, order[i].block, order[i].position, arms[order[i].arm]);
	return rc;
}

static int submit_work(struct store_job *job, struct sqlite3 *db)
{
	struct submit_job *j = (struct submit_job *)job;
	struct run *r = j->run;
	bool known = r->rerun_of == 0;
	int rc = 0;

	if (!known)
		rc = store_sql(
			db, found, &known, "select 1 from runs where id = ?", "i", r->rerun_of);
	if (rc == 0 && !known)
		rc = -ENOENT;
	if (rc < 0)
		return rc;
	rc = store_sql(db, NULL, NULL,
		"insert into runs(name, uid, state, reason, spec, spec_sha256, checks,"
		" gpus, segments, segments_done, attempt, restart, timeout_s, submitted_ns,"
		" started_ns, ended_ns, priority, rerun_of)"
		" values(?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, 0, 0, ?, ?)",
		"titttttiiiiiiii", r->name, (int64_t)r->uid, run_state_name(r->state), r->reason,
		j->canonical, r->spec_sha256, j->checks, r->gpus, r->segments, r->attempt,
		(int64_t)r->restart, r->timeout_s, r->submitted_ns, r->priority, r->rerun_of);
	if (rc < 0)
		return rc;
	r->id = sqlite3_last_insert_rowid(db);
	rc = add_segments(db, r->id, j->order, j->arms, r->segments);
	return rc < 0 ? rc : add_transition(db, r, r->submitted_ns);
}

static void submit_done(struct store_job *job, int rc)
{
	struct submit_job *j = (struct submit_job *)job;

	free(j->canonical);
	free(j->checks);
	free(j->order);
	free(j->arms);
	write_done(job, rc);
}

static char (*arm_names(const struct spec *spec))[SPEC_NAME_MAX + 1]
{
	char(*arms)[SPEC_NAME_MAX + 1] = memory_zeroed(spec->n_arms, sizeof(*arms));

	for (size_t i = 0; i < spec->n_arms; i++)
		memcpy(arms[i], spec->arms[i].name, sizeof(arms[i]));
	return arms;
}

void record_submit(struct store *s, struct run *run, const struct spec *spec, const char *canonical,
	const char *checks, void (*done)(void *arg, int rc), void *arg)
{
	struct submit_job *j = memory_zeroed(1, sizeof(*j));

	j->write.job.done = submit_done;
	j->run = run;
	j->canonical = memory_text(canonical);
	j->checks = memory_text(checks);
	j->order = memory_zeroed((size_t)run->segments, sizeof(*j->order));
	j->arms = arm_names(spec);
	spec_order(spec, j->order);
	write_add(s, &j->write, submit_work, done, arg);
}

/* ---- transition ---- */

static int count_done(struct sqlite3 *db, int64_t run)
{
	return store_sql(db, NULL, NULL,
		"update runs set segments_done = (select count(*) from segments"
		" where run = runs.id and state = 'done') where id = ?",
		"i", run);
}

struct transition_job {
	struct store_job job;
	struct run run; /* as it was */
	struct run *of;
	int64_t at_ns;
	void (*done)(void *arg, struct run *run, enum run_state state, int rc);
	void *arg;
};

/* The stored attempt, to detect that a run has been queued again. */
static int stored_attempt(struct sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

/*
 * An interrupted experiment continues with its next block: a block that has started and is not done
 * does not count.
 */
static int void_open_block(struct sqlite3 *db, const struct run *r)
{
	return store_sql(db, NULL, NULL,
		"update segments set void = case when ?2 like 'daemon_%' then 'daemon_restart'"
		" else 'interrupted: ' || ?2 end"
		" where run = ?1 and void = '' and block in (select block from segments"
		" where run = ?1 group by block"
		" having sum(state = 'done' or reason like 'arm_failed: %') < count(*)"
		" and sum(state not in ('waiting', 'skipped')) > 0)",
		"it", r->id, r->reason);
}

static int wait_again(struct sqlite3 *db, const struct run *r)
{
	return store_sql(db, NULL, NULL,
		"update segments set state = 'waiting', ended_ns = 0"
		" where run = ? and state = 'skipped' and void = '' and reason = ''",
		"i", r->id);
}

static int transition_work(struct store_job *job, struct sqlite3 *db)
{
	const struct transition_job *j = (const struct transition_job *)job;
	const struct run *r = &j->run;
	const char *state = run_state_name(r->state);
	int64_t attempt = r->attempt;
	int rc;

	rc = store_sql(
		db, stored_attempt, &attempt, "select attempt from runs where id = ?", "i", r->id);
	if (rc < 0)
		return rc;
	rc = store_sql(db, NULL, NULL,
		"update runs set state = ?, reason = ?, attempt = ?, started_ns = ?, ended_ns = ?"
		" where id = ?",
		"ttiiii", state, r->reason, r->attempt, r->started_ns, r->ended_ns, r->id);
	if (rc == 0 && attempt != r->attempt)
		rc = store_sql(db, NULL, NULL,
			"update segments set state = 'waiting', reason = '', started_ns = 0,"
			" ended_ns = 0, dir = '', summary = null, artifacts = null where run = ?",
			"i", r->id);
	if (rc == 0 && run_state_ended(r->state) && r->state != RUN_DONE)
		rc = store_sql(db, NULL, NULL,
			"update segments set"
			" ended_ns = case state when 'waiting' then 0 else ? end,"
			" state = case state when 'waiting' then 'skipped' else ? end"
			" where run = ? and state in ('waiting', 'training')",
			"iti", j->at_ns, state, r->id);
	if (rc == 0 && r->state == RUN_INTERRUPTED && run_continues(r))
		rc = void_open_block(db, r);
	if (rc == 0 && r->state == RUN_QUEUED && run_continues(r))
		rc = wait_again(db, r);
	/* its marker proves it, also if gpt2d ended before the engine's report */
	if (rc == 0 && r->state == RUN_DONE)
		rc = store_sql(db, NULL, NULL,
			"update segments set state = 'done', ended_ns = ?"
			" where run = ? and state in ('training', 'trained')",
			"ii", j->at_ns, r->id);
	if (rc == 0 && (attempt != r->attempt || r->state == RUN_DONE))
		rc = count_done(db, r->id);
	return rc < 0 ? rc : add_transition(db, r, j->at_ns);
}

static void transition_done(struct store_job *job, int rc)
{
	struct transition_job *j = (struct transition_job *)job;

	j->done(j->arg, j->of, j->run.state, rc);
	free(j);
}

void record_transition(struct store *s, struct run *run,
	void (*done)(void *arg, struct run *run, enum run_state state, int rc), void *arg)
{
	struct transition_job *j = memory_zeroed(1, sizeof(*j));

	j->job = (struct store_job){.must = true, .work = transition_work, .done = transition_done};
	j->run = *run;
	j->of = run;
	j->at_ns = clock_utc_ns();
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
}

/* Before store_start: runs work in its own transaction. */
static int do_now(
	struct store *s, int (*work)(struct store_job *, struct sqlite3 *), struct store_job *job)
{
	struct sqlite3 *db = store_db(s);
	int rc = store_errno(db, sqlite3_exec(db, "begin immediate", NULL, NULL, NULL));

	if (rc == 0)
		rc = work(job, db);
	if (rc == 0)
		rc = store_errno(db, sqlite3_exec(db, "commit", NULL, NULL, NULL));
	if (rc < 0)
		sqlite3_exec(db, "rollback", NULL, NULL, NULL);
	return rc;
}

int record_transition_now(struct store *s, const struct run *run)
{
	struct transition_job j = {.run = *run, .at_ns = clock_utc_ns()};

	return do_now(s, transition_work, &j.job);
}

/* ---- segment ---- */

struct segment_job {
	struct write write;
	int64_t run, segment, at_ns;
	char state[16];
	char *reason, *dir, *summary, *artifacts;
};

static int segment_work(struct store_job *job, struct sqlite3 *db)
{
	const struct segment_job *j = (const struct segment_job *)job;
	int rc;

	if (strcmp(j->state, "training") == 0)
		return store_sql(db, NULL, NULL,
			"update segments set state = ?, dir = ?, started_ns = ?"
			" where run = ? and segment = ?",
			"ttiii", j->state, j->dir ? j->dir : "", j->at_ns, j->run, j->segment);
	if (strcmp(j->state, "skipped") == 0)
		return store_sql(db, NULL, NULL,
			"update segments set state = ?, reason = ?"
			" where run = ? and segment = ? and state = 'waiting'",
			"ttii", j->state, j->reason ? j->reason : "", j->run, j->segment);
	rc = store_sql(db, NULL, NULL,
		"update segments set state = ?, reason = ?, ended_ns = ?,"
		" summary = coalesce(?, summary), artifacts = coalesce(?, artifacts)"
		" where run = ? and segment = ? and state in ('training', 'trained')",
		"ttittii", j->state, j->reason ? j->reason : "", j->at_ns, j->summary, j->artifacts,
		j->run, j->segment);
	if (rc == 0 && strcmp(j->state, "done") == 0)
		rc = count_done(db, j->run);
	return rc;
}

static void segment_done(struct store_job *job, int rc)
{
	struct segment_job *j = (struct segment_job *)job;

	free(j->reason);
	free(j->dir);
	free(j->summary);
	free(j->artifacts);
	write_done(job, rc);
}

static char *copy_of(const char *text)
{
	return text ? memory_text(text) : NULL;
}

void record_segment(struct store *s, const struct record_segment *segment,
	void (*done)(void *arg, int rc), void *arg)
{
	struct segment_job *j = memory_zeroed(1, sizeof(*j));

	j->write.job.must = true;
	j->write.job.done = segment_done;
	j->run = segment->run;
	j->segment = segment->segment;
	j->at_ns = clock_utc_ns();
	snprintf(j->state, sizeof(j->state), "%s", segment->state);
	j->reason = copy_of(segment->reason);
	j->dir = copy_of(segment->dir);
	j->summary = copy_of(segment->summary);
	j->artifacts = copy_of(segment->artifacts);
	write_add(s, &j->write, segment_work, done, arg);
}

/* ---- blocks ---- */

struct resize_job {
	struct write write;
	int64_t run, segments;
	struct design_segment *order;
	char (*arms)[SPEC_NAME_MAX + 1];
};

static int resize_work(struct store_job *job, struct sqlite3 *db)
{
	const struct resize_job *j = (const struct resize_job *)job;
	int rc = store_sql(db, NULL, NULL, "update runs set segments = ? where id = ?", "ii",
		j->segments, j->run);

	if (rc == 0)
		rc = store_sql(db, NULL, NULL,
			"delete from segments where run = ? and segment >= ? and dir = ''", "ii",
			j->run, j->segments);
	return rc == 0 ? add_segments(db, j->run, j->order, j->arms, j->segments) : rc;
}

static void resize_done(struct store_job *job, int rc)
{
	struct resize_job *j = (struct resize_job *)job;

	free(j->order);
	free(j->arms);
	write_done(job, rc);
}

void record_resize(struct store *s, int64_t run, const struct spec *spec,
	const struct design_segment *order, int64_t segments, void (*done)(void *arg, int rc),
	void *arg)
{
	struct resize_job *j = memory_zeroed(1, sizeof(*j));

	j->write.job.must = true;
	j->write.job.done = resize_done;
	j->run = run;
	j->segments = segments;
	j->order = memory_zeroed((size_t)segments, sizeof(*j->order));
	memcpy(j->order, order, (size_t)segments * sizeof(*j->order));
	j->arms = arm_names(spec);
	write_add(s, &j->write, resize_work, done, arg);
}

static int void_work(struct store_job *job, struct sqlite3 *db)
{
	const struct segment_job *j = (const struct segment_job *)job;

	return store_sql(db, NULL, NULL,
		"update segments set void = ?,"
		" state = case state when 'waiting' then 'skipped' else state end"
		" where run = ? and block = ? and void = ''",
		"tii", j->reason, j->run, j->segment);
}

void record_void(struct store *s, int64_t run, int64_t block, const char *reason)
{
	struct segment_job *j = memory_zeroed(1, sizeof(*j));

	j->write.job.must = true;
	j->write.job.done = segment_done;
	j->run = run;
	j->segment = block;
	j->reason = memory_text(reason);
	write_add(s, &j->write, void_work, NULL, NULL);
}

/* ---- priority, keep, delete ---- */

struct change_job {
	struct write write;
	int64_t run, value;
};

static void change(struct store *s, int64_t run, int64_t value,
	int (*work)(struct store_job *, struct sqlite3 *), void (*done)(void *arg, int rc),
	void *arg)
{
	struct change_job *j = memory_zeroed(1, sizeof(*j));

	j->run = run;
	j->value = value;
	write_add(s, &j->write, work, done, arg);
}

static int priority_work(struct store_job *job, struct sqlite3 *db)
{
	const struct change_job *j = (const struct change_job *)job;

	return store_sql(db, NULL, NULL, "update runs set priority = ? where id = ?", "ii",
		j->value, j->run);
}

void record_priority(
	struct store *s, int64_t run, int64_t priority, void (*done)(void *arg, int rc), void *arg)
{
	change(s, run, priority, priority_work, done, arg);
}

static int keep_work(struct store_job *job, struct sqlite3 *db)
{
	const struct change_job *j = (const struct change_job *)job;
	int rc = store_sql(
		db, NULL, NULL, "update runs set kept = ? where id = ?", "ii", j->value, j->run);

	return rc == 0 && sqlite3_changes(db) == 0 ? -ENOENT : rc;
}

void record_keep(struct store *s, int64_t id, bool kept, void (*done)(void *arg, int rc), void *arg)
{
	change(s, id, kept, keep_work, done, arg);
}

static int delete_work(struct store_job *job, struct sqlite3 *db)
{
	static const char *const statements[] = {
		"delete from log where run = ?",
		"delete from transitions where run = ?",
		"delete from segments where run = ?",
		("delete from runs where id = ? and " ENDED),
	};
	const int64_t id = ((const struct change_job *)job)->run;
	int rc = 0;

	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]) && rc == 0; i++)
		rc = store_sql(db, NULL, NULL, statements[i], "i", id);
	return rc;
}

void record_delete(struct store *s, int64_t id, void (*done)(void *arg, int rc), void *arg)
{
	change(s, id, 0, delete_work, done, arg);
}

int record_delete_now(struct store *s, int64_t id)
{
	struct change_job j = {.run = id};

	return do_now(s, delete_work, &j.write.job);
}

/* ---- log lines ---- */

struct line_job {
	struct write write;
	struct record_log_line line;
};

static int count_dropped(struct sqlite3 *db, int64_t run, int64_t n)
{
	if (n == 0)
		return 0;
	return store_sql(db, NULL, NULL,
		"update runs set log_dropped = log_dropped + ? where id = ?", "ii", n, run);
}

/* Deletes the oldest lines beyond RECORD_LOG_LINES. */
static int trim(struct sqlite3 *db, int64_t run)
{
	int rc = store_sql(db, NULL, NULL,
		"delete from log where run = ?1 and n <= (select n from log where run = ?1"
		" order by n desc limit 1 offset ?2)",
		"ii", run, (int64_t)RECORD_LOG_LINES);

	return rc < 0 ? rc : count_dropped(db, run, sqlite3_changes(db));
}

static int line_work(struct store_job *job, struct sqlite3 *db)
{
	const struct record_log_line *line = &((const struct line_job *)job)->line;
	int rc = store_sql(db, NULL, NULL,
		"insert into log(run, at_ns, rank, level, message)"
		" select id, ?2, nullif(?3, -1), ?4, ?5 from runs where id = ?1",
		"iiiit", line->run, line->at_ns, (int64_t)line->rank, (int64_t)line->level,
		line->message);

	if (rc == 0)
		rc = count_dropped(db, line->run, line->dropped);
	return rc == 0 ? trim(db, line->run) : rc;
}

void record_log_add(struct store *s, const struct record_log_line *line,
	void (*done)(void *arg, int rc), void *arg)
{
	struct line_job *j = memory_zeroed(1, sizeof(*j));

	j->write.job.must = true;
	j->line = *line;
	write_add(s, &j->write, line_work, done, arg);
}

/* ---- holds ---- */

struct hold_job {
	struct write write;
	struct record_hold hold;
};

static int hold_work(struct store_job *job, struct sqlite3 *db)
{
	const struct record_hold *h = &((const struct hold_job *)job)->hold;

	if (h->since_ns == 0)
		return store_sql(db, NULL, NULL, "delete from holds where what = ?", "t", h->what);
	return store_sql(db, NULL, NULL, "insert or replace into holds values(?, ?, ?, ?)", "tiit",
		h->what, h->since_ns, (int64_t)h->uid, h->reason);
}

void record_hold_set(
	struct store *s, const struct record_hold *hold, void (*done)(void *arg, int rc), void *arg)
{
	struct hold_job *j = memory_zeroed(1, sizeof(*j));

	j->hold = *hold;
	write_add(s, &j->write, hold_work, done, arg);
}

/* ---- files ---- */

struct files_job {
	struct write write;
	int (*work)(void *arg);
};

static int files_work(struct store_job *job, struct sqlite3 *db)
{
	struct files_job *j = (struct files_job *)job;

	return j->work(j->write.arg);
}

void record_files(
	struct store *s, int (*work)(void *arg), void (*done)(void *arg, int rc), void *arg)
{
	struct files_job *j = memory_zeroed(1, sizeof(*j));

	j->write.job.kind = STORE_FILES;
	j->work = work;
	write_add(s, &j->write, files_work, done, arg);
}

/* ---- before store_start ---- */

int record_set_last_id(struct store *s, int64_t id)
{
	return store_sql(store_db(s), NULL, NULL,
		"insert or replace into sqlite_sequence(rowid, name, seq) values("
		"(select rowid from sqlite_sequence where name = 'runs'), 'runs', ?)",
		"i", id);
}

int record_begun(struct store *s, int64_t run, int64_t segment, const char *dir)
{
	return store_sql(store_db(s), NULL, NULL,
		"update segments set state = 'training', dir = ?"
		" where run = ? and segment = ? and state = 'waiting'",
		"tii", dir, run, segment);
}

int record_recovered(struct store *s, int64_t run, int64_t segment, const char *dir,
	const char *summary, const char *artifacts)
{
	int rc = store_sql(store_db(s), NULL, NULL,
		"update segments set state = 'done', ended_ns = ?, dir = ?, summary = ?,"
		" artifacts = coalesce(artifacts, ?) where run = ? and segment = ?",
		"itttii", clock_utc_ns(), dir, summary, artifacts, run, segment);

	return rc < 0 ? rc : count_done(store_db(s), run);
}

int record_end_unreported(struct store *s, const struct run *run)
{
	return store_sql(store_db(s), NULL, NULL,
		"update segments set state = ?, reason = ?, ended_ns = ?"
		" where run = ? and state = 'trained'",
		"ttii", run_state_name(run->state), run->reason, clock_utc_ns(), run->id);
}
