#include "daemon/store/record.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "daemon/store/record_prune.h"
#include "daemon/store/record_row.h"
#include "proto/text.h"
#include "proto/json_text.h"

enum {
	PAGE_BYTES = 1 << 20, /* a page of runs or segments ends here, and others have their turn */
	RUN_BYTES = 400,      /* what one takes at least; a page of the standard limit is whole */
};

/* ---- one job for all questions ---- */

struct query_job {
	struct store_job job;
	int (*work)(struct store_job *job, struct sqlite3 *db);
	char fault[RECORD_ROW_FAULT_BYTES]; /* the row behind -EBADMSG, or empty */
	int64_t id;
	struct record_list list;
	struct record_prunable prunable;
	int64_t after, limit;
	char *state_dir;
	json_t *result;
	char *text, *also, *except;
	json_t *rows; /* borrowed: the array being filled */
	size_t bytes;
	int64_t last;
	void (*done_text)(void *arg, int rc, const char *text);
	void (*done)(void *arg, int rc, json_t *result);
	void *arg;
};

static void query_free(struct query_job *q)
{
	free(q->text);
	free(q->also);
	free(q->except);
	free(q->state_dir);
	free(q);
}

static int query_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	int rc = q->work(job, db);

	if (rc == -EBADMSG && record_row_check(db, q->fault) != -EBADMSG)
		q->fault[0] = '\0';
	return rc;
}

static void query_done(struct store_job *job, int rc)
{
	struct query_job *q = (struct query_job *)job;

	if (q->fault[0] != '\0')
		log_write(LOG_ERROR, "gpt2d.db: %s", q->fault);
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
	struct query_job *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	q->job = (struct store_job){.kind = STORE_READ, .work = query_work, .done = query_done};
	q->work = work;
	q->arg = arg;
	if (state_dir != NULL && (q->state_dir = strdup(state_dir)) == NULL) {
		free(q);
		return NULL;
	}
	return q;
}

/* ---- spec ---- */

static int take_text(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;

	q->text = strdup(store_text(stmt, 0));
	return q->text ? 0 : -ENOMEM;
}

static int spec_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	int rc = store_sql(db, take_text, q, "select spec from runs where id = ?", "i", q->id);

	return rc == 0 && q->text == NULL ? -ENOENT : rc;
}

int record_spec(struct store *s, int64_t id, void (*done)(void *arg, int rc, const char *canonical),
	void *arg)
{
	struct query_job *q = query_create(spec_work, NULL, arg);

	if (q == NULL)
		return -ENOMEM;
	q->id = id;
	q->done_text = done;
	store_add(s, &q->job);
	return 0;
}

/* ---- list ---- */

static int take_run(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	struct run run;
	int rc = record_row_read(stmt, &run);

	if (rc < 0)
		return rc;
	q->bytes += RUN_BYTES;
	if (q->bytes > PAGE_BYTES)
		return 0;
	q->last = run.id;
	return json_array_append_new(q->rows, run_json(&run, q->state_dir)) < 0 ? -ENOMEM : 0;
}

#define LIST(compare, order)                                                                       \
	"select " RECORD_ROW_COLUMNS " from runs where id " compare " ?1"                          \
	" and (?2 is null or (state = ?2 and id not in (select value from json_each(?5)))"         \
	" or id in (select value from json_each(?4))) order by id " order " limit ?3"
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
	rc = store_sql(db, take_run, q, sql, "ititt", after, state, l->limit,
		q->also ? q->also : "[]", q->except ? q->except : "[]");
	more = (int64_t)json_array_size(q->rows) == l->limit || q->bytes > PAGE_BYTES;
	q->result = json_pack(
		"{so so}", "runs", q->rows, "next", more ? json_integer(q->last) : json_null());
	return rc == 0 && q->result == NULL ? -ENOMEM : rc;
}

int record_list(struct store *s, const char *state_dir, const struct record_list *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(list_work, state_dir, arg);

	if (q == NULL)
		return -ENOMEM;
	q->list = *what;
	q->also = what->also ? strdup(what->also) : NULL;
	q->except = what->except ? strdup(what->except) : NULL;
	if ((what->also && !q->also) || (what->except && !q->except)) {
		query_free(q);
		return -ENOMEM;
	}
	q->done = done;
	store_add(s, &q->job);
	return 0;
}

/* ---- runs that may go ---- */

#define ENDED                                                                                      \
	" state in ('done', 'failed', 'cancelled', 'interrupted')"                                 \
	" and (?1 is null or state = ?1) and (?2 < 0 or uid = ?2)"
#define PRUNABLE ENDED " and kept = 0"
#define LAST_PRUNABLE                                                                              \
	"(select id from runs where" PRUNABLE " order by id desc limit 1 offset max(?5, 0))"

/* As take_run; and whether it ever had a folder. */
static int take_prunable(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	const size_t n = json_array_size(q->rows);
	int rc = take_run(stmt, q);

	if (rc == 0 && json_array_size(q->rows) > n)
		json_object_set_new(json_array_get(q->rows, n), "begun",
			json_boolean(sqlite3_column_int(stmt, RECORD_ROW_COUNT)));
	return rc;
}

static int take_kept(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	json_t *kept = json_pack("{sI sI}", "marked", (json_int_t)sqlite3_column_int64(stmt, 0),
		"newest", (json_int_t)sqlite3_column_int64(stmt, 1));

	return json_object_set_new(q->result, "kept", kept) < 0 ? -ENOMEM : 0;
}

/* Between the ids of a page, or after them where it is the last one. */
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
		"select " RECORD_ROW_COLUMNS
		", exists (select 1 from segments where run = runs.id and dir <> '')"
		" from runs where" PRUNABLE
		" and ended_ns < ?3 and id > ?4"
		" and (?5 < 0 or id <= " LAST_PRUNABLE ") order by id limit ?6",
		"tiiiii", state, p->uid, p->ended_before_ns, p->after, p->keep, p->limit);
	more = (int64_t)json_array_size(q->rows) == p->limit;
	q->result = json_pack(
		"{so so}", "runs", q->rows, "next", more ? json_integer(q->last) : json_null());
	if (rc == 0 && q->result == NULL)
		return -ENOMEM;
	return rc == 0 && p->count_kept ? count_kept(q, db, state, more) : rc;
}

int record_prunable(struct store *s, const char *state_dir, const struct record_prunable *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(prunable_work, state_dir, arg);

	if (q == NULL)
		return -ENOMEM;
	q->prunable = *what;
	q->done = done;
	store_add(s, &q->job);
	return 0;
}

/* ---- show ---- */

static json_t *parsed_or_null(const char *text)
{
	json_t *value = json_text_value(text);

	return value ? value : json_null();
}

static int take_shown_run(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	struct run run;
	int rc = record_row_read(stmt, &run);

	if (rc < 0)
		return rc;
	q->result = json_pack("{so so so}", "run", run_json(&run, q->state_dir), "spec",
		parsed_or_null(store_text(stmt, RECORD_ROW_COUNT)), "checks",
		parsed_or_null(store_text(stmt, RECORD_ROW_COUNT + 1)));
	return q->result ? 0 : -ENOMEM;
}

static int take_segment(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	const char *summary = store_text(stmt, 8);
	char dir[PATH_MAX];
	json_t *row;

	if (run_dir_now(q->id, q->state_dir, store_text(stmt, 9), dir, sizeof(dir)) < 0)
		return -ENAMETOOLONG;
	q->bytes += 512 + strlen(summary) + strlen(store_text(stmt, 10));
	if ((int64_t)json_array_size(q->rows) == q->limit ||
		(q->bytes > PAGE_BYTES && json_array_size(q->rows) > 0)) {
		json_object_set_new(q->result, "next", json_integer(q->last));
		return 0;
	}
	q->last = sqlite3_column_int64(stmt, 0);
	row = json_pack("{sI sI sI so so so so so so so so}", "segment", (json_int_t)q->last,
		"block", (json_int_t)sqlite3_column_int64(stmt, 1), "position",
		(json_int_t)sqlite3_column_int64(stmt, 2), "arm", text_json(store_text(stmt, 3)),
		"state", text_json(store_text(stmt, 4)), "reason", text_json(store_text(stmt, 5)),
		"started_at", clock_json(sqlite3_column_int64(stmt, 6)), "ended_at",
		clock_json(sqlite3_column_int64(stmt, 7)), "dir", text_json(dir), "summary",
		parsed_or_null(summary), "artifacts",
		parsed_or_null(store_text(stmt, 10)));
	return json_array_append_new(q->rows, row) < 0 ? -ENOMEM : 0;
}

static int take_transition(sqlite3_stmt *stmt, void *arg)
{
	struct query_job *q = arg;
	json_t *row = json_pack("{so so so}", "at", clock_json(sqlite3_column_int64(stmt, 0)),
		"state", text_json(store_text(stmt, 1)), "reason", text_json(store_text(stmt, 2)));

	return json_array_append_new(q->rows, row) < 0 ? -ENOMEM : 0;
}

/* A fresh array under key of the result, to be filled. */
static int begin_rows(struct query_job *q, const char *key)
{
	q->rows = json_array();
	return json_object_set_new(q->result, key, q->rows) < 0 ? -ENOMEM : 0;
}

static int show_work(struct store_job *job, struct sqlite3 *db)
{
	struct query_job *q = (struct query_job *)job;
	int rc;

	rc = store_sql(db, take_shown_run, q,
		"select " RECORD_ROW_COLUMNS ", spec, checks from runs where id = ?", "i", q->id);
	if (rc == 0 && q->result == NULL)
		rc = -ENOENT;
	if (rc == 0)
		rc = begin_rows(q, "transitions");
	if (rc == 0)
		rc = store_sql(db, take_transition, q,
			"select at_ns, state, reason from transitions where run = ? order by rowid",
			"i", q->id);
	if (rc == 0)
		rc = begin_rows(q, "segments");
	if (rc == 0 && json_object_set_new(q->result, "next", json_null()) < 0)
		rc = -ENOMEM;
	if (rc == 0)
		rc = store_sql(db, take_segment, q,
			"select segment, block, position, arm, state, reason, started_ns, ended_ns,"
			" summary, dir, artifacts from segments where run = ? and segment > ?"
			" order by segment limit ?",
			"iii", q->id, q->after, q->limit + 1);
	return rc;
}

int record_show(struct store *s, const char *state_dir, int64_t id, int64_t after, int64_t limit,
	void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct query_job *q = query_create(show_work, state_dir, arg);

	if (q == NULL)
		return -ENOMEM;
	q->id = id;
	q->after = after;
	q->limit = limit;
	q->done = done;
	store_add(s, &q->job);
	return 0;
}

/* ---- at the start ---- */

struct each_open {
	int (*each)(struct run *run, void *arg);
	void *arg;
};

static int take_open(sqlite3_stmt *stmt, void *arg)
{
	const struct each_open *e = arg;
	struct run *run = malloc(sizeof(*run));
	int rc = run ? record_row_read(stmt, run) : -ENOMEM;

	if (rc < 0) {
		free(run);
		return rc;
	}
	return e->each(run, e->arg);
}

int record_each_open(struct store *s, int (*each)(struct run *run, void *arg), void *arg)
{
	struct each_open e = {each, arg};

	return store_sql(store_db(s), take_open, &e,
		"select " RECORD_ROW_COLUMNS " from runs where state in"
		" ('queued', 'starting', 'running', 'finishing') order by priority desc, id",
		"");
}

int record_each_broken(
	struct store *s, int64_t limit, int (*each)(struct run *run, void *arg), void *arg)
{
	struct each_open e = {each, arg};

	return store_sql(store_db(s), take_open, &e,
		"select " RECORD_ROW_COLUMNS " from runs where state in"
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
