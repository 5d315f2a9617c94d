#include "daemon/store/record.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_table.h"
#include "proto/text.h"

enum {
	/* a page of runs or segments ends here, so that others get their turn */
	PAGE_BYTES = 1 << 20,
	/* lower bound of a row's size; a page of the standard limit is complete */
	RUN_BYTES = 400,
};

/* ---- rows of runs ---- */

#define RUN_COLUMNS                                                                                \
	"id, name, uid, state, reason, spec_sha256, gpus, segments, segments_done, attempt,"       \
	" restart, timeout_s, submitted_ns, started_ns, ended_ns, kept, priority,"                 \
	" rerun_of"
enum { RUN_COLUMN_COUNT = 18 }; /* before further columns of a query */

static void copy_text(char *out, size_t out_bytes, sqlite3_stmt *stmt, int column)
{
	snprintf(out, out_bytes, "%s", store_text(stmt, column));
	text_clean(out);
}

/* A row that begins with RUN_COLUMNS: 0, or -EBADMSG for one that gpt2d cannot have written. */
static int read_run(sqlite3_stmt *stmt, struct run *run)
{
	int c = 0;

	*run = (struct run){.id = sqlite3_column_int64(stmt, c++)};
	if (spec_table_name_wrong(store_text(stmt, c)) != NULL)
		return -EBADMSG;
	copy_text(run->name, sizeof(run->name), stmt, c++);
	run->uid = (uid_t)sqlite3_column_int64(stmt, c++);
	if (run_state_parse(store_text(stmt, c++), &run->state) < 0)
		return -EBADMSG;
	copy_text(run->reason, sizeof(run->reason), stmt, c++);
	copy_text(run->spec_sha256, sizeof(run->spec_sha256), stmt, c++);
	run->gpus = sqlite3_column_int64(stmt, c++);
	run->segments = sqlite3_column_int64(stmt, c++);
	run->segments_done = sqlite3_column_int64(stmt, c++);
	run->attempt = sqlite3_column_int64(stmt, c++);
	run->restart = sqlite3_column_int(stmt, c++) != 0;
	run->timeout_s = sqlite3_column_int64(stmt, c++);
	run->submitted_ns = sqlite3_column_int64(stmt, c++);
	run->started_ns = sqlite3_column_int64(stmt, c++);
	run->ended_ns = sqlite3_column_int64(stmt, c++);
	run->kept = sqlite3_column_int(stmt, c++) != 0;
	run->priority = sqlite3_column_int64(stmt, c++);
	run->rerun_of = sqlite3_column_int64(stmt, c++);
	assert(c == RUN_COLUMN_COUNT);
	return 0;
}

/* ---- one job for all queries ---- */

struct query_job {
	struct store_job job;
	int64_t id;
	struct record_list list;
	struct record_prunable prunable;
	int64_t after, limit;
	enum log_level level;
	char *state_dir;
	json_t *result;
	char *text;
	json_t *rows; /* borrowed: the array being filled */
	bool whole;   /* no pages */
	size_t bytes;
	int64_t last;
	void (*done_text)(void *arg, int rc, const char *text);
	void (*done)(void *arg, int rc, json_t *result);
	void *arg;
};

static void query_free(struct query_job *q)
{
	free(q->text);
	free(q->state_dir);
	free(q);
}

static void query_done(struct store_job *job, int rc)
{
	struct query_job *q = (struct query_job *)job;

	if (q->done_text) {
		q->done_text(q->arg, rc, rc < 0 ? NULL : q->text);
	} else {
		if (rc < 0) {
			json_decref(q->result);
			q->result = NULL;
		}
		q->done(q->arg, rc, q->result);
	}
	query_free(q);
}

static struct query_job *query_create(
	int (*work)(struct store_job *, struct sqlite3 *), const char *state_dir, void *arg)
{
	struct query_job *q = memory_zeroed(1, sizeof(*q));

	q->job = (struct store_job){.kind = STORE_READ, .work = work, .done = query_done};
	q->arg = arg;
	q->state_dir = state_dir ? memory_text(state_dir) : NULL;
	return q;
}

/* ---- spec ---- */

static int take_text(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;

	q->text = memory_text(store_text(stmt, 0));
	return 0;
}

static int spec_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	int rc = store_sql(db, take_text, q, "select spec from runs where id = ?", "i", q->id);

	return rc == 0 && q->text == NULL ? -ENOENT : rc;
}

void record_spec(struct store *s, int64_t id,
	void (*done)(void *arg, int rc, const char *canonical), void *arg)
{
	struct query_job *q = query_create(spec_work, NULL, arg);

	q->id = id;
	q->done_text = done;
	store_add(s, &q->job);
}

/* ---- list ---- */

static int take_run(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	struct run run;
	int rc = read_run(stmt, &run);

	if (rc < 0)
		return rc;
	q->bytes += RUN_BYTES;
	if (q->bytes > PAGE_BYTES)
		return 0;
	q->last = run.id;
	json_array_append_new(q->rows, run_json(&run, q->state_dir));
	return 0;
}

#define LIST(compare, order)                                                                       \
	"select " RUN_COLUMNS " from runs where id " compare " ?1"                                 \
	" and (?2 is null or state = ?2) order by id " order " limit ?3"
#define LIST_OLDEST LIST(">", "asc")
#define LIST_NEWEST LIST("<", "desc")

static int list_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	const struct record_list *l = &q->list;
	int64_t after = l->newest && l->after == 0 ? INT64_MAX : l->after;
	const char *state = l->state < 0 ? NULL : run_state_name((enum run_state)l->state);
	const char *sql = l->newest ? LIST_NEWEST : LIST_OLDEST;
	bool more;
	int rc;

	q->rows = json_array();
	rc = store_sql(db, take_run, q, sql, "iti", after, state, l->limit);
	more = (int64_t)json_array_size(q->rows) == l->limit || q->bytes > PAGE_BYTES;
	q->result = json_pack(
		"{so so}", "runs", q->rows, "next", more ? json_integer(q->last) : json_null());
	return rc;
}

void record_list(struct store *s, const char *state_dir, const struct record_list *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(list_work, state_dir, arg);

	q->list = *what;
	q->done = done;
	store_add(s, &q->job);
}

/* ---- runs that may be removed ---- */

#define ENDED_STATES "state in ('done', 'failed', 'cancelled', 'interrupted')"
#define ENDED        " " ENDED_STATES " and (?1 is null or state = ?1) and (?2 < 0 or uid = ?2)"
/* A run that has not ended may begin with the checkpoint of another one. */
#define NEEDED                                                                                     \
	"(select cast(value as integer) from runs as r, json_tree(r.spec)"                         \
	" where r.state not in ('done', 'failed', 'cancelled', 'interrupted')"                     \
	" and key = 'resume_from')"
#define PRUNABLE ENDED " and kept = 0 and id not in " NEEDED
#define LAST_PRUNABLE                                                                              \
	"(select id from runs where" PRUNABLE " order by id desc limit 1 offset max(?5, 0))"

/* As take_run, and whether it had a folder. */
static int take_prunable(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	const size_t n = json_array_size(q->rows);
	int rc = take_run(stmt, q);

	if (rc == 0 && json_array_size(q->rows) > n)
		json_object_set_new(json_array_get(q->rows, n), "begun",
			json_boolean(sqlite3_column_int(stmt, RUN_COLUMN_COUNT)));
	return rc;
}

static int take_kept(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	json_t *kept = json_pack("{sI sI}", "marked", (json_int_t)sqlite3_column_int64(stmt, 0),
		"newest", (json_int_t)sqlite3_column_int64(stmt, 1));

	json_object_set_new(q->result, "kept", kept);
	return 0;
}

/* Counts between the IDs of a page, or after them for the last page. */
static int count_kept(struct query_job *q, struct sqlite3 *db, const char *state, bool more)
{
	const struct record_prunable *p = &q->prunable;

	return store_sql(db, take_kept, q,
		"select count(case when kept <> 0 then 1 end), count(case when kept = 0 then 1 end)"
		" from runs where" ENDED " and ended_ns < ?3 and id > ?4 and id <= ?6"
		" and (kept <> 0 or (?5 >= 0 and id > coalesce(" LAST_PRUNABLE ", 0)))",
		"tiiiii", state, p->uid, p->ended_before_ns, p->after, p->keep,
		more ? q->last : INT64_MAX);
}

static int prunable_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	const struct record_prunable *p = &q->prunable;
	const char *state = p->state < 0 ? NULL : run_state_name((enum run_state)p->state);
	bool more;
	int rc;

	q->rows = json_array();
	rc = store_sql(db, take_prunable, q,
		"select " RUN_COLUMNS
		", exists (select 1 from segments where run = runs.id and dir <> '')"
		" from runs where" PRUNABLE " and id > ?4"
		" and case when ?7 then ended_ns < ?3 or (?5 >= 0 and id <= " LAST_PRUNABLE ")"
		" else ended_ns < ?3 and (?5 < 0 or id <= " LAST_PRUNABLE ") end"
		" order by id limit ?6",
		"tiiiiii", state, p->uid, p->ended_before_ns, p->after, p->keep, p->limit,
		(int64_t)p->either);
	more = (int64_t)json_array_size(q->rows) == p->limit;
	q->result = json_pack(
		"{so so}", "runs", q->rows, "next", more ? json_integer(q->last) : json_null());
	return rc == 0 && p->count_kept ? count_kept(q, db, state, more) : rc;
}

void record_prunable(struct store *s, const char *state_dir, const struct record_prunable *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(prunable_work, state_dir, arg);

	q->prunable = *what;
	q->done = done;
	store_add(s, &q->job);
}

/* ---- show ---- */

static json_t *parsed_or_null(const char *text)
{
	json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

	return value ? value : json_null();
}

static int take_shown_run(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	struct run run;
	int rc = read_run(stmt, &run);

	if (rc < 0)
		return rc;
	q->result = json_pack("{so so so}", "run", run_json(&run, q->state_dir), "spec",
		parsed_or_null(store_text(stmt, RUN_COLUMN_COUNT)), "checks",
		parsed_or_null(store_text(stmt, RUN_COLUMN_COUNT + 1)));
	return 0;
}

#define SEGMENT_COLUMNS                                                                            \
	"segment + 1, block + 1, position + 1, arm, state, reason, started_ns, ended_ns, summary," \
	" dir, artifacts, void"

static int take_segment(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	const char *summary = store_text(stmt, 8), *why = store_text(stmt, 11);
	char dir[PATH_MAX];
	json_t *row;

	if (run_dir_now(q->id, q->state_dir, store_text(stmt, 9), dir, sizeof(dir)) < 0)
		return -ENAMETOOLONG;
	q->bytes += 512 + strlen(summary) + strlen(store_text(stmt, 10));
	if (!q->whole &&
		((int64_t)json_array_size(q->rows) == q->limit ||
			(q->bytes > PAGE_BYTES && json_array_size(q->rows) > 0))) {
		json_object_set_new(q->result, "next", json_integer(q->last));
		return 0;
	}
	q->last = sqlite3_column_int64(stmt, 0);
	row = json_pack("{sI sI sI so so so so so so so so so}", "segment", (json_int_t)q->last,
		"block", (json_int_t)sqlite3_column_int64(stmt, 1), "position",
		(json_int_t)sqlite3_column_int64(stmt, 2), "arm", text_json(store_text(stmt, 3)),
		"state", text_json(store_text(stmt, 4)), "reason", text_json(store_text(stmt, 5)),
		"void", why[0] ? text_json(why) : json_null(), "started_at",
		clock_json(sqlite3_column_int64(stmt, 6)), "ended_at",
		clock_json(sqlite3_column_int64(stmt, 7)), "dir", text_json(dir), "summary",
		parsed_or_null(summary), "artifacts", parsed_or_null(store_text(stmt, 10)));
	json_array_append_new(q->rows, row);
	return 0;
}

static int take_transition(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	json_t *row = json_pack("{so so so}", "at", clock_json(sqlite3_column_int64(stmt, 0)),
		"state", text_json(store_text(stmt, 1)), "reason", text_json(store_text(stmt, 2)));

	json_array_append_new(q->rows, row);
	return 0;
}

/* A new array under key of the result, to be filled. */
static void begin_rows(struct query_job *q, const char *key)
{
	q->rows = json_array();
	json_object_set_new(q->result, key, q->rows);
}

static int show_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	int rc;

	rc = store_sql(db, take_shown_run, q,
		"select " RUN_COLUMNS ", spec, checks from runs where id = ?", "i", q->id);
	if (rc == 0 && q->result == NULL)
		rc = -ENOENT;
	if (rc < 0)
		return rc;
	begin_rows(q, "transitions");
	rc = store_sql(db, take_transition, q,
		"select at_ns, state, reason from transitions where run = ? order by rowid", "i",
		q->id);
	begin_rows(q, "segments");
	json_object_set_new(q->result, "next", json_null());
	if (rc == 0)
		rc = store_sql(db, take_segment, q,
			"select " SEGMENT_COLUMNS " from segments where run = ? and segment >= ?"
			" order by segment limit ?",
			"iii", q->id, q->after, q->limit + 1);
	return rc;
}

void record_show(struct store *s, const char *state_dir, int64_t id, int64_t after, int64_t limit,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(show_work, state_dir, arg);

	q->id = id;
	q->after = after;
	q->limit = limit;
	q->done = done;
	store_add(s, &q->job);
}

static int segments_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;

	q->rows = q->result = json_array();
	return store_sql(db, take_segment, q,
		"select " SEGMENT_COLUMNS " from segments where run = ? order by segment", "i",
		q->id);
}

void record_segments(struct store *s, const char *state_dir, int64_t id,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(segments_work, state_dir, arg);

	q->id = id;
	q->whole = true;
	q->done = done;
	store_add(s, &q->job);
}

/* ---- log lines ---- */

static int take_log_run(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;

	q->rows = json_array();
	q->result = json_pack("{sI so so so sI sI sb}", "id", (json_int_t)q->id, "name",
		text_json(store_text(stmt, 0)), "state", text_json(store_text(stmt, 1)), "lines",
		q->rows, "dropped", (json_int_t)sqlite3_column_int64(stmt, 2), "next",
		(json_int_t)q->after, "more", 0);
	return 0;
}

static int take_line(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	const bool of_gpt2d = sqlite3_column_type(stmt, 2) == SQLITE_NULL;
	json_t *line;

	if ((int64_t)json_array_size(q->rows) == q->limit) {
		json_object_set_new(q->result, "more", json_true());
		return 0;
	}
	line = json_pack("{sI so so ss so}", "n", (json_int_t)sqlite3_column_int64(stmt, 0), "at",
		clock_json(sqlite3_column_int64(stmt, 1)), "rank",
		of_gpt2d ? json_null() : json_integer(sqlite3_column_int64(stmt, 2)), "level",
		log_level_name((enum log_level)sqlite3_column_int(stmt, 3)), "message",
		text_json(store_text(stmt, 4)));
	json_object_set_new(q->result, "next", json_integer(sqlite3_column_int64(stmt, 0)));
	json_array_append_new(q->rows, line);
	return 0;
}

static int log_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	int rc = store_sql(db, take_log_run, q,
		"select name, state, log_dropped from runs where id = ?", "i", q->id);

	if (rc == 0 && q->result == NULL)
		rc = -ENOENT;
	if (rc == 0)
		rc = store_sql(db, take_line, q,
			"select n, at_ns, rank, level, message from log"
			" where run = ? and n > ? and level >= ? order by n limit ?",
			"iiii", q->id, q->after, (int64_t)q->level, q->limit + 1);
	return rc;
}

void record_log_read(struct store *s, int64_t run, int64_t after, int64_t limit,
	enum log_level level, void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(log_work, NULL, arg);

	q->id = run;
	q->after = after;
	q->limit = limit;
	q->level = level;
	q->done = done;
	store_add(s, &q->job);
}

/* ---- before store_start ---- */

static int take_whole_run(sqlite3_stmt *stmt, void *arg)
{
	struct record_runs *runs = arg;

	runs->run = memory_resized(runs->run, (runs->n + 1) * sizeof(*runs->run));
	runs->run[runs->n] = memory_zeroed(1, sizeof(struct run));
	return read_run(stmt, runs->run[runs->n++]);
}

int record_open_runs(struct store *s, struct record_runs *out)
{
	return store_sql(store_db(s), take_whole_run, out,
		"select " RUN_COLUMNS " from runs where state in"
		" ('queued', 'starting', 'running', 'finishing') order by priority desc, id",
		"");
}

int record_broken_runs(struct store *s, int64_t limit, struct record_runs *out)
{
	return store_sql(store_db(s), take_whole_run, out,
		"select " RUN_COLUMNS " from runs where state in"
		" ('failed', 'cancelled', 'interrupted') order by ended_ns desc limit ?",
		"i", limit);
}

static int take_count(sqlite3_stmt *stmt, void *arg)
{
	int64_t *counts = arg;
	enum run_state state;

	if (run_state_parse(store_text(stmt, 0), &state) < 0)
		return -EBADMSG;
	counts[state] = sqlite3_column_int64(stmt, 1);
	return 0;
}

int record_counts(struct store *s, int64_t counts[RUN_STATES])
{
	for (int i = 0; i < RUN_STATES; i++)
		counts[i] = 0;
	return store_sql(store_db(s), take_count, counts,
		"select state, count(*) from runs group by state", "");
}

static int take_integer(sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

int record_last_id(struct store *s, int64_t *out)
{
	int64_t id = 0;
	int rc = store_sql(store_db(s), take_integer, &id,
		"select seq from sqlite_sequence where name = 'runs'", "");

	if (rc == 0)
		*out = id;
	return rc;
}

int record_count_transitions(
	struct store *s, int64_t run, enum run_state state, const char *prefix, int64_t *n)
{
	return store_sql(store_db(s), take_integer, n,
		"select count(*) from transitions where run = ? and state = ?"
		" and substr(reason, 1, length(?)) = ?",
		"ittt", run, run_state_name(state), prefix, prefix);
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

static int take_was(sqlite3_stmt *stmt, void *arg)
{
	struct run *was = arg;

	was->id = sqlite3_column_int64(stmt, 0);
	snprintf(was->name, sizeof(was->name), "%s", store_text(stmt, 1));
	was->attempt = sqlite3_column_int64(stmt, 2);
	return 0;
}

int record_ended_now(struct store *s, int64_t id, struct run *was)
{
	struct run found = {0};
	int rc = store_sql(store_db(s), take_was, &found,
		"select id, name, attempt from runs where id = ? and " ENDED_STATES, "i", id);

	if (rc == 0 && found.id == 0)
		return -ENOENT;
	if (rc == 0)
		*was = found;
	return rc;
}

int record_last_change_now(struct store *s, int64_t before_ns, int64_t *out)
{
	int64_t at_ns = 0;
	int rc = store_sql(store_db(s), take_integer, &at_ns,
		"select coalesce(max(at_ns), 0) from"
		" (select at_ns from transitions order by rowid desc limit 1000) where at_ns < ?",
		"i", before_ns);

	if (rc == 0)
		*out = at_ns;
	return rc;
}

static int take_hold(sqlite3_stmt *stmt, void *arg)
{
	struct record_hold *h = arg;

	h->since_ns = sqlite3_column_int64(stmt, 0);
	h->uid = (uid_t)sqlite3_column_int64(stmt, 1);
	snprintf(h->reason, sizeof(h->reason), "%s", store_text(stmt, 2));
	return 0;
}

int record_hold_read(struct store *s, struct record_hold *hold)
{
	hold->since_ns = 0;
	return store_sql(store_db(s), take_hold, hold,
		"select since_ns, uid, reason from holds where what = ?", "t", hold->what);
}
