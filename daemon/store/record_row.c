#include "daemon/store/record_row.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "daemon/store/store_sql.h"
#include "proto/text.h"
#include "proto/spec/spec_table.h"
#include "proto/stats/verdict.h"

/* Mirrored blocks: those asked for, as many spare ones, and those that a suspect control adds. */
enum {
	SEGMENTS_MAX =
		SPEC_ARMS_MAX * 2 * (2 * SPEC_REPETITIONS_MAX + VERDICT_CONTROL_BLOCKS),
};

static const struct number {
	enum record_row_column column;
	const char *name;
	int64_t min, max;
} numbers[] = {
	{RECORD_ROW_ID, "id", 1, INT64_MAX},
	{RECORD_ROW_GPUS, "gpus", 0, SPEC_WORLD_MAX},
	{RECORD_ROW_SEGMENTS, "segments", 1, SEGMENTS_MAX},
	{RECORD_ROW_SEGMENTS_DONE, "segments_done", 0, SEGMENTS_MAX},
	{RECORD_ROW_ATTEMPT, "attempt", 1, INT32_MAX - 1},
	{RECORD_ROW_TIMEOUT_S, "timeout_s", 0, INT64_MAX},
	{RECORD_ROW_SUBMITTED_NS, "submitted_ns", 0, INT64_MAX},
	{RECORD_ROW_STARTED_NS, "started_ns", 0, INT64_MAX},
	{RECORD_ROW_ENDED_NS, "ended_ns", 0, INT64_MAX},
};

/* ---- what is wrong ---- */

/* Where there is something to be told: out may be NULL. */
struct fault {
	sqlite3_stmt *stmt;
	char *out;
};

static bool wrong(const struct fault *f, int column, const char *name, const char *allowed)
{
	char found[64];

	if (f->out == NULL)
		return true;
	snprintf(found, sizeof(found), "%s", store_text(f->stmt, column));
	text_clean(found);
	snprintf(f->out, RECORD_ROW_FAULT_BYTES, "runs, id %s: %s: \"%s\" is not allowed, %s",
		store_text(f->stmt, RECORD_ROW_ID), name, found, allowed);
	return true;
}

static bool number_wrong(const struct fault *f, const struct number *n)
{
	int64_t value = sqlite3_column_int64(f->stmt, n->column);
	char allowed[96];

	if (sqlite3_column_type(f->stmt, n->column) == SQLITE_INTEGER && value >= n->min &&
		value <= n->max)
		return false;
	snprintf(allowed, sizeof(allowed),
		n->max == INT64_MAX ? "a whole number from %" PRId64
				    : "a whole number from %" PRId64 " to %" PRId64,
		n->min, n->max);
	return wrong(f, n->column, n->name, allowed);
}

static bool state_wrong(const struct fault *f)
{
	enum run_state state;
	char allowed[128] = "one of";

	if (run_state_parse(store_text(f->stmt, RECORD_ROW_STATE), &state) == 0)
		return false;
	for (int i = 0; i < RUN_STATES; i++)
		snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "%s %s",
			i ? "," : "", run_state_name((enum run_state)i));
	return wrong(f, RECORD_ROW_STATE, "state", allowed);
}

static bool row_wrong(const struct fault *f)
{
	const char *name = spec_table_name_wrong(store_text(f->stmt, RECORD_ROW_NAME));
	char allowed[96];

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (number_wrong(f, &numbers[i]))
			return true;
	if (name != NULL)
		return wrong(f, RECORD_ROW_NAME, "name", name);
	if (sqlite3_column_int64(f->stmt, RECORD_ROW_SEGMENTS_DONE) >
		sqlite3_column_int64(f->stmt, RECORD_ROW_SEGMENTS)) {
		snprintf(allowed, sizeof(allowed), "the run has %s segments",
			store_text(f->stmt, RECORD_ROW_SEGMENTS));
		return wrong(f, RECORD_ROW_SEGMENTS_DONE, "segments_done", allowed);
	}
	return state_wrong(f);
}

static int check_row(sqlite3_stmt *stmt, void *arg)
{
	return row_wrong(&(struct fault){stmt, arg}) ? -EBADMSG : 0;
}

int record_row_check(sqlite3 *db, char out[RECORD_ROW_FAULT_BYTES])
{
	return store_sql(
		db, check_row, out, "select " RECORD_ROW_COLUMNS " from runs order by id", "");
}

/* ---- reading ---- */

static void copy_text(char *out, size_t out_bytes, sqlite3_stmt *stmt, int column)
{
	snprintf(out, out_bytes, "%s", store_text(stmt, column));
}

int record_row_read(sqlite3_stmt *stmt, struct run *run)
{
	if (row_wrong(&(struct fault){stmt, NULL}))
		return -EBADMSG;
	*run = (struct run){
		.id = sqlite3_column_int64(stmt, RECORD_ROW_ID),
		.uid = (uid_t)sqlite3_column_int64(stmt, RECORD_ROW_UID),
		.gpus = sqlite3_column_int64(stmt, RECORD_ROW_GPUS),
		.segments = sqlite3_column_int64(stmt, RECORD_ROW_SEGMENTS),
		.segments_done = sqlite3_column_int64(stmt, RECORD_ROW_SEGMENTS_DONE),
		.attempt = sqlite3_column_int64(stmt, RECORD_ROW_ATTEMPT),
		.restart = sqlite3_column_int(stmt, RECORD_ROW_RESTART) != 0,
		.timeout_s = sqlite3_column_int64(stmt, RECORD_ROW_TIMEOUT_S),
		.submitted_ns = sqlite3_column_int64(stmt, RECORD_ROW_SUBMITTED_NS),
		.started_ns = sqlite3_column_int64(stmt, RECORD_ROW_STARTED_NS),
		.ended_ns = sqlite3_column_int64(stmt, RECORD_ROW_ENDED_NS),
		.kept = sqlite3_column_int(stmt, RECORD_ROW_KEPT) != 0,
		.priority = sqlite3_column_int64(stmt, RECORD_ROW_PRIORITY),
		.rerun_of = sqlite3_column_int64(stmt, RECORD_ROW_RERUN_OF),
	};
	copy_text(run->name, sizeof(run->name), stmt, RECORD_ROW_NAME);
	copy_text(run->reason, sizeof(run->reason), stmt, RECORD_ROW_REASON);
	copy_text(run->spec_sha256, sizeof(run->spec_sha256), stmt, RECORD_ROW_SPEC_SHA256);
	text_clean(run->reason);
	text_clean(run->spec_sha256);
	return run_state_parse(store_text(stmt, RECORD_ROW_STATE), &run->state) < 0 ? -EBADMSG : 0;
}
