#include "daemon/store/store.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "daemon/store/database.h"
#include "daemon/store/failure.h"
#include "daemon/config/reserve.h"
#include "daemon/store/stuck.h"
#include "daemon/store/wal_held.h"
#include "proto/host/thread.h"

struct jobs {
	struct store_job *first, **end;
};

struct store {
	struct database db; /* of the thread, once it is started */
	pthread_t thread;
	bool started;
	int fd; /* eventfd: something is complete, or failing began or ended */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake;
	struct jobs waiting, complete;
	bool closing, failing;
	bool reserve_gone; /* store_reserve_gone has not told it yet */
	struct store_failure failure;
	int64_t undelivered;
	int lost; /* writes given up at the close */

	struct wal_watch wal; /* has a lock of its own */
	struct stuck_watch stuck;

	/* of the thread */
	bool damaged;     /* no try, and no success of one, ends that */
	bool unsure;      /* a commit failed of which the disk may hold all */
	int64_t probe_ns; /* monotonic: when it is next tried whether it still fails */
};

static void init_lock(struct store *s)
{
	s->waiting.end = &s->waiting.first;
	s->complete.end = &s->complete.first;
	pthread_mutex_init(&s->lock, NULL);
	thread_condition_init(&s->wake);
	wal_watch_init(&s->wal);
}

int store_open(const char *path, struct store **out, char *error, size_t error_bytes)
{
	struct store *s = calloc(1, sizeof(*s));
	int rc;

	snprintf(error, error_bytes, "out of memory");
	if (s == NULL)
		return -ENOMEM;
	init_lock(s);
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "eventfd: %s", strerror(errno));
	} else {
		rc = database_open(&s->db, path, error, error_bytes);
	}
	if (rc < 0) {
		store_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

struct sqlite3 *store_db(struct store *s)
{
	return s->db.handle;
}

const char *store_path(const struct store *s)
{
	return s->db.path;
}

struct wal_watch *store_wal(struct store *s)
{
	return &s->wal;
}

struct stuck_watch *store_stuck(struct store *s)
{
	return &s->stuck;
}

int store_fd(const struct store *s)
{
	return s->fd;
}

static void append(struct jobs *jobs, struct store_job *job)
{
	job->next = NULL;
	*jobs->end = job;
	jobs->end = &job->next;
}

static struct store_job *take_all(struct jobs *jobs)
{
	struct store_job *first = jobs->first;

	jobs->first = NULL;
	jobs->end = &jobs->first;
	return first;
}

void store_add(struct store *s, struct store_job *job)
{
	pthread_mutex_lock(&s->lock);
	append(&s->waiting, job);
	s->undelivered++;
	pthread_mutex_unlock(&s->lock);
	pthread_cond_signal(&s->wake); /* without the lock, which is what it would wait for next */
}

bool store_failure(struct store *s, struct store_failure *out)
{
	bool failing;

	pthread_mutex_lock(&s->lock);
	failing = s->failing;
	if (failing)
		*out = s->failure;
	pthread_mutex_unlock(&s->lock);
	return failing;
}

bool store_failing(struct store *s)
{
	bool failing;

	pthread_mutex_lock(&s->lock);
	failing = s->failing;
	pthread_mutex_unlock(&s->lock);
	return failing;
}

static void wake_loop(struct store *s)
{
	uint64_t one = 1;

	if (write(s->fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is readable already */
}

static void checkpoint(struct store *s, int pages)
{
	database_checkpoint(&s->db, pages);
	if (wal_watch_note(&s->wal, &s->db))
		wake_loop(s);
}

static void complete(struct store *s, struct store_job *job, int rc)
{
	job->rc = rc;
	pthread_mutex_lock(&s->lock);
	append(&s->complete, job);
	pthread_mutex_unlock(&s->lock);
	wake_loop(s);
}

/* A reason of the job's own; any other is one of the disk, or of memory, and may pass. */
static bool is_own(int rc)
{
	return rc == -EINVAL || rc == -ENOENT || rc == -E2BIG;
}

static int exec(struct store *s, const char *sql)
{
	errno = 0;
	return store_errno(s->db.handle, sqlite3_exec(s->db.handle, sql, NULL, NULL, NULL));
}

/*
 * While a disk fails, what was read of it is no sign that the database is damaged: that is said
 * once the disk is written and read again.
 */
static int judged(const struct store *s, int rc)
{
	if (rc != -EBADMSG || s->damaged)
		return rc;
	if (s->failing)
		return s->failure.rc;
	return database_reads(&s->db) ? rc : -EIO;
}

/*
 * One transaction for the writes from first on. A job whose work fails for a
 * reason of its own is undone alone; an error of the disk undoes all.
 */
static int commit_writes(struct store *s, struct store_job *first)
{
	int rc;

	if (s->damaged)
		return -EBADMSG;
	rc = database_gone(&s->db) ? -ESTALE : exec(s, "begin immediate");

	for (struct store_job *job = first; rc == 0 && job != NULL; job = job->next) {
		rc = exec(s, "savepoint job");
		if (rc < 0)
			break;
		job->rc = job->work(job, s->db.handle);
		if (job->rc < 0 && !is_own(job->rc))
			rc = job->rc;
		else
			rc = exec(s, job->rc < 0 ? "rollback to job; release job" : "release job");
	}
	if (rc == 0) {
		rc = exec(s, "commit");
		s->unsure |= rc < 0 && database_unsure(&s->db);
	}
	if (rc < 0 && sqlite3_get_autocommit(s->db.handle) == 0)
		sqlite3_exec(s->db.handle, "rollback", NULL, NULL, NULL);
	return judged(s, rc);
}

_Static_assert((int)DATABASE_LOG_LONG > RESERVE_BYTES + RESERVE_BYTES / 4, "more comes back");

bool store_gone(struct store *s)
{
	return database_gone(&s->db);
}

static void lose_reserve(struct store *s)
{
	pthread_mutex_lock(&s->lock);
	s->reserve_gone = true;
	pthread_mutex_unlock(&s->lock);
	wake_loop(s);
}

bool store_reserve_gone(struct store *s)
{
	bool gone;

	pthread_mutex_lock(&s->lock);
	gone = s->reserve_gone;
	s->reserve_gone = false;
	pthread_mutex_unlock(&s->lock);
	return gone;
}

/* Where the database finds no room for what its log holds, the reserve lends some. */
bool store_make_room(struct store *s, int full)
{
	char path[PATH_MAX];
	const char *state_dir;
	int rc;

	if (s->damaged)
		return false;
	snprintf(path, sizeof(path), "%s", s->db.path);
	state_dir = dirname(path);
	rc = database_give_back(&s->db, full);
	if (failure_is_full(rc) && reserve_release(state_dir) == 0) {
		rc = database_give_back(&s->db, full);
		if (reserve_make(state_dir) < 0)
			lose_reserve(s);
	}
	return rc == 0;
}

/* On a full disk once more, where the log has given back room. */
static int try_writes(struct store *s, struct store_job *first)
{
	int rc = commit_writes(s, first);

	return failure_is_full(rc) && store_make_room(s, rc) ? commit_writes(s, first) : rc;
}

/* rc: of the last try to write. */
static void set_failing(struct store *s, int rc)
{
	struct store_failure now = {0};
	bool changed;

	if (rc == -EBADMSG && !s->damaged) {
		s->damaged = true;
		database_leave(&s->db);
	}
	if (rc == 0)
		s->unsure = false;  /* what it was about has been written over */
	if (rc == 0 && !s->failing) /* only this thread writes it */
		return;
	if (rc < 0)
		failure_describe(s->db.path, rc, &now);
	now.unsure = s->unsure;
	s->probe_ns = clock_mono_ns() + CLOCK_S_NS;
	pthread_mutex_lock(&s->lock);
	now.since_ns = s->failing ? s->failure.since_ns : clock_utc_ns();
	changed = s->failing != (rc < 0) || (rc == -EBADMSG && s->failure.rc != rc);
	s->failing = rc < 0;
	s->failure = now;
	pthread_mutex_unlock(&s->lock);
	if (changed)
		wake_loop(s);
}

/* A failed transaction: what may fail fails, what must not be lost goes to kept. */
static void sort_failed(struct store *s, struct store_job *job, int rc, struct jobs *kept)
{
	struct store_job *next;

	for (; job != NULL; job = next) {
		next = job->next;
		if (job->must)
			append(kept, job);
		else
			complete(s, job, rc);
	}
}

/* A job that is no write. What it finds is known before it is told. */
static void do_other(struct store *s, struct store_job *job)
{
	bool reads = job->kind == STORE_READ;
	int rc;

	stuck_begin(&s->stuck, !reads);
	rc = job->work(job, reads ? s->db.handle : NULL);
	if (reads)
		rc = judged(s, rc);
	if (reads && rc == -EBADMSG && !s->damaged)
		set_failing(s, rc);
	stuck_end(&s->stuck);
	complete(s, job, rc);
}

/*
 * Jobs that came while a write is being retried: questions and files go on, writes join what is
 * tried; whether there was one.
 */
static bool serve_waiting(struct store *s, struct store_job *job, struct jobs *kept)
{
	struct store_job *next;
	bool written = false;

	for (; job != NULL; job = next) {
		next = job->next;
		if (job->kind != STORE_WRITE) {
			do_other(s, job);
			continue;
		}
		append(kept, job);
		written = true;
	}
	return written;
}

/*
 * A second, in which other jobs are served, cut short by a write, which gets a try of its own, and
 * when the store is closed; whether it is.
 */
static bool pause_before_retry(struct store *s, struct jobs *kept)
{
	struct store_job *jobs;
	const struct timespec until = clock_timespec(clock_mono_ns() + CLOCK_S_NS);
	bool closing = false, late = false, written = false;

	stuck_end(&s->stuck);
	while (!closing && !late && !written) {
		pthread_mutex_lock(&s->lock);
		while (s->waiting.first == NULL && !s->closing && !late)
			late = pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT;
		closing = s->closing;
		jobs = take_all(&s->waiting);
		pthread_mutex_unlock(&s->lock);
		written = serve_waiting(s, jobs, kept);
	}
	stuck_begin(&s->stuck, false);
	return closing;
}

/* Jobs from first on in one transaction, again and again while there is what must not be lost. */
static void do_writes(struct store *s, struct store_job *first)
{
	struct jobs kept;
	struct store_job *job, *next;
	bool last_try = false;
	int rc;

	stuck_begin(&s->stuck, false);
	while ((rc = try_writes(s, first)) < 0) {
		kept = (struct jobs){NULL, &kept.first};
		/* before a refusal is delivered: who is refused may ask for the reason at once */
		if (!is_own(rc))
			set_failing(s, rc);
		sort_failed(s, first, rc, &kept);
		first = kept.first;
		if (first == NULL || last_try)
			break;
		last_try = pause_before_retry(s, &kept);
		first = kept.first;
	}
	if (rc == 0)
		set_failing(s, 0);
	for (job = first; job != NULL; job = next) {
		next = job->next;
		if (rc < 0) {
			pthread_mutex_lock(&s->lock);
			s->lost++;
			pthread_mutex_unlock(&s->lock);
		}
		complete(s, job, rc < 0 ? rc : job->rc);
	}
	/* who waited for the commit has been told */
	if (!s->damaged)
		checkpoint(s, DATABASE_WAL_FULL);
	stuck_end(&s->stuck);
}

/* Give back what was taken and not begun: it comes before what came since. */
static void put_back(struct store *s, struct store_job *jobs)
{
	struct store_job *last = jobs;

	if (jobs == NULL)
		return;
	while (last->next != NULL)
		last = last->next;
	pthread_mutex_lock(&s->lock);
	last->next = s->waiting.first;
	if (s->waiting.first == NULL)
		s->waiting.end = &last->next;
	s->waiting.first = jobs;
	pthread_mutex_unlock(&s->lock);
}

/* The first job, or the writes that stand first; the others are put back. */
static void do_jobs(struct store *s, struct store_job *job)
{
	struct store_job *end = job->next, *last = job;

	if (job->kind == STORE_WRITE)
		for (; end != NULL && end->kind == STORE_WRITE; end = end->next)
			last = end;
	last->next = NULL;
	put_back(s, end);
	if (job->kind == STORE_WRITE)
		do_writes(s, job);
	else
		do_other(s, job);
}

/* Of one that is held it is looked at each second whether it still is. */
static bool may_be_shortened(const struct store *s)
{
	return s->db.wal_pages >= DATABASE_WAL_IDLE || s->db.held_pages > 0;
}

/*
 * Whether there was nothing to do for a second, where that is worth knowing, or until the next
 * probe of a store that fails. With the lock.
 */
static bool wait_for_jobs(struct store *s)
{
	const struct timespec until =
		clock_timespec(s->failing ? s->probe_ns : clock_mono_ns() + CLOCK_S_NS);
	bool quiet = false;

	while (s->waiting.first == NULL && !s->closing && !quiet) {
		if (s->failing || may_be_shortened(s) || !s->db.reserved)
			quiet = pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT;
		else
			pthread_cond_wait(&s->wake, &s->lock);
	}
	return quiet;
}

/*
 * Nothing waits to be written since a write was refused: what ends the failure is looked for.
 * Nothing ends that a database is damaged.
 */
static void probe(struct store *s)
{
	stuck_begin(&s->stuck, false);
	if (s->damaged)
		s->probe_ns = clock_mono_ns() + CLOCK_S_NS;
	else
		set_failing(s, judged(s, database_probe(&s->db)));
	stuck_end(&s->stuck);
}

/* One of these a time: a job may come meanwhile. */
static void at_rest(struct store *s)
{
	stuck_begin(&s->stuck, false);
	if (may_be_shortened(s))
		checkpoint(s, DATABASE_WAL_IDLE);
	else if (!s->db.reserved)
		database_reserve(&s->db);
	stuck_end(&s->stuck);
}

static void *run_thread(void *arg)
{
	struct store *s = arg;
	struct store_job *jobs;
	bool closing, quiet;

	do {
		pthread_mutex_lock(&s->lock);
		quiet = wait_for_jobs(s);
		jobs = take_all(&s->waiting);
		closing = s->closing;
		pthread_mutex_unlock(&s->lock);
		if (jobs != NULL)
			do_jobs(s, jobs);
		else if (quiet && !s->failing)
			at_rest(s);
		if (s->failing && !closing && clock_mono_ns() >= s->probe_ns)
			probe(s);
	} while (jobs != NULL || !closing);
	return NULL;
}

int store_start(struct store *s)
{
	int rc = thread_start(&s->thread, run_thread, s, "store");

	s->started = rc == 0;
	return rc;
}

void store_deliver(struct store *s)
{
	struct store_job *job, *next;
	uint64_t count;

	if (read(s->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	pthread_mutex_lock(&s->lock);
	job = take_all(&s->complete);
	pthread_mutex_unlock(&s->lock);
	for (; job != NULL; job = next) {
		next = job->next;
		job->done(job, job->rc);
		pthread_mutex_lock(&s->lock);
		s->undelivered--;
		pthread_mutex_unlock(&s->lock);
	}
}

bool store_idle(struct store *s)
{
	bool idle;

	pthread_mutex_lock(&s->lock);
	idle = s->undelivered == 0;
	pthread_mutex_unlock(&s->lock);
	return idle;
}

/* What is asked for by those who are told now comes too late. */
static void deliver_rest(struct store *s)
{
	struct store_job *job, *next;

	do {
		store_deliver(s);
		job = take_all(&s->waiting);
		for (; job != NULL; job = next) {
			next = job->next;
			complete(s, job, -ECANCELED);
		}
	} while (s->complete.first != NULL);
}

int store_close(struct store *s)
{
	int rc;

	if (s == NULL)
		return 0;
	if (s->started) {
		pthread_mutex_lock(&s->lock);
		s->closing = true;
		pthread_cond_signal(&s->wake);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->thread, NULL);
		deliver_rest(s);
	}
	database_close(&s->db);
	if (s->fd >= 0)
		close(s->fd);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	wal_watch_destroy(&s->wal);
	rc = s->lost > 0 ? -EIO : 0;
	free(s);
	return rc;
}
