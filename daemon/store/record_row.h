/*
 * record_row.h: rows of runs in the store: read, and told from such as gpt2d cannot have written.
 * Somebody may have changed one; sums are made of its numbers, and a path of its name.
 */
#ifndef GPT2D_DAEMON_STORE_RECORD_ROW_H
#define GPT2D_DAEMON_STORE_RECORD_ROW_H

#include <stddef.h>

#include "daemon/store/run.h"

struct sqlite3;
struct sqlite3_stmt;

#define RECORD_ROW_COLUMNS                                                                         \
	"id, name, uid, state, reason, spec_sha256, gpus, segments, segments_done, attempt,"       \
	" restart, timeout_s, submitted_ns, started_ns, ended_ns, kept, priority,"                 \
	" rerun_of"
enum record_row_column {
	RECORD_ROW_ID,
	RECORD_ROW_NAME,
	RECORD_ROW_UID,
	RECORD_ROW_STATE,
	RECORD_ROW_REASON,
	RECORD_ROW_SPEC_SHA256,
	RECORD_ROW_GPUS,
	RECORD_ROW_SEGMENTS,
	RECORD_ROW_SEGMENTS_DONE,
	RECORD_ROW_ATTEMPT,
	RECORD_ROW_RESTART,
	RECORD_ROW_TIMEOUT_S,
	RECORD_ROW_SUBMITTED_NS,
	RECORD_ROW_STARTED_NS,
	RECORD_ROW_ENDED_NS,
	RECORD_ROW_KEPT,
	RECORD_ROW_PRIORITY,
	RECORD_ROW_RERUN_OF,
	RECORD_ROW_COUNT /* where a query may have more columns */
};

/* A row that begins with RECORD_ROW_COLUMNS: 0, or -EBADMSG for one that cannot be. */
int record_row_read(struct sqlite3_stmt *stmt, struct run *run);

enum { RECORD_ROW_FAULT_BYTES = 400 };
/*
 * Whether all rows of runs can be: 0, or -EBADMSG with the first that cannot in out: table, row and
 * column, what is found and what is allowed; another negative errno when they cannot be read.
 */
int record_row_check(struct sqlite3 *db, char out[RECORD_ROW_FAULT_BYTES]);

#endif
