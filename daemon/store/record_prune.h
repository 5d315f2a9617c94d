/* record_prune.h: which ended runs may go, and their rows' end. What becomes of files: prune.h. */
#ifndef GPT2D_DAEMON_STORE_RECORD_PRUNE_H
#define GPT2D_DAEMON_STORE_RECORD_PRUNE_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/store/run.h"
#include "daemon/store/store.h"

struct record_prunable {
	int64_t keep;            /* the newest of them that stay; -1: none for that */
	int64_t ended_before_ns; /* UTC; INT64_MAX: whenever */
	int64_t uid;             /* -1: everybody's */
	int state;               /* enum run_state, or -1: all ended ones */
	int64_t after, limit;    /* ids above after, ascending */
	bool count_kept;         /* tell how many others are as wanted and stay */
};

/*
 * {runs: [run, with begun: whether it had a folder], next, kept: {marked, newest}}: ended, not kept
 * by their owner, and as wanted; and of the ids of this page, after them where it is the last, how
 * many are as wanted but kept by their owner, or by keep. The callback owns result.
 */
int record_prunable(struct store *s, const char *state_dir, const struct record_prunable *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

/* Mark a run that has ended, or not, as kept: rc -ENOENT: no such run. */
int record_keep(struct store *s, int64_t id, bool kept, void (*done)(void *arg, int rc), void *arg);

/* All rows of a run that has ended go. */
int record_delete(struct store *s, int64_t id, void (*done)(void *arg, int rc), void *arg);

/*
 * Before store_start: record_delete at once; name and attempt of the run come in *was, -ENOENT:
 * none.
 */
int record_ended_now(struct store *s, int64_t id, struct run *was);
int record_delete_now(struct store *s, int64_t id);
/* Likewise: when a run was last changed before before_ns, by the newest changes; 0: not known. */
int record_last_change_now(struct store *s, int64_t before_ns, int64_t *out);

#endif
