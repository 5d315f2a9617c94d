#include "daemon/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/store/database.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"

struct jobs {
	struct store_job *first, **end;
};

struct store {
	struct database db; /* of the thread, once it is started */
	pthread_t thread;
	bool started;
	int fd;                   /* eventfd: a job is complete, or a failure began or ended */
	_Atomic int64_t begun_ns; /* monotonic start of the thread's current job; 0: idle */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake;
	struct jobs waiting, complete;
	bool closing, failing;
	struct store_failure failure;
	int64_t undelivered;

	/* of the thread */
	struct jobs kept; /* writes that must not be lost and are not written yet */
	bool damaged;
	int64_t retry_ns; /* monotonic; while failing */
	int lost;         /* writes given up at the close */
};

int store_open(const char *path, struct store **out, char *error, size_t error_bytes)
{
	struct store *s = memory_zeroed(1, sizeof(*s));
	int rc;

	s->waiting.end = &s->waiting.first;
	s->complete.end = &s->complete.first;
	s->kept.end = &s->kept.first;
	pthread_mutex_init(&s->lock, NULL);
	thread_condition_init(&s->wake);
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

int store_fd(const struct store *s)
{
	return s->fd;
}

bool store_gone(struct store *s)
{
	return database_gone(&s->db);
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
	pthread_cond_signal(&s->wake); /* without the lock: the thread takes it next */
}

/* ---- failing ---- */

double store_busy_s(const struct store *s)
{
	const int64_t begun_ns = atomic_load(&s->begun_ns);

	return begun_ns > 0 ? (double)(clock_mono_ns() - begun_ns) / 1e9 : 0;
}

bool store_failure(struct store *s, struct store_failure *out)
{
	const double busy_s = store_busy_s(s);
	bool failing;

	pthread_mutex_lock(&s->lock);
	failing = s->failing;
	if (failing && out != NULL)
		*out = s->failure;
	pthread_mutex_unlock(&s->lock);
	if (failing || busy_s < STORE_SILENT_S)
		return failing;
	if (out != NULL) {
		store_describe(s->db.path, -ETIMEDOUT, out);
		out->since_ns = clock_utc_ns() - (int64_t)(busy_s * 1e9);
	}
	return true;
}

bool store_failing(struct store *s)
{
	return store_failure(s, NULL);
}

json_t *store_failure_json(struct store *s)
{
	struct store_failure f;

	if (!store_failure(s, &f))
		return json_null();
	return json_pack("{ss ss ss so ss}", "path", f.path, "errno", strerrorname_np(-f.rc),
		"error", store_error_text(f.rc), "since", clock_json(f.since_ns), "advice",
		f.advice);
}

void store_failure_text(struct store *s, int rc, char out[FAILURE_TEXT_BYTES])
{
	struct store_failure f;
	bool known = store_failure(s, &f) && f.rc == rc;

	snprintf(out, FAILURE_TEXT_BYTES, "%.320s: %s%s%s", store_path(s), store_error_text(rc),
		known ? "; " : "", known ? f.advice : "");
}

static void wake_loop(struct store *s)
{
	const uint64_t one = 1;

	if (write(s->fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is already readable */
}

static void complete(struct store *s, struct store_job *job, int rc)
{
	job->rc = rc;
	atomic_store(&s->begun_ns, 0); /* before its owner hears of it */
	pthread_mutex_lock(&s->lock);
	append(&s->complete, job);
	pthread_mutex_unlock(&s->lock);
	wake_loop(s);
}

/* rc: of the last write, or -EBADMSG of a read. */
static void set_failing(struct store *s, int rc)
{
	struct store_failure now = {0};
	bool changed;

	if (rc == -EBADMSG && !s->damaged) {
		s->damaged = true;
		database_keep_log(&s->db);
	}
	s->retry_ns = clock_mono_ns() + CLOCK_S_NS;
	if (rc == 0 && !s->failing) /* only this thread writes it */
		return;
	if (rc < 0)
		store_describe(s->db.path, rc, &now);
	pthread_mutex_lock(&s->lock);
	now.since_ns = s->failing ? s->failure.since_ns : clock_utc_ns();
	changed = s->failing != (rc < 0) || (rc == -EBADMSG && s->failure.rc != rc);
	s->failing = rc < 0;
	s->failure = now;
	pthread_mutex_unlock(&s->lock);
	if (changed)
		wake_loop(s);
}

/* ---- in the thread: writes ---- */

/* An error of the job itself. Any other error is one of the disk and may pass. */
static bool is_own(int rc)
{
	return rc == -EINVAL || rc == -ENOENT || rc == -E2BIG;
}

static int exec(struct store *s, const char *sql)
{
	return store_sql(s->db.handle, NULL, NULL, sql, "");
}

/*
 * One transaction for the writes from first on; without any, a write that changes nothing. A job
 * with an error of its own is undone alone. An error of the disk undoes all.
 */
static int commit(struct store *s, struct store_job *first)
{
	int rc;

	if (s->damaged)
		return -EBADMSG;
	/* waits once for another process's lock, not at each retry */
	sqlite3_busy_timeout(s->db.handle, s->failing ? 0 : DATABASE_BUSY_MS);
	rc = database_gone(&s->db) ? -ESTALE : exec(s, "begin immediate");
	if (rc == 0 && first == NULL)
		rc = exec(s, "update schema set version = version");
	for (struct store_job *job = first; rc == 0 && job != NULL; job = job->next) {
		rc = exec(s, "savepoint job");
		if (rc < 0)
			break;
		job->rc = job->work(job, s->db.handle);
		if (job->rc < 0 && !is_own(job->rc))
			rc = job->rc;
		else
			rc = job->rc < 0 ? exec(s, "rollback to job") : 0;
		if (rc == 0)
			rc = exec(s, "release job");
	}
	if (rc == 0)
		rc = exec(s, "commit");
	if (rc < 0 && sqlite3_get_autocommit(s->db.handle) == 0)
		exec(s, "rollback");
	return rc;
}

/* Does the kept writes, and those from first on. Writes that must not be lost are kept again. */
static void do_writes(struct store *s, struct store_job *first)
{
	struct store_job *job, *next;
	int rc;

	*s->kept.end = first;
	first = take_all(&s->kept);
	rc = commit(s, first);
	/* the log starts again after a checkpoint, and then needs no more room */
	if (store_is_full(rc) && database_checkpoint(&s->db) == 0)
		rc = commit(s, first);
	/* before a refusal is delivered, because its client may ask for the reason at once */
	set_failing(s, rc);
	for (job = first; job != NULL; job = next) {
		next = job->next;
		if (rc < 0 && job->must)
			append(&s->kept, job);
		else
			complete(s, job, rc < 0 ? rc : job->rc);
	}
}

static void do_other(struct store *s, struct store_job *job)
{
	const bool reads = job->kind == STORE_READ;
	const int rc = job->work(job, reads ? s->db.handle : NULL);

	if (reads && rc == -EBADMSG)
		set_failing(s, rc);
	complete(s, job, rc);
}

/* Does the first job, or all writes up to the next job of another kind. Returns the rest. */
static struct store_job *do_first(struct store *s, struct store_job *job)
{
	struct store_job *rest = job->next, *last = job;

	if (job->kind == STORE_WRITE)
		for (; rest != NULL && rest->kind == STORE_WRITE; rest = rest->next)
			last = rest;
	last->next = NULL;
	atomic_store(&s->begun_ns, clock_mono_ns());
	if (job->kind == STORE_WRITE)
		do_writes(s, job);
	else
		do_other(s, job);
	atomic_store(&s->begun_ns, 0);
	return rest;
}

/* Waits; whether to retry, because no job came until then. With the lock. */
static bool wait_for_jobs(struct store *s)
{
	const struct timespec until = clock_timespec(s->retry_ns);
	bool late = false;

	while (s->waiting.first == NULL && !s->closing && !late) {
		if (s->failing && !s->damaged)
			late = pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT;
		else
			pthread_cond_wait(&s->wake, &s->lock);
	}
	return late;
}

static void give_up_kept(struct store *s)
{
	struct store_job *job, *next;

	for (job = take_all(&s->kept); job != NULL; job = next) {
		next = job->next;
		s->lost++;
		complete(s, job, s->failure.rc);
	}
}

static void *run_thread(void *arg)
{
	struct store *s = arg;
	struct store_job *jobs;
	bool closing, retry;

	do {
		pthread_mutex_lock(&s->lock);
		retry = wait_for_jobs(s);
		jobs = take_all(&s->waiting);
		closing = s->closing;
		pthread_mutex_unlock(&s->lock);
		while (jobs != NULL)
			jobs = do_first(s, jobs);
		atomic_store(&s->begun_ns, clock_mono_ns());
		if (retry || (closing && s->kept.first != NULL))
			do_writes(s, NULL);
		if (!s->damaged && database_log_is_long(&s->db)) /* after the replies */
			database_checkpoint(&s->db);
		atomic_store(&s->begun_ns, 0);
	} while (!closing);
	give_up_kept(s);
	return NULL;
}

/* ---- in the loop ---- */

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

/* A done() may add a job: it is too late. */
static void deliver_rest(struct store *s)
{
	struct store_job *job, *next;

	do {
		store_deliver(s);
		for (job = take_all(&s->waiting); job != NULL; job = next) {
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
	rc = s->lost > 0 ? -EIO : 0;
	free(s);
	return rc;
}
