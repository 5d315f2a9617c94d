#include "daemon/openmetrics.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/metrics_file.h"
#include "daemon/config/settings.h"
#include "daemon/control/control.h"
#include "daemon/control/follow.h"
#include "daemon/control/reply.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/scheduler.h"
#include "daemon/runs/usage.h"
#include "daemon/store/record.h"
#include "daemon/store/store.h"
#include "daemon/store/worker.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"
#include "proto/version.h"

static const double EXACT = 1e15; /* whole numbers below are written with all their digits */

enum { FILE_MODE = 0644 }; /* the collector is another user, and every client may ask for figures */

struct openmetrics {
	struct worker_job job; /* writes the file */
	struct openmetrics_options options;
	struct event *timer;
	bool writing;
	bool failed; /* to write the file, which has been logged */
	char *text;  /* for the file */
	size_t n;

	struct statvfs disk;      /* of state_dir */
	int64_t disk_ns;          /* monotonic: when it was read; 0: never */
	struct statvfs next_disk; /* for the store's thread, whose disk it is */
	bool reading;
};

enum format { OPENMETRICS, PROMETHEUS };

/* What is being written. */
struct writer {
	FILE *out;
	enum format format;
	const char *socket;
};

struct family {
	const char *name;
	bool counter; /* its samples are called NAME_total; else a gauge */
	const char *unit, *help;
};

/* ---- the text ---- */

static void write_family(const struct writer *w, const struct family *f)
{
	/* the older format knows no name but that of the samples */
	const char *total = f->counter && w->format == PROMETHEUS ? "_total" : "";

	fprintf(w->out, "# TYPE %s%s %s\n", f->name, total, f->counter ? "counter" : "gauge");
	if (*f->unit && w->format == OPENMETRICS)
		fprintf(w->out, "# UNIT %s %s\n", f->name, f->unit);
	fprintf(w->out, "# HELP %s%s %s\n", f->name, total, f->help);
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

	fprintf(w->out, "%s%s{", f->name, f->counter ? "_total" : "");
	write_label(w, "socket", w->socket);
	for (; *labels != NULL; labels += 2) {
		fputc(',', w->out);
		write_label(w, labels[0], labels[1]);
	}
	fputs("} ", w->out);
	if (isnan(value)) {
		fputs("NaN\n", w->out);
	} else if (isinf(value)) {
		fputs(value > 0 ? "+Inf\n" : "-Inf\n", w->out);
	} else if (fabs(value) < EXACT && value == trunc(value)) {
		fprintf(w->out, "%.0f\n", value);
	} else {
		spec_json_format_real(value, text);
		fprintf(w->out, "%s\n", text);
	}
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* ---- figures with one sample ---- */

enum figure {
	UPTIME,
	MEMORY,
	CLIENTS,
	QUEUE,
	LOG_LOST,
	DRAINED,
	RELEASED,
	RANKS,
	RESTARTS,
	STORE_BUSY,
	STORE_FAILING,
	DISK_FREE,
	DISK_SIZE,
	RUN_ID,
	RUN_STEP,
	RUN_STEPS,
	RUN_SEGMENT,
	RUN_SEGMENTS,
	RUN_TOKENS,
	RUN_STEP_TIME,
	RUN_LOSS,
	RUN_REMAINING,
	FIGURES
};

static const struct family families[FIGURES] = {
	[UPTIME] = {"gpt2d_uptime_seconds", false, "seconds", "Since this gpt2d started."},
	[MEMORY] = {"gpt2d_resident_memory_bytes", false, "bytes",
		"Of gpt2d, without its engines."},
	[CLIENTS] = {"gpt2d_clients", false, "", "Clients connected now."},
	[QUEUE] = {"gpt2d_queue_length", false, "", "Runs that wait."},
	[LOG_LOST] = {"gpt2d_log_lines_lost", true, "",
		"Lines of the log that could not be written in time."},
	[DRAINED] = {"gpt2d_drained", false, "",
		"1 while gpt2d starts no more runs, because a client asked for it."},
	[RELEASED] = {"gpt2d_released", false, "",
		"1 while gpt2d runs no engines, because a client asked for it."},
	[RANKS] = {"gpt2d_ranks", false, "", "Ranks, the largest world of a run."},
	[RESTARTS] = {"gpt2d_engine_restarts", true, "", "Restarts of the engines."},
	[STORE_BUSY] = {"gpt2d_store_busy_seconds", false, "seconds",
		"Since the store began its present work, 0 for none."},
	[STORE_FAILING] = {"gpt2d_store_failing", false, "",
		"1 while the store cannot be written or does not answer."},
	[DISK_FREE] = {"gpt2d_state_dir_free_bytes", false, "bytes",
		"Free for gpt2d on the file system of the state directory."},
	[DISK_SIZE] = {"gpt2d_state_dir_size_bytes", false, "bytes", "Size of that file system."},
	[RUN_ID] = {"gpt2d_run_id", false, "", "The run that is in progress."},
	[RUN_STEP] = {"gpt2d_run_step", false, "", "The last step done, in its segment."},
	[RUN_STEPS] = {"gpt2d_run_steps", false, "", "Steps of a segment."},
	[RUN_SEGMENT] = {"gpt2d_run_segment", false, "", "The segment in progress, from 1."},
	[RUN_SEGMENTS] = {"gpt2d_run_segments", false, "", "Segments of the run."},
	[RUN_TOKENS] = {"gpt2d_run_tokens_per_second", false, "", "Of the last step."},
	[RUN_STEP_TIME] = {"gpt2d_run_step_time_seconds", false, "seconds", "Of the last step."},
	[RUN_LOSS] = {"gpt2d_run_loss", false, "", "Of the last step."},
	[RUN_REMAINING] = {"gpt2d_run_remaining_seconds", false, "seconds",
		"Until the run is trained, at its present pace."},
};

/* A figure that is absent, as that of no run, is not 0. */
struct figures {
	double value[FIGURES];
	bool known[FIGURES];
};

static void set(struct figures *f, enum figure figure, double value)
{
	f->value[figure] = value;
	f->known[figure] = true;
}

static void set_json(struct figures *f, enum figure figure, const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_number(value))
		set(f, figure, json_number_value(value));
}

static void gather_run(const struct openmetrics *m, struct figures *f)
{
	const struct run *run = scheduler_running(m->options.scheduler);
	json_t *progress;

	if (run == NULL)
		return;
	progress = follow_progress(m->options.follow, run->id);
	set(f, RUN_ID, (double)run->id);
	set_json(f, RUN_STEP, progress, "step");
	set_json(f, RUN_STEPS, progress, "steps");
	set_json(f, RUN_SEGMENT, progress, "segment");
	f->value[RUN_SEGMENT]++; /* from 1 */
	set_json(f, RUN_SEGMENTS, progress, "segments");
	set_json(f, RUN_TOKENS, progress, "tokens_per_sec");
	set_json(f, RUN_STEP_TIME, progress, "step_time_ns");
	f->value[RUN_STEP_TIME] /= 1e9;
	set_json(f, RUN_LOSS, progress, "loss");
	set_json(f, RUN_REMAINING, progress, "eta_s");
	json_decref(progress);
}

static void gather_disk(const struct openmetrics *m, struct figures *f)
{
	const int64_t old_ns = (3 * m->options.settings->metrics_period_s + 1) * CLOCK_S_NS;

	if (m->disk_ns == 0 || clock_mono_ns() - m->disk_ns > old_ns)
		return; /* it does not answer */
	set(f, DISK_FREE, (double)m->disk.f_bavail * (double)m->disk.f_frsize);
	set(f, DISK_SIZE, (double)m->disk.f_blocks * (double)m->disk.f_frsize);
}

static void gather(const struct openmetrics *m, const json_t *engine, struct figures *f)
{
	const struct openmetrics_options *o = &m->options;
	json_t *usage = json_object();

	usage_add(usage, getpid());
	set_json(f, MEMORY, usage, "rss_bytes");
	json_decref(usage);
	set(f, UPTIME, (double)(clock_mono_ns() - o->started_ns) / 1e9);
	set(f, CLIENTS, (double)control_clients(o->control));
	set(f, QUEUE, (double)queue_length(o->queue));
	set(f, LOG_LOST, (double)log_lost());
	set(f, DRAINED, hold_is_set(o->holds, HOLD_DRAINED));
	set(f, RELEASED, hold_is_set(o->holds, HOLD_RELEASED));
	set(f, RANKS, (double)json_array_size(json_object_get(engine, "ranks")));
	set_json(f, RESTARTS, engine, "restarts");
	set(f, STORE_BUSY, store_busy_s(o->store));
	set(f, STORE_FAILING, store_failing(o->store));
	gather_disk(m, f);
	gather_run(m, f);
}

/* ---- figures with several samples ---- */

static void write_build(const struct writer *w)
{
	static const struct family f = {
		"gpt2d_build_info", false, "", "Always 1; which gpt2d this is."};
	const char *const labels[] = {"version", VERSION_RELEASE, "build", version_build, NULL};

	write_family(w, &f);
	write_sample(w, &f, labels, 1);
}

static void write_runs(const struct writer *w, const int64_t *counts)
{
	static const struct family f = {"gpt2d_runs", false, "", "Runs in the store, by state."};

	write_family(w, &f);
	for (int i = 0; i < RUN_STATES; i++) {
		const char *const labels[] = {"state", run_state_name((enum run_state)i), NULL};

		write_sample(w, &f, labels, (double)counts[i]);
	}
}

static void write_engine_state(const struct writer *w, const char *state)
{
	static const struct family f = {
		"gpt2d_engine_state", false, "", "1 for the state of the engines."};
	static const char *const states[] = {"down", "starting", "ready", "failing", "releasing",
		"released", "stopping", "stopped"};

	write_family(w, &f);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		const char *const labels[] = {"state", states[i], NULL};

		write_sample(w, &f, labels, strcmp(states[i], state) == 0);
	}
}

/* GPUs, where the engine reports them, and of these the figures that the driver reports. */
static void write_gpus(const struct writer *w, const json_t *ranks)
{
	static const struct {
		struct family family;
		const char *of, *key;
	} rows[] = {
		{{"gpt2d_gpu_memory_bytes", false, "bytes", "Memory of the GPU of a rank, in all."},
			"device", "memory_total_bytes"},
		{{"gpt2d_gpu_memory_used_bytes", false, "bytes", "Of that, used by all processes."},
			"gpu", "memory_used_bytes"},
		{{"gpt2d_gpu_utilization_ratio", false, "ratio",
			 "Part of the time in which it computed, 0 to 1."},
			"gpu", "utilization"},
		{{"gpt2d_gpu_temperature_celsius", false, "celsius", "Its temperature."}, "gpu",
			"temperature_c"},
		{{"gpt2d_gpu_power_watts", false, "watts", "What it draws."}, "gpu", "power_w"},
		{{"gpt2d_gpu_other_processes", false, "",
			 "Processes that compute on it, beside gpt2d's."},
			"gpu", "other_processes"},
	};
	const json_t *rank, *device, *value;
	char number[24];
	size_t i;

	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		bool any = false;

		json_array_foreach(ranks, i, rank) {
			device = json_object_get(rank, "device");
			value = json_object_get(json_object_get(rank, rows[row].of), rows[row].key);
			if (!json_is_object(device) ||
				strcmp(text_of(device, "backend"), "cpu") == 0 ||
				!json_is_number(value))
				continue;
			if (!any)
				write_family(w, &rows[row].family);
			any = true;
			snprintf(number, sizeof(number), "%zu", i);
			write_sample(w, &rows[row].family,
				(const char *const[]){
					"rank", number, "name", text_of(device, "name"), NULL},
				json_number_value(value));
		}
	}
}

/* The caller frees the text. */
static char *make_text(const struct openmetrics *m, enum format format, size_t *n)
{
	static const char *const no_labels[] = {NULL};
	struct writer w = {.format = format, .socket = m->options.socket};
	struct figures figures = {0};
	json_t *engine = engine_pool_json(m->options.pool);
	char *text = NULL;

	w.out = open_memstream(&text, n);
	if (w.out == NULL)
		abort(); /* as memory.h */
	gather(m, engine, &figures);
	write_build(&w);
	write_runs(&w, m->options.counts);
	write_engine_state(&w, text_of(engine, "state"));
	write_gpus(&w, json_object_get(engine, "ranks"));
	for (int i = 0; i < FIGURES; i++)
		if (figures.known[i]) {
			write_family(&w, &families[i]);
			write_sample(&w, &families[i], no_labels, figures.value[i]);
		}
	if (format == OPENMETRICS)
		fputs("# EOF\n", w.out);
	fclose(w.out);
	json_decref(engine);
	return text;
}

void openmetrics_request(struct openmetrics *m, struct reply *reply, json_t *params)
{
	size_t n;
	char *text = make_text(m, OPENMETRICS, &n);

	reply_result(reply, json_pack("{ss}", "text", text));
	free(text);
}

/* ---- each period ---- */

static int write_file(struct worker_job *job)
{
	const struct openmetrics *m = (struct openmetrics *)job;

	return metrics_file_write(m->options.settings->metrics_file, m->text, m->n, FILE_MODE);
}

static void on_written(struct worker_job *job, int rc)
{
	struct openmetrics *m = (struct openmetrics *)job;
	const char *path = m->options.settings->metrics_file;

	m->writing = false;
	free(m->text);
	m->text = NULL;
	if (rc == -ECANCELED)
		return;
	if (rc < 0 && !m->failed)
		log_write(LOG_WARNING, "metrics_file: %s: %s; tried again each period", path,
			rc == -EEXIST ? "no file of figures, it is left alone" : strerror(-rc));
	else if (rc == 0 && m->failed)
		log_write(LOG_INFO, "metrics_file: %s: written again", path);
	m->failed = rc < 0;
}

static int read_disk(void *arg)
{
	struct openmetrics *m = arg;

	return statvfs(m->options.state_dir, &m->next_disk) < 0 ? -errno : 0;
}

static void on_disk(void *arg, int rc)
{
	struct openmetrics *m = arg;

	m->reading = false;
	if (rc < 0)
		return;
	m->disk = m->next_disk;
	m->disk_ns = clock_mono_ns();
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct openmetrics *m = arg;
	const struct timeval period = {.tv_sec = (time_t)m->options.settings->metrics_period_s};

	evtimer_add(m->timer, &period);
	if (!m->reading) {
		m->reading = true;
		record_files(m->options.store, read_disk, on_disk, m);
	}
	if (m->options.settings->metrics_file != NULL && !m->writing) {
		m->text = make_text(m, PROMETHEUS, &m->n);
		m->writing = true;
		worker_add(m->options.worker, &m->job);
	}
}

int openmetrics_create(const struct openmetrics_options *options, struct openmetrics **out)
{
	static const struct timeval now = {0, 0};
	struct openmetrics *m = memory_zeroed(1, sizeof(*m));

	m->options = *options;
	m->job = (struct worker_job){.work = write_file, .done = on_written};
	if (statvfs(options->state_dir, &m->disk) == 0)
		m->disk_ns = clock_mono_ns();
	m->timer = evtimer_new(options->base, on_timer, m);
	if (m->timer == NULL || evtimer_add(m->timer, &now) < 0) {
		openmetrics_destroy(m);
		return -ENOMEM;
	}
	*out = m;
	return 0;
}

void openmetrics_destroy(struct openmetrics *m)
{
	if (m == NULL)
		return;
	if (m->timer)
		event_free(m->timer);
	if (m->options.settings->metrics_file != NULL)
		metrics_file_remove(m->options.settings->metrics_file);
	free(m->text);
	free(m);
}
