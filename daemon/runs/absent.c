#include "daemon/runs/absent.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/record_row.h"
#include "daemon/store/run.h"
#include "daemon/store/store.h"

enum {
	LOOKED_AT_MAX = 100,
	AWAY_MIN = 3, /* one or two may have been removed by hand */
};

struct looking {
	const char *state_dir;
	struct absent *seen;
};

static int look_for_folder(struct sqlite3_stmt *stmt, void *arg)
{
	const struct looking *l = arg;
	struct absent *seen = l->seen;
	char dir[PATH_MAX];
	struct run run;
	int rc = record_row_read(stmt, &run);

	if (rc < 0 || run_dir(&run, l->state_dir, dir, sizeof(dir)) < 0)
		return rc;
	seen->looked_at++;
	if (access(dir, F_OK) < 0 && errno == ENOENT && seen->absent++ == 0)
		strcpy(seen->last, dir);
	return 0;
}

int absent_look(struct sqlite3 *db, const char *state_dir, struct absent *out)
{
	struct absent seen = {0};
	struct looking l = {state_dir, &seen};
	int rc = store_sql(db, look_for_folder, &l,
		"select " RECORD_ROW_COLUMNS " from runs where state = 'done'"
		" order by id desc limit ?",
		"i", (int64_t)LOOKED_AT_MAX);

	seen.away = seen.looked_at >= AWAY_MIN && seen.absent == seen.looked_at;
	if (rc == 0)
		*out = seen;
	return rc;
}
