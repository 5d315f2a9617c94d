#include "daemon/store/record_hold.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

struct hold_job {
	struct store_job job;
	struct record_hold hold;
	void (*done)(void *arg, int rc);
	void *arg;
};

static int hold_work(struct store_job *job, struct sqlite3 *db)
{
	const struct record_hold *h = &((const struct hold_job *)job)->hold;

	if (h->since_ns == 0)
		return store_sql(db, NULL, NULL, "delete from holds where what = ?", "t", h->what);
	return store_sql(db, NULL, NULL, "insert or replace into holds values(?, ?, ?, ?)", "tiit",
		h->what, h->since_ns, (int64_t)h->uid, h->reason);
}

static void hold_done(struct store_job *job, int rc)
{
	struct hold_job *j = (struct hold_job *)job;

	j->done(j->arg, rc);
	free(j);
}

int record_hold_set(
	struct store *s, const struct record_hold *hold, void (*done)(void *arg, int rc), void *arg)
{
	struct hold_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return -ENOMEM;
	j->job = (struct store_job){.kind = STORE_WRITE, .work = hold_work, .done = hold_done};
	j->hold = *hold;
	j->done = done;
	j->arg = arg;
	store_add(s, &j->job);
	return 0;
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
