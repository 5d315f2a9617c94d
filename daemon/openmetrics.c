#include "daemon/openmetrics.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/control/control.h"
#include "daemon/control/reply.h"
#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/control/follow.h"
#include "daemon/runs/hold.h"
#include "daemon/config/log.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"
#include "daemon/runs/usage.h"
#include "daemon/store/worker.h"
#include "proto/artifact.h"
#include "proto/protocol.h"
#include "proto/spec/spec_json.h"
#include "proto/version.h"

static const double EXACT = 1e15; /* whole numbers below are written with all their digits */

struct openmetrics {
	struct daemon *daemon;
	struct event *timer; /* NULL: no file is wanted */
	char dir[PATH_MAX], name[NAME_MAX + 1];
	bool failed; /* the last write, which has been logged */
	bool busy;   /* a sample for the file is on its way */

	int64_t asked_ns;            /* when the question that the store has was; 0: it has none */
	struct sample *first, **end; /* wait for its answer */
	struct event *late;          /* the first of these waits no longer */
};

enum { LATE_S = 3 }; /* a client waits for 30 s at most, a collector for 10 */

/* On its way through the store's queue, which tells how long that is. */
struct question {
	struct daemon *daemon;
	int64_t asked_ns;
	double free_bytes, total_bytes; /* of the state directory's file system; NaN: not known */
};

/* On its way to the client or the file. */
struct sample {
	struct worker_job job;
	struct sample *next;
	struct daemon *daemon;
	struct reply *reply; /* 0: the file */
	int64_t asked_ns;
	char *text;
	size_t n;
};

static void sample_free(struct sample *s)
{
	free(s->text);
	free(s);
}

/* ---- the text ---- */

/* unit "": none. type: gauge or counter, whose sample is called name_total. */
static void family(
	FILE *out, const char *name, const char *type, const char *unit, const char *help)
{
	fprintf(out, "# TYPE %s %s\n", name, type);
	if (*unit)
		fprintf(out, "# UNIT %s %s\n", name, unit);
	fprintf(out, "# HELP %s %s\n", name, help);
}

static void number(FILE *out, double value)
{
	char text[SPEC_JSON_REAL_BYTES];

	if (isnan(value)) {
		fputs(" NaN\n", out);
	} else if (isinf(value)) {
		fputs(value > 0 ? " +Inf\n" : " -Inf\n", out);
	} else if (fabs(value) < EXACT && value == trunc(value)) {
		fprintf(out, " %.0f\n", value);
	} else {
		spec_json_format_real(value, text);
		fprintf(out, " %s\n", text);
	}
}

static void gauge(FILE *out, const char *name, const char *unit, const char *help, double value)
{
	family(out, name, "gauge", unit, help);
	fputs(name, out);
	number(out, value);
}

/* As a label's value. */
static void label(FILE *out, const char *text)
{
	for (; text != NULL && *text != '\0'; text++) {
		if (*text == '\\' || *text == '"')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text == '\n' ? ' ' : *text, out);
	}
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static void write_daemon(FILE *out, const struct daemon *d)
{
	json_t *usage = json_object();

	usage_add(usage, getpid());
	family(out, "gpt2d_build_info", "gauge", "", "Always 1; which gpt2d this is.");
	fprintf(out, "gpt2d_build_info{version=\"%s\",build=\"", VERSION_RELEASE);
	label(out, version_build);
	fputs("\"} 1\n", out);
	gauge(out, "gpt2d_uptime_seconds", "seconds", "Since this gpt2d started.",
		(double)(clock_mono_ns() - d->started_ns) / 1e9);
	gauge(out, "gpt2d_resident_memory_bytes", "bytes", "Of gpt2d, without its engines.",
		json_number_value(json_object_get(usage, "rss_bytes")));
	gauge(out, "gpt2d_clients", "", "Clients connected now.",
		(double)control_clients(d->control));
	gauge(out, "gpt2d_queue_length", "", "Runs that wait.", (double)queue_length(d->queue));
	family(out, "gpt2d_log_lines_lost", "counter", "",
		"Lines of the log that nobody took in time, or that could not be written.");
	fprintf(out, "gpt2d_log_lines_lost_total %lld\n", (long long)log_lost());
	gauge(out, "gpt2d_drained", "",
		"1 while no more runs are started, because it was asked for.",
		hold_is_set(d->holds, HOLD_DRAINED));
	gauge(out, "gpt2d_released", "", "1 while the engines are ended, because it was asked for.",
		hold_is_set(d->holds, HOLD_RELEASED));
	json_decref(usage);
}

static void write_runs(FILE *out, const struct daemon *d)
{
	family(out, "gpt2d_runs", "gauge", "", "Runs in the store, by state.");
	for (int i = 0; i < RUN_STATES; i++)
		fprintf(out, "gpt2d_runs{state=\"%s\"} %lld\n", run_state_name((enum run_state)i),
			(long long)d->counts[i]);
}

/* disk: NULL where the store did not answer. */
static void write_store(
	FILE *out, const struct daemon *d, double lag_s, const struct question *disk)
{
	gauge(out, "gpt2d_store_lag_seconds", "seconds",
		"How long a question to the store took to be its turn.", lag_s);
	gauge(out, "gpt2d_store_busy_seconds", "seconds",
		"Since what it is at now began, 0 for nothing.",
		store_busy_s(d->store));
	gauge(out, "gpt2d_store_failing", "",
		"1 while the store cannot be written or does not answer.", store_failing(d->store));
	if (disk == NULL)
		return;
	gauge(out, "gpt2d_state_dir_free_bytes", "bytes",
		"Free for gpt2d on the state directory's file system.", disk->free_bytes);
	gauge(out, "gpt2d_state_dir_size_bytes", "bytes", "Size of that file system.",
		disk->total_bytes);
}

static bool is_gpu(const json_t *device)
{
	return json_is_object(device) && strcmp(text_of(device, "backend"), "cpu") != 0;
}

/* GPUs, where the engine reports them; of a figure that the driver does not tell there is none. */
static void write_devices(FILE *out, const json_t *ranks)
{
	static const struct {
		const char *name, *unit, *help, *of, *key;
	} rows[] = {
		{"gpt2d_gpu_memory_bytes", "bytes", "Memory of the GPU of a rank, in all.",
			"device", "memory_total_bytes"},
		{"gpt2d_gpu_memory_used_bytes", "bytes", "Of that, used by all processes.", "gpu",
			"memory_used_bytes"},
		{"gpt2d_gpu_utilization_ratio", "ratio",
			"Part of the time in which it computed, 0 to 1.", "gpu", "utilization"},
		{"gpt2d_gpu_temperature_celsius", "celsius", "Its temperature.", "gpu",
			"temperature_c"},
		{"gpt2d_gpu_power_watts", "watts", "What it draws.", "gpu", "power_w"},
		{"gpt2d_gpu_other_processes", "", "Processes that compute on it, beside gpt2d's.",
			"gpu", "other_processes"},
	};
	const json_t *rank, *device, *value;
	size_t i;

	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		bool any = false;

		json_array_foreach(ranks, i, rank) {
			device = json_object_get(rank, "device");
			value = json_object_get(json_object_get(rank, rows[row].of), rows[row].key);
			if (!is_gpu(device) || !json_is_number(value))
				continue;
			if (!any)
				family(out, rows[row].name, "gauge", rows[row].unit,
					rows[row].help);
			any = true;
			fprintf(out, "%s{rank=\"%zu\",name=\"", rows[row].name, i);
			label(out, text_of(device, "name"));
			fputs("\"}", out);
			number(out, json_number_value(value));
		}
	}
}

static void write_engine(FILE *out, const struct daemon *d)
{
	static const char *const states[] = {"down", "starting", "ready", "failing", "releasing",
		"released", "stopping", "stopped"};
	json_t *engine = engine_pool_json(d->pool), *ranks = json_object_get(engine, "ranks");
	const char *state = text_of(engine, "state");

	family(out, "gpt2d_engine_state", "gauge", "", "1 for the state the engines are in.");
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		fprintf(out, "gpt2d_engine_state{state=\"%s\"} %d\n", states[i],
			strcmp(states[i], state) == 0);
	gauge(out, "gpt2d_ranks", "", "Ranks, the largest world of a run.",
		(double)json_array_size(ranks));
	family(out, "gpt2d_engine_restarts", "counter", "",
		"How often the engines were started anew.");
	fprintf(out, "gpt2d_engine_restarts_total %lld\n",
		(long long)json_integer_value(json_object_get(engine, "restarts")));
	write_devices(out, ranks);
	json_decref(engine);
}

/* Nothing where no run is with the engines: a figure that is not there is not 0. */
static void write_run(FILE *out, const struct daemon *d)
{
	static const struct {
		const char *name, *unit, *help, *key;
		double scale;
	} rows[] = {
		{"gpt2d_run_step", "", "The last step done, in its segment.", "step", 1},
		{"gpt2d_run_steps", "", "Steps of a segment.", "steps", 1},
		{"gpt2d_run_segment", "", "The segment it is at, from 1.", "segment", 1},
		{"gpt2d_run_segments", "", "Segments it has.", "segments", 1},
		{"gpt2d_run_tokens_per_second", "", "Of the last step.", "tokens_per_sec", 1},
		{"gpt2d_run_step_time_seconds", "seconds", "Of the last step.", "step_time_ns",
			1e-9},
		{"gpt2d_run_loss", "", "Of the last step.", "loss", 1},
		{"gpt2d_run_remaining_seconds", "seconds", "Until it is trained, at this pace.",
			"eta_s", 1},
	};
	const struct run *run = scheduler_running(d->scheduler);
	json_t *progress;

	if (run == NULL)
		return;
	gauge(out, "gpt2d_run_id", "", "The run that is with the engines.", (double)run->id);
	progress = follow_progress(d->follow, run->id);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const json_t *value = json_object_get(progress, rows[i].key);

		if (json_is_number(value))
			gauge(out, rows[i].name, rows[i].unit, rows[i].help,
				json_number_value(value) * rows[i].scale +
					(strcmp(rows[i].key, "segment") == 0));
	}
	json_decref(progress);
}

/* 0, or -ENOMEM. */
static int write_text(struct sample *s, double lag_s, const struct question *disk)
{
	FILE *out = open_memstream(&s->text, &s->n);
	bool failed;

	if (out == NULL)
		return -ENOMEM;
	write_daemon(out, s->daemon);
	write_runs(out, s->daemon);
	write_engine(out, s->daemon);
	write_run(out, s->daemon);
	write_store(out, s->daemon, lag_s, disk);
	fputs("# EOF\n", out);
	failed = ferror(out) != 0;
	return fclose(out) != 0 || failed ? -ENOMEM : 0;
}

/* ---- the file ---- */

/* What every file of figures begins with, also those of older builds. */
static const char first_words[] = "# TYPE gpt2d_";

bool openmetrics_is_ours(const char *path)
{
	char begins[sizeof(first_words) - 1];
	struct stat st;
	ssize_t n;
	int fd;

	if (lstat(path, &st) < 0)
		return true;
	if (!S_ISREG(st.st_mode))
		return false;
	if (st.st_size == 0)
		return true;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, begins, sizeof(begins));
	close(fd);
	return n == sizeof(begins) && memcmp(begins, first_words, sizeof(begins)) == 0;
}

enum { FILE_MODE = 0644 }; /* who collects it is another user, and every client can ask for it */

static int file_work(struct worker_job *job)
{
	struct sample *s = (struct sample *)job;
	const struct openmetrics *m = s->daemon->openmetrics;

	if (!openmetrics_is_ours(s->daemon->settings->metrics_file))
		return -EEXIST;
	return artifact_write_mode(m->dir, m->name, s->text, s->n, FILE_MODE);
}

static void file_done(struct worker_job *job, int rc)
{
	struct sample *s = (struct sample *)job;
	struct openmetrics *m = s->daemon->openmetrics;

	if (rc < 0 && rc != -ECANCELED && !m->failed)
		log_write(LOG_WARNING, "metrics_file: %s: %s; tried again each period",
			s->daemon->settings->metrics_file,
			rc == -EEXIST ? "no file of figures, it is left alone" : strerror(-rc));
	if (rc == 0 && m->failed)
		log_write(LOG_INFO, "metrics_file: %s: written again",
			s->daemon->settings->metrics_file);
	m->failed = rc < 0 && rc != -ECANCELED;
	m->busy = false;
	sample_free(s);
}

/* ---- samples ---- */

/* In the store's thread, whose disk it is. */
static int ask_disk(void *arg)
{
	struct question *q = arg;
	struct statvfs fs;

	q->free_bytes = q->total_bytes = (double)NAN;
	if (statvfs(q->daemon->state_dir, &fs) == 0) {
		q->free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
		q->total_bytes = (double)fs.f_blocks * (double)fs.f_frsize;
	}
	return 0;
}

/* disk: what was answered, or NULL. */
static void sample_finish(struct sample *s, double lag_s, const struct question *disk)
{
	struct reply *reply = s->reply;
	int rc;

	rc = write_text(s, lag_s, disk);
	if (reply == NULL && rc == 0) {
		worker_add(s->daemon->worker, &s->job);
		return;
	}
	if (reply != NULL && rc == 0)
		reply_result(reply, json_pack("{ss}", "text", s->text));
	else if (reply != NULL)
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
	if (reply == NULL)
		s->daemon->openmetrics->busy = false;
	sample_free(s);
}

static struct sample *take_first(struct openmetrics *m)
{
	struct sample *s = m->first;

	m->first = s->next;
	if (m->first == NULL)
		m->end = &m->first;
	return s;
}

static void on_disk(void *arg, int rc)
{
	struct question *q = arg;
	struct openmetrics *m = q->daemon->openmetrics;
	const double lag_s = (double)(clock_mono_ns() - q->asked_ns) / 1e9;

	m->asked_ns = 0;
	event_del(m->late);
	while (m->first != NULL)
		sample_finish(take_first(m), lag_s, rc == 0 ? q : NULL);
	free(q);
}

/* For the first that waits. */
static void arm_late(struct openmetrics *m)
{
	const int64_t left_ns = m->first->asked_ns + LATE_S * CLOCK_S_NS - clock_mono_ns();
	const struct timeval left = {.tv_sec = left_ns > 0 ? left_ns / CLOCK_S_NS : 0,
		.tv_usec = left_ns > 0 ? left_ns % CLOCK_S_NS / 1000 + 1 : 0};

	evtimer_add(m->late, &left);
}

/* The store does not answer: what is known without it. */
static void on_late(evutil_socket_t fd, short what, void *arg)
{
	struct openmetrics *m = arg;
	const int64_t now_ns = clock_mono_ns();
	const double asked_s = (double)(now_ns - m->asked_ns) / 1e9;

	while (m->first != NULL && now_ns - m->first->asked_ns >= LATE_S * CLOCK_S_NS)
		sample_finish(take_first(m),
			fmax(asked_s, store_busy_s(m->daemon->store)), NULL);
	if (m->first != NULL)
		arm_late(m);
}

/* One a time: 0, or -ENOMEM. */
static int ask_store(struct openmetrics *m)
{
	struct question *q;

	if (m->asked_ns != 0)
		return 0;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return -ENOMEM;
	q->daemon = m->daemon;
	q->asked_ns = clock_mono_ns();
	if (record_files(m->daemon->store, ask_disk, on_disk, q) < 0) {
		free(q);
		return -ENOMEM;
	}
	m->asked_ns = q->asked_ns;
	return 0;
}

/* 0, or -ENOMEM. */
static int take_sample(struct daemon *d, struct reply *reply)
{
	struct openmetrics *m = d->openmetrics;
	struct sample *s = calloc(1, sizeof(*s));

	if (s == NULL || ask_store(m) < 0) {
		free(s);
		return -ENOMEM;
	}
	s->job = (struct worker_job){.work = file_work, .done = file_done};
	s->daemon = d;
	s->reply = reply;
	s->asked_ns = clock_mono_ns();
	*m->end = s;
	m->end = &s->next;
	if (m->first == s)
		arm_late(m);
	return 0;
}

void openmetrics_request(struct daemon *d, struct reply *reply, json_t *params)
{
	if (take_sample(d, reply) < 0)
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct openmetrics *m = arg;
	struct timeval period = {.tv_sec = (time_t)m->daemon->settings->metrics_period_s};

	evtimer_add(m->timer, &period);
	if (!m->daemon->stopping && !m->busy)
		m->busy = take_sample(m->daemon, NULL) == 0;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool openmetrics_can_be(const char *path)
{
	const char *name = name_of(path);

	return *name != '\0' && *name != '.' && strlen(name) <= NAME_MAX &&
		strlen(path) < sizeof(((struct openmetrics *)0)->dir);
}

/* The file's folder and its name: 0, or -EINVAL when it cannot be one. */
static int split(struct openmetrics *m, const char *path)
{
	const char *name = name_of(path);
	size_t n = name == path ? 0 : (size_t)(name - path) - 1;

	if (!openmetrics_can_be(path))
		return -EINVAL;
	memcpy(m->dir, path, n);
	m->dir[n] = '\0';
	if (n == 0)
		strcpy(m->dir, name == path ? "." : "/");
	strcpy(m->name, name);
	return 0;
}

int openmetrics_create(struct daemon *d, struct openmetrics **out)
{
	static const struct timeval now = {0, 0};
	const char *path = d->settings->metrics_file;
	struct openmetrics *m = calloc(1, sizeof(*m));
	int rc = 0;

	if (m == NULL)
		return -ENOMEM;
	m->daemon = d;
	m->end = &m->first;
	m->late = evtimer_new(d->base, on_late, m);
	if (m->late == NULL)
		rc = -ENOMEM;
	if (path != NULL && rc == 0)
		rc = split(m, path);
	if (path != NULL && rc == 0) {
		m->timer = evtimer_new(d->base, on_timer, m);
		rc = m->timer && evtimer_add(m->timer, &now) == 0 ? 0 : -ENOMEM;
	}
	if (rc < 0) {
		openmetrics_destroy(m);
		return rc;
	}
	*out = m;
	return 0;
}

void openmetrics_destroy(struct openmetrics *m)
{
	if (m == NULL)
		return;
	if (m->timer) {
		event_free(m->timer);
		if (openmetrics_is_ours(m->daemon->settings->metrics_file))
			artifact_remove(m->dir, m->name);
	}
	while (m->first != NULL) {
		reply_drop(m->first->reply);
		sample_free(take_first(m));
	}
	if (m->late)
		event_free(m->late);
	free(m);
}
