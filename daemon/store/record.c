#include "daemon/store/record.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "proto/log_level.h"

static void job_init(struct store_job *job, enum store_kind kind, bool must,
	int (*work)(struct store_job *, struct sqlite3 *), void (*done)(struct store_job *, int))
{
	*job = (struct store_job){.kind = kind, .must = must, .work = work, .done = done};
}

/* ---- submit ---- */

struct submit_job {
	struct store_job job;
	struct run *run;
	char *canonical, *checks;
	struct design_segment *order;
	char (*arms)[SPEC_NAME_MAX + 1];
	void (*done)(void *arg, int rc);
	void *arg;
};

static void submit_free(struct submit_job *j)
{
	free(j->canonical);
	free(j->checks);
	free(j->order);
	free(j->arms);
	free(j);
}

/* The same among what was said of the run. */
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
	for (int64_t i = 0; i < r->segments && rc == 0; i++)
		rc = store_sql(db, NULL, NULL,
			"insert into segments(run, segment, block, position, arm, state, reason,"
			" started_ns, ended_ns, dir)"
			" values(?, ?, ?, ?, ?, 'waiting', '', 0, 0, '')",
			"iiiit", r->id, i, j->order[i].block, j->order[i].position,
			j->arms[j->order[i].arm]);
	return rc < 0 ? rc : add_transition(db, r, r->submitted_ns);
}

static void submit_done(struct store_job *job, int rc)
{
	struct submit_job *j = (struct submit_job *)job;

	j->done(j->arg, rc);
	submit_free(j);
}

int record_submit(struct store *s, struct run *run, const struct spec *spec, const char *canonical,
	const char *checks, void (*done)(void *arg, int rc), void *arg)
{
	struct submit_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	job_init(&j->job, STORE_WRITE, false, submit_work, submit_done);
	j->run = run;
	j->done = done;
	j->arg = arg;
	j->canonical = strdup(canonical);
	j->checks = strdup(checks);
	j->order = calloc((size_t)run->segments, sizeof(*j->order));
	j->arms = calloc(spec->n_arms, sizeof(*j->arms));
	if (!j->canonical || !j->checks || !j->order || !j->arms) {
		submit_free(j);
		return -ENOMEM;
	}
	spec_order(spec, j->order);
	for (size_t i = 0; i < spec->n_arms; i++)
		memcpy(j->arms[i], spec->arms[i].name, sizeof(j->arms[i]));
	store_add(s, &j->job);
	return 0;
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

/* The attempt that is stored, to see that a run has been queued again. */
static int stored_attempt(struct sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
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
	/* its marker says so, also where gpt2d went away before it was told */
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

int record_transition(struct store *s, struct run *run,
	void (*done)(void *arg, struct run *run, enum run_state state, int rc), void *arg)
{
	struct transition_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	job_init(&j->job, STORE_WRITE, true, transition_work, transition_done);
	j->run = *run;
	j->of = run;
	j->at_ns = clock_utc_ns();
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}

int record_transition_now(struct store *s, const struct run *run)
{
	struct transition_job j = {.run = *run, .at_ns = clock_utc_ns()};
	struct sqlite3 *db = store_db(s);
	int rc = store_errno(db, sqlite3_exec(db, "begin immediate", NULL, NULL, NULL));

	if (rc == 0)
		rc = transition_work(&j.job, db);
	if (rc == 0)
		rc = store_errno(db, sqlite3_exec(db, "commit", NULL, NULL, NULL));
	if (rc < 0)
		sqlite3_exec(db, "rollback", NULL, NULL, NULL);
	return rc;
}

static int take_count(struct sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

int record_count_transitions(struct store *s, int64_t run, enum run_state state,
	const char *prefix, int64_t *n)
{
	return store_sql(store_db(s), take_count, n,
		"select count(*) from transitions where run = ? and state = ?"
		" and substr(reason, 1, length(?)) = ?",
		"ittt", run, run_state_name(state), prefix, prefix);
}

/* ---- segment ---- */

struct segment_job {
	struct store_job job;
	int64_t run, segment, at_ns;
	char state[16];
	char *reason, *dir, *summary, *artifacts;
	void (*done)(void *arg, int rc);
	void *arg;
};

static void segment_free(struct segment_job *j)
{
	free(j->reason);
	free(j->dir);
	free(j->summary);
	free(j->artifacts);
	free(j);
}

static int segment_work(struct store_job *job, struct sqlite3 *db)
{
	const struct segment_job *j = (const struct segment_job *)job;
	int rc;

	if (strcmp(j->state, "training") == 0)
		return store_sql(db, NULL, NULL,
			"update segments set state = ?, dir = ?, started_ns = ?"
			" where run = ? and segment = ?",
			"ttiii", j->state, j->dir ? j->dir : "", j->at_ns, j->run, j->segment);
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

	if (j->done != NULL)
		j->done(j->arg, rc);
	segment_free(j);
}

static char *copy_of(const char *text, bool *failed)
{
	char *copy = text ? strdup(text) : NULL;

	*failed |= text != NULL && copy == NULL;
	return copy;
}

int record_segment(struct store *s, const struct record_segment *segment,
	void (*done)(void *arg, int rc), void *arg)
{
	struct segment_job *j = calloc(1, sizeof(*j));
	bool failed = false;

	if (j == NULL)
		return -ENOMEM;
	job_init(&j->job, STORE_WRITE, true, segment_work, segment_done);
	j->run = segment->run;
	j->segment = segment->segment;
	j->at_ns = clock_utc_ns();
	strncpy(j->state, segment->state, sizeof(j->state) - 1);
	j->reason = copy_of(segment->reason, &failed);
	j->dir = copy_of(segment->dir, &failed);
	j->summary = copy_of(segment->summary, &failed);
	j->artifacts = copy_of(segment->artifacts, &failed);
	if (failed) {
		segment_free(j);
		return -ENOMEM;
	}
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}

static int take_last_id(sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

int record_last_id(struct store *s, int64_t *out)
{
	int64_t id = 0;
	int rc = store_sql(store_db(s), take_last_id, &id,
		"select seq from sqlite_sequence where name = 'runs'", "");

	if (rc == 0)
		*out = id;
	return rc;
}

int record_set_last_id(struct store *s, int64_t id)
{
	return store_sql(store_db(s), NULL, NULL,
		"insert or replace into sqlite_sequence(rowid, name, seq) values("
		"(select rowid from sqlite_sequence where name = 'runs'), 'runs', ?)",
		"i", id);
}

static int take_unreported(sqlite3_stmt *stmt, void *arg)
{
	struct record_unreported *u = arg;

	u->segment = sqlite3_column_int64(stmt, 0);
	snprintf(u->dir, sizeof(u->dir), "%s", store_text(stmt, 1));
	snprintf(u->arm, sizeof(u->arm), "%s", store_text(stmt, 2));
	return 0;
}

int record_unreported(
	struct store *s, int64_t run, int64_t after, bool unbegun, struct record_unreported *out)
{
	int rc;

	out->segment = -1;
	rc = store_sql(store_db(s), take_unreported, out,
		"select segment, dir, arm from segments where run = ?1 and segment > ?2"
		" and ((state in ('training', 'trained') and dir <> '') or"
		" (?3 and state <> 'done')) order by segment limit 1",
		"iii", run, after, (int64_t)unbegun);
	return rc < 0 ? rc : out->segment < 0 ? -ENOENT : 0;
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

/* ---- priority ---- */

struct priority_job {
	struct store_job job;
	int64_t run, priority;
	void (*done)(void *arg, int rc);
	void *arg;
};

static int priority_work(struct store_job *job, struct sqlite3 *db)
{
	const struct priority_job *j = (const struct priority_job *)job;

	return store_sql(db, NULL, NULL, "update runs set priority = ? where id = ?", "ii",
		j->priority, j->run);
}

static void priority_done(struct store_job *job, int rc)
{
	struct priority_job *j = (struct priority_job *)job;

	j->done(j->arg, rc);
	free(j);
}

int record_priority(
	struct store *s, int64_t run, int64_t priority, void (*done)(void *arg, int rc), void *arg)
{
	struct priority_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	job_init(&j->job, STORE_WRITE, false, priority_work, priority_done);
	j->run = run;
	j->priority = priority;
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}

/* ---- files ---- */

struct files_job {
	struct store_job job;
	int (*work)(void *arg);
	void (*done)(void *arg, int rc);
	void *arg;
};

static int files_work(struct store_job *job, struct sqlite3 *db)
{
	struct files_job *j = (struct files_job *)job;

	return j->work(j->arg);
}

static void files_done(struct store_job *job, int rc)
{
	struct files_job *j = (struct files_job *)job;

	j->done(j->arg, rc);
	free(j);
}

int record_files(
	struct store *s, int (*work)(void *arg), void (*done)(void *arg, int rc), void *arg)
{
	struct files_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	job_init(&j->job, STORE_FILES, false, files_work, files_done);
	j->work = work;
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}
