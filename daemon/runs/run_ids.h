/*
 * run_ids.h: the ids that folders in STATE_DIR/runs have. A database that was restored from an
 * older copy, or made anew, knows less than lies there.
 */
#ifndef GPT2D_DAEMON_RUNS_RUN_IDS_H
#define GPT2D_DAEMON_RUNS_RUN_IDS_H

#include <stddef.h>
#include <stdint.h>

struct run_ids {
	int64_t beyond; /* folders with an id above known */
	int64_t last;   /* the largest id of all; known where none is larger */
	char name[256]; /* a folder that has it; "" without */

	int64_t strays;      /* folders with an id up to known that is no row's */
	int64_t last_stray;  /* the largest id of those */
	char stray_name[256]; /* a folder that has it; "" without */
};

/* The ids of the database's rows, ascending. */
struct run_ids_rows {
	int64_t *id;
	size_t n;
};

/*
 * known: the last id that the database gave. rows: NULL where they are not known, then there are no
 * strays. 0 (also where there is no such folder), or a negative errno.
 */
int run_ids_look(const char *state_dir, int64_t known, const struct run_ids_rows *rows,
	struct run_ids *out);

#endif
