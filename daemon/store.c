#include "daemon/store.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct jobs {
	struct store_job *first, **end;
};

struct store {
	sqlite3 *db;
	pthread_t thread;
	bool started;
	int fd; /* eventfd: something is complete */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake;
	struct jobs waiting, complete;
	bool closing, failing;
	int64_t undelivered;
	int lost; /* writes given up at the close */
};

static const char schema_1[] =
	"create table schema(version integer not null);"
	"insert into schema values(1);"
	"create table runs("
	" id integer primary key autoincrement, name text not null, uid integer not null,"
	" state text not null, reason text not null, spec text not null,"
	" spec_sha256 text not null, checks text not null, gpus integer not null,"
	" segments integer not null, segments_done integer not null, attempt integer not null,"
	" restart integer not null, timeout_s integer not null, submitted_ns integer not null,"
	" started_ns integer not null, ended_ns integer not null);"
	"create index runs_state on runs(state, id);"
	"create table segments("
	" run integer not null references runs(id), segment integer not null,"
	" block integer not null, position integer not null, arm text not null,"
	" state text not null, reason text not null, started_ns integer not null,"
	" ended_ns integer not null, dir text not null, summary text,"
	" primary key(run, segment)) without rowid;"
	"create table transitions("
	" run integer not null references runs(id), at_ns integer not null,"
	" state text not null, reason text not null);"
	"create index transitions_run on transitions(run);";

/* Step i brings schema i to i + 1. */
static const char *const steps[STORE_SCHEMA] = {schema_1};

int store_errno(int code)
{
	switch (code & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_BUSY:
		return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_TOOBIG:
		return -E2BIG;
	default:
		return -EIO;
	}
}

static int bind_values(sqlite3_stmt *stmt, const char *types, va_list args)
{
	int rc = SQLITE_OK;

	for (int i = 1; *types != '\0' && rc == SQLITE_OK; types++, i++) {
		if (*types == 'i')
			rc = sqlite3_bind_int64(stmt, i, va_arg(args, int64_t));
		else
			rc = sqlite3_bind_text(
				stmt, i, va_arg(args, const char *), -1, SQLITE_STATIC);
	}
	return rc;
}

int store_sql(struct sqlite3 *db, int (*row)(struct sqlite3_stmt *stmt, void *arg), void *arg,
	const char *sql, const char *types, ...)
{
	sqlite3_stmt *stmt = NULL;
	va_list args;
	int rc, stop = 0;

	rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
	if (rc != SQLITE_OK)
		return store_errno(rc);
	va_start(args, types);
	rc = bind_values(stmt, types, args);
	va_end(args);
	if (rc != SQLITE_OK) {
		sqlite3_finalize(stmt);
		return store_errno(rc);
	}
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && stop == 0)
		stop = row ? row(stmt, arg) : 0;
	sqlite3_finalize(stmt);
	return stop ? stop : store_errno(rc);
}

static int read_int(sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

static int migrate(sqlite3 *db, char *error, size_t error_bytes)
{
	int64_t tables = 0, version = 0;
	int rc;

	rc = store_sql(db, read_int, &tables,
		"select count(*) from sqlite_master where type = 'table' and name = 'schema'", "");
	if (rc == 0 && tables > 0)
		rc = store_sql(db, read_int, &version, "select version from schema", "");
	if (rc < 0)
		return rc;
	if (version > STORE_SCHEMA || version < 0) {
		snprintf(error, error_bytes, "schema %lld, this gpt2d knows %d and older ones",
			(long long)version, STORE_SCHEMA);
		return -EPROTO;
	}
	while (version < STORE_SCHEMA) {
		rc = sqlite3_exec(db, "begin immediate", NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, steps[version], NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, "commit", NULL, NULL, NULL);
		if (rc != SQLITE_OK)
			return store_errno(rc);
		version++;
	}
	return 0;
}

int store_open(const char *path, struct store **out, char *error, size_t error_bytes)
{
	struct store *s = calloc(1, sizeof(*s));
	pthread_condattr_t monotonic;
	int rc;

	snprintf(error, error_bytes, "out of memory");
	if (s == NULL)
		return -ENOMEM;
	s->waiting.end = &s->waiting.first;
	s->complete.end = &s->complete.first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "eventfd: %s", strerror(errno));
		goto close;
	}
	rc = store_errno(sqlite3_open_v2(path, &s->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));
	if (rc == 0)
		rc = store_errno(sqlite3_exec(s->db,
			"pragma busy_timeout = 5000; pragma journal_mode = wal;"
			"pragma synchronous = full; pragma foreign_keys = on",
			NULL, NULL, NULL));
	if (s->db != NULL)
		snprintf(error, error_bytes, "%s", sqlite3_errmsg(s->db));
	if (rc == 0) {
		rc = migrate(s->db, error, error_bytes);
		if (rc < 0 && rc != -EPROTO)
			snprintf(error, error_bytes, "%s", sqlite3_errmsg(s->db));
	}
	if (rc < 0)
		goto close;
	*out = s;
	return 0;
close:
	store_close(s);
	return rc;
}

struct sqlite3 *store_db(struct store *s)
{
	return s->db;
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
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

bool store_failing(struct store *s)
{
	bool failing;

	pthread_mutex_lock(&s->lock);
	failing = s->failing;
	pthread_mutex_unlock(&s->lock);
	return failing;
}

static void complete(struct store *s, struct store_job *job, int rc)
{
	uint64_t one = 1;

	job->rc = rc;
	pthread_mutex_lock(&s->lock);
	append(&s->complete, job);
	pthread_mutex_unlock(&s->lock);
	if (write(s->fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is readable already */
}

/*
 * One transaction for the writes from first up to (not with) end. A job whose work fails for a
 * reason of its own is undone alone; an error of the disk undoes all.
 */
static int commit_writes(struct store *s, struct store_job *first, struct store_job *end)
{
	int rc = store_errno(sqlite3_exec(s->db, "begin immediate", NULL, NULL, NULL));

	for (struct store_job *job = first; rc == 0 && job != end; job = job->next) {
		rc = store_errno(sqlite3_exec(s->db, "savepoint job", NULL, NULL, NULL));
		if (rc < 0)
			break;
		job->rc = job->work(job, s->db);
		if (job->rc == -ENOSPC || job->rc == -EIO || job->rc == -EROFS || job->rc == -EBUSY)
			rc = job->rc;
		else
			rc = store_errno(sqlite3_exec(s->db,
				job->rc < 0 ? "rollback to job; release job" : "release job", NULL,
				NULL, NULL));
	}
	if (rc == 0)
		rc = store_errno(sqlite3_exec(s->db, "commit", NULL, NULL, NULL));
	if (rc < 0 && sqlite3_get_autocommit(s->db) == 0)
		sqlite3_exec(s->db, "rollback", NULL, NULL, NULL);
	return rc;
}

static void set_failing(struct store *s, bool failing)
{
	pthread_mutex_lock(&s->lock);
	s->failing = failing;
	pthread_mutex_unlock(&s->lock);
}

/* A failed transaction: what may fail fails, what must not be lost goes to kept. */
static void sort_failed(
	struct store *s, struct store_job *job, struct store_job *end, int rc, struct jobs *kept)
{
	struct store_job *next;

	for (; job != end; job = next) {
		next = job->next;
		if (job->must)
			append(kept, job);
		else
			complete(s, job, rc);
	}
}

/* Jobs that came while a write is being retried: questions and files go on, writes wait or are
 * refused. */
static void serve_waiting(struct store *s, struct store_job *job, int rc, struct jobs *kept)
{
	struct store_job *next;

	for (; job != NULL; job = next) {
		next = job->next;
		if (job->kind != STORE_WRITE)
			complete(s, job, job->work(job, job->kind == STORE_READ ? s->db : NULL));
		else
			sort_failed(s, job, next, rc, kept);
	}
}

/* A second, in which other jobs are served, cut short when the store is closed; whether it is. */
static bool pause_before_retry(struct store *s, int rc, struct jobs *kept)
{
	struct store_job *jobs;
	struct timespec until;
	bool closing = false, late = false;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	while (!closing && !late) {
		pthread_mutex_lock(&s->lock);
		while (s->waiting.first == NULL && !s->closing && !late)
			late = pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT;
		closing = s->closing;
		jobs = take_all(&s->waiting);
		pthread_mutex_unlock(&s->lock);
		serve_waiting(s, jobs, rc, kept);
	}
	return closing;
}

static bool any_must(const struct store_job *job)
{
	while (job != NULL && !job->must)
		job = job->next;
	return job != NULL;
}

/* All of them in one transaction, again and again as long as there is what must not be lost. */
static void do_writes(struct store *s, struct store_job *first)
{
	struct jobs kept;
	struct store_job *job, *next;
	bool last_try = false;
	int rc;

	while ((rc = commit_writes(s, first, NULL)) < 0) {
		kept = (struct jobs){NULL, &kept.first};
		/* before a refusal is delivered: who is refused may ask for the reason at once */
		if (any_must(first) && !last_try)
			set_failing(s, true);
		sort_failed(s, first, NULL, rc, &kept);
		first = kept.first;
		if (first == NULL || last_try)
			break;
		last_try = pause_before_retry(s, rc, &kept);
	}
	set_failing(s, false);
	for (job = first; job != NULL; job = next) {
		next = job->next;
		if (rc < 0) {
			pthread_mutex_lock(&s->lock);
			s->lost++;
			pthread_mutex_unlock(&s->lock);
		}
		complete(s, job, rc < 0 ? rc : job->rc);
	}
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
		complete(s, job, job->work(job, job->kind == STORE_READ ? s->db : NULL));
}

static void *run_thread(void *arg)
{
	struct store *s = arg;
	struct store_job *jobs;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		while (s->waiting.first == NULL && !s->closing)
			pthread_cond_wait(&s->wake, &s->lock);
		jobs = take_all(&s->waiting);
		pthread_mutex_unlock(&s->lock);
		if (jobs == NULL)
			return NULL;
		do_jobs(s, jobs);
	}
}

int store_start(struct store *s)
{
	sigset_t all, old;
	int rc;

	/* signals belong to the loop */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&s->thread, NULL, run_thread, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	s->started = rc == 0;
	return -rc;
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
		store_deliver(s);
	}
	sqlite3_close(s->db);
	if (s->fd >= 0)
		close(s->fd);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	rc = s->lost > 0 ? -EIO : 0;
	free(s);
	return rc;
}
