#include "daemon/metrics.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/control/reply.h"
#include "daemon/store/record.h"
#include "daemon/store/store.h"
#include "daemon/runs/worker.h"
#include "proto/artifact.h"
#include "proto/host/filesystem.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"
#include "proto/version.h"

static const double EXACT = 1e15; /* whole numbers below are printed with all digits */

enum { FILE_MODE = 0644 }; /* the collector is another user, and every client may ask for figures */

struct metrics {
	struct worker_job job; /* writes the file */
	struct metrics_options options;
	struct event *timer;
	bool writing;
	bool failed; /* error of writing the file that was logged */
	char *text;  /* for the file */
	size_t n;

	struct statvfs disk;      /* of state_dir */
	int64_t disk_ns;          /* monotonic: when it was read; 0: never */
	struct statvfs next_disk; /* for the store's thread, because it uses the disk */
	bool reading;
};

/* The file being written. */
struct writer {
	FILE *out;
	const char *socket;
};

struct family {
	const char *name;
	bool counter; /* else a gauge */
	const char *help;
};

/* ---- the text ---- */

static void write_family(const struct writer *w, const struct family *f)
{
	fprintf(w->out, "# TYPE %s %s\n", f->name, f->counter ? "counter" : "gauge");
	fprintf(w->out, "# HELP %s %s\n", f->name, f->help);
}

static void write_label(const struct writer *w, const char *name, const char *text)
{
	fprintf(w->out, "%s=\"", name);
	for (; text != NULL && *text != '\0'; text++) {
		if (*text == '\\' || *text == '"')
			fprintf(w->out, "\\%c", *text);
		else
			fputc(*text == '\n' ? ' ' : *text, w->out);
	}
	fputc('"', w->out);
}

/* labels: {name, text, name, text, ..., NULL}, beside the socket. */
static void write_sample(
	const struct writer *w, const struct family *f, const char *const *labels, double value)
{
	char text[SPEC_JSON_REAL_BYTES];

	fprintf(w->out, "%s{", f->name);
	write_label(w, "socket", w->socket);
	for (; *labels != NULL; labels += 2) {
		fputc(',', w->out);
		write_label(w, labels[0], labels[1]);
	}
	fputs("} ", w->out);
	if (fabs(value) < EXACT && value == trunc(value)) {
		fprintf(w->out, "%.0f\n", value);
	} else {
		spec_json_format_real(value, text);
		fprintf(w->out, "%s\n", text);
	}
}

/* ---- the table ---- */

/* A value in the JSON of make_text, by the names on the path to it. */
struct row {
	struct family family;
	const char *path;
	bool flag; /* 1 for an object, 0 for null; else a number, or absent without one */
	double scale;
};

static const struct row rows[] = {
	{{"gpt2d_uptime_seconds", false, "Since this gpt2d started."}, "daemon.uptime_s"},
	{{"gpt2d_resident_memory_bytes", false, "Of gpt2d, without its engines."},
		"daemon.rss_bytes"},
	{{"gpt2d_clients", false, "Clients connected now."}, "daemon.clients"},
	{{"gpt2d_log_lines_lost_total", true, "Log lines that could not be written in time."},
		"more.log_lost"},
	{{"gpt2d_queue_length", false, "Runs that wait."}, "queued"},
	{{"gpt2d_drained", false, "1 while gpt2d starts no runs, because a client asked for it."},
		"drained", true},
	{{"gpt2d_released", false, "1 while no engines run, because a client asked for it."},
		"released", true},
	{{"gpt2d_ranks", false, "Ranks, the largest world of a run."}, "more.ranks"},
	{{"gpt2d_nodes", false, "Nodes of the world; on its leader."}, "world.nodes"},
	{{"gpt2d_nodes_joined", false, "Nodes that are there, the leader included."},
		"more.nodes_joined"},
	{{"gpt2d_engine_restarts_total", true, "Restarts of the engines."}, "engine.restarts"},
	{{"gpt2d_run_id", false, "The run that is in progress."}, "running.run.id"},
	{{"gpt2d_run_step", false, "The last step done, in its segment."}, "running.progress.step"},
	{{"gpt2d_run_steps", false, "Steps of a segment."}, "running.progress.steps"},
	{{"gpt2d_run_segment", false, "The segment in progress, from 1."},
		"running.progress.segment"},
	{{"gpt2d_run_segments", false, "Segments of the run."}, "running.progress.segments"},
	{{"gpt2d_run_tokens_per_second", false, "Of the last step."},
		"running.progress.tokens_per_sec"},
	{{"gpt2d_run_step_time_seconds", false, "Of the last step."},
		"running.progress.step_time_ns", .scale = 1e-9},
	{{"gpt2d_run_loss", false, "Of the last step."}, "running.progress.loss"},
	{{"gpt2d_run_remaining_seconds", false, "Until the run is trained, at its present pace."},
		"running.progress.eta_s"},
	{{"gpt2d_store_busy_seconds", false, "Since the store began its present work, 0 for none."},
		"more.store_busy_s"},
	{{"gpt2d_store_failing", false, "1 while the store cannot be written or does not answer."},
		"store", true},
	{{"gpt2d_state_dir_free_bytes", false,
		 "Free for gpt2d on the file system of the state directory."},
		"more.disk_free"},
	{{"gpt2d_state_dir_size_bytes", false, "Size of that file system."}, "more.disk_size"},
};

/* The same for each rank with a GPU. */
static const struct row gpu_rows[] = {
	{{"gpt2d_gpu_memory_bytes", false, "Memory of the GPU of a rank, in all."},
		"device.memory_total_bytes"},
	{{"gpt2d_gpu_memory_used_bytes", false, "Of that, used by all processes."},
		"gpu.memory_used_bytes"},
	{{"gpt2d_gpu_utilization_ratio", false, "Part of the time in which it computed, 0 to 1."},
		"gpu.utilization"},
	{{"gpt2d_gpu_temperature_celsius", false, "Its temperature."}, "gpu.temperature_c"},
	{{"gpt2d_gpu_power_watts", false, "Its power draw."}, "gpu.power_w"},
	{{"gpt2d_gpu_other_processes", false, "Processes that compute on it, beside gpt2d's."},
		"gpu.other_processes"},
};

/* "a.b.c" */
static const json_t *find(const json_t *json, const char *path)
{
	char name[32];
	size_t n;

	for (; json != NULL && *path != '\0'; path += n + (path[n] == '.')) {
		n = strcspn(path, ".");
		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		json = json_object_get(json, name);
	}
	return json;
}

/* False: the figure is absent. */
static bool read_row(const struct row *row, const json_t *json, double *out)
{
	const json_t *value = find(json, row->path);

	if (row->flag)
		*out = json_is_object(value);
	else
		*out = json_number_value(value) * (row->scale != 0 ? row->scale : 1);
	return row->flag || json_is_number(value);
}

/* ---- figures with several samples ---- */

static void write_build(const struct writer *w)
{
	static const struct family f = {
		"gpt2d_build_info", false, "Always 1; which gpt2d this is."};
	const char *const labels[] = {"version", VERSION_RELEASE, "build", version_build, NULL};

	write_family(w, &f);
	write_sample(w, &f, labels, 1);
}

static void write_runs(const struct writer *w, json_t *counts)
{
	static const struct family f = {"gpt2d_runs", false, "Runs in the store, by state."};
	const char *state;
	json_t *count;

	write_family(w, &f);
	json_object_foreach(counts, state, count) {
		const char *const labels[] = {"state", state, NULL};

		write_sample(w, &f, labels, json_number_value(count));
	}
}

static void write_engine_state(const struct writer *w, const char *state)
{
	static const struct family f = {
		"gpt2d_engine_state", false, "1 for the state of the engines."};
	static const char *const states[] = {"down", "starting", "ready", "failing", "releasing",
		"released", "stopping", "stopped"};

	write_family(w, &f);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		const char *const labels[] = {"state", states[i], NULL};

		write_sample(w, &f, labels, strcmp(states[i], state) == 0);
	}
}

static void write_gpus(const struct writer *w, const struct row *row, const json_t *ranks)
{
	const json_t *rank;
	char number[24];
	bool any = false;
	double value;
	size_t i;

	json_array_foreach(ranks, i, rank) {
		const char *backend = json_string_value(find(rank, "device.backend"));
		const char *const labels[] = {
			"rank", number, "name", json_string_value(find(rank, "device.name")), NULL};

		if (backend == NULL || strcmp(backend, "cpu") == 0 || !read_row(row, rank, &value))
			continue;
		if (!any)
			write_family(w, &row->family);
		any = true;
		snprintf(number, sizeof(number), "%zu", i);
		write_sample(w, &row->family, labels, value);
	}
}

/* The nodes that have joined; on the leader only. */
static json_t *nodes_joined(const json_t *status)
{
	const json_t *members = find(status, "world.members"), *member;
	const json_t *nodes = find(status, "world.nodes");
	json_int_t joined = 1;
	size_t i;

	if (nodes == NULL || json_typeof(nodes) != JSON_INTEGER)
		return NULL;
	json_array_foreach(members, i, member) {
		const char *state = json_string_value(json_object_get(member, "state"));

		joined += state != NULL && strcmp(state, "joined") == 0;
	}
	return json_integer(joined);
}

/* Figures that the status does not have. */
static json_t *more_figures(const struct metrics *m, const json_t *status, const json_t *ranks)
{
	const int64_t old_ns = (3 * m->options.settings->metrics_period_s + 1) * CLOCK_S_NS;
	json_t *more = json_pack("{sI sf sI so*}", "log_lost", (json_int_t)log_lost(),
		"store_busy_s", store_busy_s(m->options.store), "ranks",
		(json_int_t)json_array_size(ranks), "nodes_joined", nodes_joined(status));

	if (m->disk_ns == 0 || clock_mono_ns() - m->disk_ns > old_ns)
		return more; /* the file system does not answer */
	json_object_set_new(
		more, "disk_free", json_integer((json_int_t)(m->disk.f_bavail * m->disk.f_frsize)));
	json_object_set_new(
		more, "disk_size", json_integer((json_int_t)(m->disk.f_blocks * m->disk.f_frsize)));
	return more;
}

/* The caller frees the text. */
static char *make_text(const struct metrics *m, size_t *n)
{
	static const char *const no_labels[] = {NULL};
	struct writer w = {.socket = m->options.socket};
	json_t *status = m->options.status(m->options.arg);
	const json_t *ranks = find(status, "engine.ranks");
	const char *state = json_string_value(find(status, "engine.state"));
	char *text;
	double value;

	w.out = memory_stream(&text, n);
	json_object_set_new(status, "more", more_figures(m, status, ranks));
	write_build(&w);
	write_runs(&w, json_object_get(status, "counts"));
	write_engine_state(&w, state ? state : "");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (read_row(&rows[i], status, &value)) {
			write_family(&w, &rows[i].family);
			write_sample(&w, &rows[i].family, no_labels, value);
		}
	for (size_t i = 0; i < sizeof(gpu_rows) / sizeof(gpu_rows[0]); i++)
		write_gpus(&w, &gpu_rows[i], ranks);
	memory_stream_end(w.out);
	json_decref(status);
	return text;
}

void metrics_request(struct metrics *m, struct reply *reply)
{
	size_t n;
	char *text = make_text(m, &n);

	reply_result(reply, json_pack("{ss}", "text", text));
	free(text);
}

/* ---- the file ---- */

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool metrics_path_valid(const char *path)
{
	const char *name = name_of(path);
	struct stat st;

	return *name != '\0' && *name != '.' && (lstat(path, &st) < 0 || S_ISREG(st.st_mode));
}

/* ---- each period ---- */

static int write_file(struct worker_job *job)
{
	const struct metrics *m = (struct metrics *)job;
	const char *path = m->options.settings->metrics_file;
	char parent[PATH_MAX];

	if (!metrics_path_valid(path))
		return -EEXIST;
	return artifact_write_mode(
		filesystem_folder(path, parent), name_of(path), m->text, m->n, FILE_MODE);
}

static void on_written(struct worker_job *job, int rc)
{
	struct metrics *m = (struct metrics *)job;
	const char *path = m->options.settings->metrics_file;

	m->writing = false;
	free(m->text);
	m->text = NULL;
	if (rc == -ECANCELED)
		return;
	if (rc < 0 && !m->failed)
		log_write(LOG_WARNING, "metrics_file: %s: %s; tried again each period", path,
			rc == -EEXIST ? "is not a regular file" : strerror(-rc));
	else if (rc == 0 && m->failed)
		log_write(LOG_INFO, "metrics_file: %s: written again", path);
	m->failed = rc < 0;
}

static int read_disk(void *arg)
{
	struct metrics *m = arg;

	return statvfs(m->options.state_dir, &m->next_disk) < 0 ? -errno : 0;
}

static void on_disk(void *arg, int rc)
{
	struct metrics *m = arg;

	m->reading = false;
	if (rc < 0)
		return;
	m->disk = m->next_disk;
	m->disk_ns = clock_mono_ns();
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct metrics *m = arg;
	const struct timeval period = {.tv_sec = (time_t)m->options.settings->metrics_period_s};

	evtimer_add(m->timer, &period);
	if (!m->reading) {
		m->reading = true;
		record_files(m->options.store, read_disk, on_disk, m);
	}
	if (m->options.settings->metrics_file != NULL && !m->writing) {
		m->text = make_text(m, &m->n);
		m->writing = true;
		worker_add(m->options.worker, &m->job);
	}
}

struct metrics *metrics_create(const struct metrics_options *options)
{
	static const struct timeval now = {0, 0};
	struct metrics *m = memory_zeroed(1, sizeof(*m));

	m->options = *options;
	m->job = (struct worker_job){.work = write_file, .done = on_written};
	if (statvfs(options->state_dir, &m->disk) == 0)
		m->disk_ns = clock_mono_ns();
	m->timer = evtimer_new(options->base, on_timer, m);
	evtimer_add(m->timer, &now);
	return m;
}

void metrics_destroy(struct metrics *m)
{
	const char *path;
	char parent[PATH_MAX];

	if (m == NULL)
		return;
	event_free(m->timer);
	path = m->options.settings->metrics_file;
	if (path != NULL && metrics_path_valid(path))
		artifact_remove(filesystem_folder(path, parent), name_of(path));
	free(m->text);
	free(m);
}
