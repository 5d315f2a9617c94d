#include "daemon/store/record_log.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "proto/host/clock.h"
#include "proto/text.h"

/* ---- add ---- */

struct add_job {
	struct store_job job;
	struct record_log_lines *lines;
	void (*done)(void *arg, int rc);
	void *arg;
};

static int count_dropped(struct sqlite3 *db, int64_t run, int64_t n)
{
	if (n == 0)
		return 0;
	return store_sql(db, NULL, NULL,
		"update runs set log_dropped = log_dropped + ? where id = ?", "ii", n, run);
}

/* The oldest beyond the bound go. */
static int trim(struct sqlite3 *db, int64_t run)
{
	int rc = store_sql(db, NULL, NULL,
		"delete from log where run = ?1 and n <= (select n from log where run = ?1"
		" order by n desc limit 1 offset ?2)",
		"ii", run, (int64_t)RECORD_LOG_LINES);

	return rc < 0 ? rc : count_dropped(db, run, sqlite3_changes(db));
}

static int add_line(struct sqlite3 *db, const struct record_log_line *line)
{
	int rc = store_sql(db, NULL, NULL,
		"insert into log(run, at_ns, rank, level, message)"
		" select id, ?2, nullif(?3, -1), ?4, ?5 from runs where id = ?1",
		"iiiit", line->run, line->at_ns, (int64_t)line->rank, (int64_t)line->level,
		line->message);

	return rc < 0 ? rc : count_dropped(db, line->run, line->dropped);
}

static int add_work(struct store_job *job, struct sqlite3 *db)
{
	const struct add_job *j = (const struct add_job *)job;
	const struct record_log_line *line, *next;
	int rc = 0;

	TAILQ_FOREACH(line, j->lines, link) {
		next = TAILQ_NEXT(line, link);
		rc = add_line(db, line);
		if (rc == 0 && (next == NULL || next->run != line->run))
			rc = trim(db, line->run);
		if (rc < 0)
			break;
	}
	return rc;
}

static void add_done(struct store_job *job, int rc)
{
	struct add_job *j = (struct add_job *)job;

	j->done(j->arg, rc);
	free(j);
}

int record_log_add(
	struct store *s, struct record_log_lines *lines, void (*done)(void *arg, int rc), void *arg)
{
	struct add_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	j->job = (struct store_job){
		.kind = STORE_WRITE, .must = true, .work = add_work, .done = add_done};
	j->lines = lines;
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}

/* ---- read ---- */

struct read_job {
	struct store_job job;
	int64_t run, after, limit;
	enum log_level level;
	json_t *result, *lines;
	bool more;
	void (*done)(void *arg, int rc, json_t *result);
	void *arg;
};

static int take_run(sqlite3_stmt *stmt, void *arg)
{
	struct read_job *j = arg;

	j->lines = json_array();
	j->result = json_pack("{sI so so so sI sI sb}", "id", (json_int_t)j->run, "name",
		text_json(store_text(stmt, 0)), "state", text_json(store_text(stmt, 1)), "lines",
		j->lines, "dropped", (json_int_t)sqlite3_column_int64(stmt, 2), "next",
		(json_int_t)j->after, "more", 0);
	return j->result ? 0 : -ENOMEM;
}

static int take_line(sqlite3_stmt *stmt, void *arg)
{
	struct read_job *j = arg;
	const bool of_gpt2d = sqlite3_column_type(stmt, 2) == SQLITE_NULL;
	json_t *line;

	if ((int64_t)json_array_size(j->lines) == j->limit) {
		j->more = true;
		return 0;
	}
	line = json_pack("{sI so so ss so}", "n", (json_int_t)sqlite3_column_int64(stmt, 0), "at",
		clock_json(sqlite3_column_int64(stmt, 1)), "rank",
		of_gpt2d ? json_null() : json_integer(sqlite3_column_int64(stmt, 2)), "level",
		log_level_name((enum log_level)sqlite3_column_int(stmt, 3)), "message",
		text_json(store_text(stmt, 4)));
	json_object_set_new(j->result, "next", json_integer(sqlite3_column_int64(stmt, 0)));
	return json_array_append_new(j->lines, line) < 0 ? -ENOMEM : 0;
}

static int read_work(struct store_job *job, struct sqlite3 *db)
{
	struct read_job *j = (struct read_job *)job;
	int rc = store_sql(db, take_run, j,
		"select name, state, log_dropped from runs where id = ?", "i", j->run);

	if (rc == 0 && j->result == NULL)
		rc = -ENOENT;
	if (rc == 0)
		rc = store_sql(db, take_line, j,
			"select n, at_ns, rank, level, message from log"
			" where run = ? and n > ? and level >= ? order by n limit ?",
			"iiii", j->run, j->after, (int64_t)j->level, j->limit + 1);
	if (rc == 0)
		json_object_set_new(j->result, "more", json_boolean(j->more));
	return rc;
}

static void read_done(struct store_job *job, int rc)
{
	struct read_job *j = (struct read_job *)job;

	if (rc < 0) {
		json_decref(j->result);
		j->result = NULL;
	}
	j->done(j->arg, rc, j->result);
	free(j);
}

int record_log_read(struct store *s, int64_t run, int64_t after, int64_t limit,
	enum log_level level, void (*done)(void *arg, int rc, json_t *result), void *arg)
{
	struct read_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	j->job = (struct store_job){.kind = STORE_READ, .work = read_work, .done = read_done};
	j->run = run;
	j->after = after;
	j->limit = limit;
	j->level = level;
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}
