/*
 * retention.h: which runs the settings retain_runs and retain_days have removed next. By age only
 * while the wall clock is believed (clock.h): one that has jumped ahead makes all runs look old.
 * None while STATE_DIR/runs is another folder than it was at the start, and at no time one whose
 * folder is not there: a disk that was unmounted leaves an empty folder, in which new runs train,
 * and runs that were on it are not to be forgotten.
 */
#ifndef GPT2D_DAEMON_RUNS_RETENTION_H
#define GPT2D_DAEMON_RUNS_RETENTION_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "daemon/config/clock.h"
#include "daemon/store/record_prune.h"

struct settings;

struct retention {
	struct clock_trust clock;
	bool said;        /* that it is not believed */
	char runs[PATH_MAX];
	struct stat at_start; /* of runs; st_ino 0: it could not be looked at */
	bool runs_moved;      /* it is not that one any more, which has been said */
	bool by_age;      /* what was selected last was */
	bool by_age_next; /* and so it is to be next */
	int64_t after;    /* ids above it; 0: all */
	char left[PATH_MAX], left_said[PATH_MAX]; /* the last folder that is not there; empty */
};

/* last_ns: UTC, by retention_last_now; 0: not known. state_dir has its folder of runs by now. */
void retention_init(struct retention *r, const char *state_dir, int64_t last_ns);
/*
 * Before store_start: of the newest changes of runs, the last one that is a day old at least, which
 * is what the clock is compared with at the start; 0: there is none. 0, or a negative errno.
 */
int retention_last_now(struct store *store, int64_t *last_ns);
/* At least once a minute: looks at the clock and at runs, and says what there is to say of them. */
void retention_look(struct retention *r, const struct settings *s);
/* What may go now, as far as the settings say it: false: nothing. After retention_look. */
bool retention_select(
	struct retention *r, const struct settings *s, struct record_prunable *what);
/* A run of those stays, as its folder, dir, is not there. */
void retention_leave(struct retention *r, const char *dir);
/* They are done with, up to the id reached; 0: all. Whether to select again soon. */
bool retention_again(struct retention *r, int64_t reached);

#endif
