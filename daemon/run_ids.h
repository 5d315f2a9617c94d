/*
 * run_ids.h: the ids that folders in STATE_DIR/runs have. A database that was restored from an
 * older copy, or made anew, knows less than lies there.
 */
#ifndef GPT2D_RUN_IDS_H
#define GPT2D_RUN_IDS_H

#include <stddef.h>
#include <stdint.h>

struct run_ids {
	int64_t beyond; /* folders with an id above known */
	int64_t last;   /* the largest id of all; known where none is larger */
	char name[256]; /* a folder that has it; "" without */
};

/* Those beyond known, the last id that the database gave. 0 (also where there is no such folder),
 * or a negative errno. */
int run_ids_look(const char *state_dir, int64_t known, struct run_ids *out);

#endif
