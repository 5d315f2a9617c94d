#include "daemon/store/record_prune.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED "state in ('done', 'failed', 'cancelled', 'interrupted')"

struct change_job {
	struct store_job job;
	int64_t id;
	bool kept;
	void (*done)(void *arg, int rc);
	void *arg;
};

static void change_done(struct store_job *job, int rc)
{
	struct change_job *j = (struct change_job *)job;

	j->done(j->arg, rc);
	free(j);
}

static int change(struct store *s, int64_t id, bool kept,
	int (*work)(struct store_job *, struct sqlite3 *), void (*done)(void *arg, int rc),
	void *arg)
{
	struct change_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	j->job = (struct store_job){.kind = STORE_WRITE, .work = work, .done = change_done};
	j->id = id;
	j->kept = kept;
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
}

/* ---- keep ---- */

static int keep_work(struct store_job *job, struct sqlite3 *db)
{
	const struct change_job *j = (const struct change_job *)job;
	int rc = store_sql(db, NULL, NULL, "update runs set kept = ? where id = ?", "ii",
		(int64_t)j->kept, j->id);

	return rc == 0 && sqlite3_changes(db) == 0 ? -ENOENT : rc;
}

int record_keep(struct store *s, int64_t id, bool kept, void (*done)(void *arg, int rc), void *arg)
{
	return change(s, id, kept, keep_work, done, arg);
}

/* ---- delete ---- */

static int delete_rows(struct sqlite3 *db, int64_t id)
{
	static const char *const statements[] = {
		"delete from log where run = ?",
		"delete from transitions where run = ?",
		"delete from segments where run = ?",
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]) && rc == 0; i++)
		rc = store_sql(db, NULL, NULL, statements[i], "i", id);
	if (rc == 0)
		rc = store_sql(db, NULL, NULL, "delete from runs where id = ? and " ENDED, "i", id);
	return rc;
}

static int delete_work(struct store_job *job, struct sqlite3 *db)
{
	return delete_rows(db, ((const struct change_job *)job)->id);
}

int record_delete(struct store *s, int64_t id, void (*done)(void *arg, int rc), void *arg)
{
	return change(s, id, false, delete_work, done, arg);
}

/* ---- at the start ---- */

int record_delete_now(struct store *s, int64_t id)
{
	struct sqlite3 *db = store_db(s);
	int rc = store_errno(db, sqlite3_exec(db, "begin immediate", NULL, NULL, NULL));

	if (rc == 0)
		rc = delete_rows(db, id);
	if (rc == 0)
		rc = store_errno(db, sqlite3_exec(db, "commit", NULL, NULL, NULL));
	if (rc < 0)
		sqlite3_exec(db, "rollback", NULL, NULL, NULL);
	return rc;
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
		"select id, name, attempt from runs where id = ? and " ENDED, "i", id);

	if (rc == 0 && found.id == 0)
		return -ENOENT;
	if (rc == 0)
		*was = found;
	return rc;
}

static int take_integer(sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
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
