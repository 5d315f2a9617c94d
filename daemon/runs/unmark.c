#include "daemon/runs/unmark.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/store/record_row.h"
#include "daemon/store/run.h"
#include "proto/state_files.h"
#include "daemon/store/store.h"
#include "proto/artifact.h"

enum { DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

struct looking {
	struct sqlite3 *db;
	const char *state_dir;
	int runs; /* state_dir/runs, which may be a link itself */
	int64_t until_ns;
	const struct run *run;
	char own[PATH_MAX]; /* its folder */
	bool own_stays;     /* it is also the one of a segment that is done, or not settled */
	int64_t looked_at, passed_over;
};

/* A folder below at, one name after another; -ENOENT also where a link or a file is in the way. */
static int open_below(int at, const char *path)
{
	char name[NAME_MAX + 1];
	const size_t n = strcspn(path, "/");
	int fd, rc;

	if (n == 0 || n > NAME_MAX)
		return -ENOENT;
	memcpy(name, path, n);
	name[n] = '\0';
	fd = openat(at, name, DIR_FLAGS);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR ? -ENOENT : -errno;
	if (path[n] == '\0')
		return fd;
	rc = open_below(fd, path + n + 1);
	close(fd);
	return rc;
}

/* 1: one was there and is gone, durably; 0: none was; else a negative errno. */
static int remove_marker(int runs, const char *path)
{
	int fd = open_below(runs, path), rc = 0;
	struct stat st;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (fstatat(fd, ARTIFACT_COMPLETE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		rc = errno == ENOENT ? 0 : -errno;
	else if (!S_ISDIR(st.st_mode))
		rc = unlinkat(fd, ARTIFACT_COMPLETE, 0) < 0 || fsync(fd) < 0 ? -errno : 1;
	close(fd);
	return rc;
}

static void look_at(struct looking *l, const char *dir, const char *what)
{
	static const char between[] = "/" STATE_RUNS "/";
	const size_t n = strlen(l->state_dir), m = sizeof(between) - 1;
	int rc;

	/* a row may have been changed: nothing elsewhere is looked at */
	if (strncmp(dir, l->state_dir, n) != 0 || strncmp(dir + n, between, m) != 0)
		return;
	l->looked_at++;
	rc = remove_marker(l->runs, dir + n + m);
	if (rc > 0)
		log_write(LOG_WARNING,
			"run %lld: %s/" ARTIFACT_COMPLETE " said that %s is whole,"
			" which is not done: removed",
			(long long)l->run->id, dir, what);
	else if (rc < 0)
		log_write(LOG_ERROR,
			"run %lld: %s/" ARTIFACT_COMPLETE ": of what is not done, but"
			" cannot be looked for and removed: %s; remove it, or start gpt2d again"
			" when that is mended",
			(long long)l->run->id, dir, strerror(-rc));
}

static int take_segment(struct sqlite3_stmt *stmt, void *arg)
{
	struct looking *l = arg;
	const char *state = store_text(stmt, 0);
	char dir[PATH_MAX];
	bool own;

	if (run_dir_now(l->run->id, l->state_dir, store_text(stmt, 1), dir, sizeof(dir)) < 0)
		return 0;
	own = strcmp(dir, l->own) == 0;
	if (strcmp(state, "done") == 0 || strcmp(state, "trained") == 0 ||
		strcmp(state, "training") == 0)
		l->own_stays |= own;
	else if (!own)
		look_at(l, dir, "this segment");
	return 0;
}

/* The folder of this attempt and of the one before, as sweep.h's are: both are told as no run. */
static void look_at_own(struct looking *l)
{
	struct run attempt = *l->run;

	if (!l->own_stays)
		look_at(l, l->own, "this run");
	attempt.attempt--;
	if (attempt.attempt > 0 && run_dir(&attempt, l->state_dir, l->own, sizeof(l->own)) == 0)
		look_at(l, l->own, "this attempt");
}

static int take_run(struct sqlite3_stmt *stmt, void *arg)
{
	struct looking *l = arg;
	struct run run;
	int rc;

	if (clock_mono_ns() > l->until_ns) {
		l->passed_over++;
		return 0;
	}
	/* one that cannot be is told where it is asked for */
	if (record_row_read(stmt, &run) < 0 ||
		run_dir(&run, l->state_dir, l->own, sizeof(l->own)) < 0)
		return 0;
	l->run = &run;
	l->own_stays = false;
	rc = store_sql(l->db, take_segment, l,
		"select state, dir from segments where run = ?1 and dir <> ''"
		" and (state <> 'done' or ?2 = 1)",
		"ii", run.id, run.segments);
	if (rc == 0)
		look_at_own(l);
	l->run = NULL;
	return rc;
}

int unmark_ended(struct sqlite3 *db, const char *state_dir)
{
	struct looking l = {.db = db, .state_dir = state_dir};
	char path[PATH_MAX];
	int rc;

	if (snprintf(path, sizeof(path), "%s/" STATE_RUNS, state_dir) >= PATH_MAX)
		return 0;
	l.runs = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l.runs < 0)
		return 0; /* whatever is wrong with it is told by who needs it */
	l.until_ns = clock_mono_ns() + (int64_t)UNMARK_MS_MAX * 1000000;
	rc = store_sql(db, take_run, &l,
		"select " RECORD_ROW_COLUMNS " from runs where state in"
		" ('failed', 'cancelled', 'interrupted') order by ended_ns desc limit ?",
		"i", (int64_t)UNMARK_RUNS_MAX);
	close(l.runs);
	if (l.passed_over > 0)
		log_write(LOG_WARNING,
			"%s: is slow: %lld folders of runs that are not done were"
			" looked at for a completion marker, those of %lld more were not",
			path, (long long)l.looked_at, (long long)l.passed_over);
	/* damaged pages: as with the other runs that have ended, the start does not wait */
	return rc == -EBADMSG ? 0 : rc;
}
