#include "engine/report/metrics.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/report/measure.h"
#include "kernels/kernels.h"
#include "proto/artifact.h"
#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "proto/host/memory.h"
#include "proto/version.h"

enum {
	PART_LINES = 4096, /* of a file that is built in parts */
	DIR_MODE = 0750,
};

/* Text in progress; numbers in it use the C locale. */
struct text {
	char *bytes;
	size_t n;
	FILE *to;
	locale_t c_locale, before;
};

static void text_open(struct text *t)
{
	*t = (struct text){.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
	t->to = open_memstream(&t->bytes, &t->n);
	if (t->c_locale == (locale_t)0 || t->to == NULL)
		abort(); /* no memory */
	t->before = uselocale(t->c_locale);
}

/* then bytes is complete, n of them; the caller frees it. */
static void text_close(struct text *t)
{
	if (fclose(t->to) != 0)
		abort(); /* no memory */
	uselocale(t->before);
	freelocale(t->c_locale);
}

/* ---- the files as text, which the caller frees ---- */

/* Takes value; a text of several lines with a newline at its end. */
static char *json_text(json_t *value)
{
	struct text t;

	text_open(&t);
	if (json_dumpf(value, t.to, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) == 0)
		fputc('\n', t.to);
	json_decref(value);
	text_close(&t);
	return t.bytes;
}

/* Names of the ranks' hosts, each once, one per line. */
static json_t *list_hosts(const struct metrics_segment *s)
{
	struct text t;
	json_t *hosts;
	int rank, before;

	text_open(&t);
	for (rank = 0; rank < s->world; rank++) {
		const char *name = s->ranks[rank].hostname;

		for (before = 0; strcmp(s->ranks[before].hostname, name) != 0; before++)
			;
		if (before == rank)
			fprintf(t.to, "%s%s", rank > 0 ? "\n" : "", name);
	}
	text_close(&t);
	hosts = json_string(t.bytes);
	free(t.bytes);
	return hosts;
}

/* A variable of the Slurm job; null outside of one. */
static json_t *launcher_slurm(const struct metrics_segment *s)
{
	json_t *job = metrics_host_variable("SLURM_JOB_ID");

	if (json_is_null(job))
		return job;
	return json_pack("{s:o, s:o, s:o}", "job_id", job, "nodelist",
		metrics_host_variable("SLURM_JOB_NODELIST"), "hosts", list_hosts(s));
}

static char *make_launcher(const struct metrics_segment *s)
{
	static const char *const nccl[] = {"NCCL_", NULL};
	static const char *const libraries[] = {"UCX_", "OMP_", "OPENBLAS_", NULL};

	return json_text(json_pack(
		"{s:s, s:s, s:i, s:s, s:o, s:{s:o, s:o, s:o}, s:o, s:o, s:s, s:i}",
		"checkpoint_path", s->dir, "rank0_host", s->ranks[0].hostname, "world_size",
		s->world, "git_commit", version_build, "slurm", launcher_slurm(s), "env",
		"CUDA_VISIBLE_DEVICES", metrics_host_variable("CUDA_VISIBLE_DEVICES"),
		"MASTER_ADDR", metrics_host_variable("MASTER_ADDR"), "MASTER_PORT",
		metrics_host_variable("MASTER_PORT"), "nccl_env", metrics_host_variables(nccl),
		"library_env", metrics_host_variables(libraries), "backend", s->device->backend,
		"threads_per_rank", s->threads));
}

/*
 * The shortest of 15 to 17 digits that reads back as the same number; nothing if it is not finite.
 */
static void put_real(FILE *to, double value, const char *end)
{
	char digits[40] = "";
	int precision;

	for (precision = 15; isfinite(value) && precision <= 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, value);
		if (strtod(digits, NULL) == value)
			break;
	}
	fprintf(to, "%s%s", digits, end);
}

static void put_seconds(FILE *to, int64_t ns, const char *end)
{
	fprintf(to, "%lld.%09lld%s", (long long)(ns / CLOCK_S_NS), (long long)(ns % CLOCK_S_NS),
		end);
}

static void put_phases(FILE *to, const struct measure_step *step)
{
	put_seconds(to, step->data_ns, ",");
	put_seconds(to, step->forward_ns, ",");
	put_seconds(to, step->backward_ns, ",");
	put_seconds(to, step->exposed_comm_ns, ",");
	put_seconds(to, step->optimizer_ns, "");
}

static void put_step(FILE *to, const struct metrics_segment *s, int64_t i)
{
	const struct measure *m = s->measure;
	const struct measure_step *step = &m->slowest[i];
	char at[CLOCK_TEXT_BYTES];

	clock_text(step->end_utc_ns, at);
	fprintf(to, "%s,%lld,", at, (long long)(m->before + i + 1));
	put_seconds(to, step->step_ns, ",");
	put_real(to, step->loss, ",");
	put_real(to, stats_tokens_per_s(m->tokens_per_step, step->step_ns), ",,");
	put_phases(to, step);
	fputc(',', to);
	put_real(to, step->grad_norm, ",");
	put_real(to, step->lr, ",");
	put_real(to, step->loss_scale, ",");
	fprintf(to, "%d,%d,%s,%lld,%lld,%d\n", step->skipped != 0, i < m->warmup, s->arm,
		(long long)s->block, (long long)s->segment, step->saving != 0);
}

/* Steps [from, to); the heading precedes the first. */
static char *make_step_log(const struct metrics_segment *s, int64_t from, int64_t to)
{
	struct text t;

	text_open(&t);
	if (from == 0)
		fputs("timestamp,global_step,step_time_s,loss,tokens_per_sec,gpu_max_mem_mb,"
		      "data_s,forward_s,backward_s,exposed_comm_s,optimizer_s,grad_norm,lr,"
		      "loss_scale,skipped,warmup,arm,block,segment,saving\n",
			t.to);
	for (int64_t i = from; i < to; i++)
		put_step(t.to, s, i);
	text_close(&t);
	return t.bytes;
}

static char *make_rank_times(const struct metrics_segment *s, int64_t from, int64_t to)
{
	struct text t;

	text_open(&t);
	if (from == 0)
		fputs("global_step,rank,step_time_s,data_s,forward_s,backward_s,exposed_comm_s,"
		      "optimizer_s\n",
			t.to);
	for (int64_t i = from; i < to; i++)
		for (int rank = 0; rank < s->world; rank++) {
			const struct measure_step *step = &measure_rank(s->measure, rank)[i];

			fprintf(t.to, "%lld,%d,", (long long)(s->measure->before + i + 1), rank);
			put_seconds(t.to, step->step_ns, ",");
			put_phases(t.to, step);
			fputc('\n', t.to);
		}
	text_close(&t);
	return t.bytes;
}

static char *make_gpu_log(const struct metrics_segment *s)
{
	const int world = s->world;
	struct gpu_log_rank *gpus = memory_zeroed((size_t)world, sizeof(*gpus));
	struct text t;

	text_open(&t);
	for (int rank = 0; rank < world; rank++)
		gpus[rank] = (struct gpu_log_rank){
			.device = &s->ranks[rank].gpu.device,
			.sample = s->gpus + (size_t)rank * s->gpus_room,
			.n = (size_t)s->ranks[rank].gpu.samples,
		};
	gpu_log_write(t.to, gpus, world);
	text_close(&t);
	free(gpus);
	return t.bytes;
}

static char *make_log(const struct metrics_segment *s)
{
	struct text t;

	text_open(&t);
	if (s->log->text != NULL)
		fputs(s->log->text, t.to);
	if (s->log->dropped > 0)
		fprintf(t.to, "%lld lines were left out\n", (long long)s->log->dropped);
	text_close(&t);
	return t.bytes;
}

static char *make_marker(const struct metrics_segment *s, const struct measure_summary *sum,
	int64_t utc_ns, const char *status, const char *metrics_sha256)
{
	char now[CLOCK_TEXT_BYTES];
	struct text t;

	text_open(&t);
	clock_text_s(utc_ns, now);
	fprintf(t.to,
		"[Rank 0] RUN_COMPLETE checkpoint_path=%s world_size=%d tokens_per_sec=", s->dir,
		s->world);
	put_real(t.to, sum->tok_s_global, " total_wall_time_sec=");
	put_real(t.to, (double)s->wall_ns / 1e9, " timestamp_utc=");
	fprintf(t.to, "%s run_id=%s segment=%lld status=%s spec_sha256=%s metrics_sha256=%s\n", now,
		s->run, (long long)s->segment, status, s->spec_sha256, metrics_sha256);
	text_close(&t);
	return t.bytes;
}

/* ---- train.log ---- */

void metrics_log_init(struct metrics_log *log)
{
	*log = (struct metrics_log){0};
}

void metrics_log_finish(struct metrics_log *log)
{
	free(log->text);
	metrics_log_init(log);
}

/* Room for bytes more, NUL included. */
static bool make_room(struct metrics_log *log, size_t bytes)
{
	size_t capacity = log->capacity > 0 ? log->capacity : 4096;

	if (bytes > METRICS_LOG_BYTES_MAX - log->n)
		return false;
	while (capacity < log->n + bytes)
		capacity *= 2;
	log->text = memory_resized(log->text, capacity);
	log->capacity = capacity;
	return true;
}

void metrics_log_add(struct metrics_log *log, const char *format, ...)
{
	char line[1024], at[CLOCK_TEXT_BYTES];
	va_list args;
	size_t bytes;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	clock_text(clock_utc_ns(), at);
	bytes = strlen(at) + 1 + strlen(line) + 2;
	/* a cut line must be recognisable */
	if (length < 0 || (size_t)length >= sizeof(line) || !make_room(log, bytes)) {
		log->dropped++;
		return;
	}
	log->n += (size_t)snprintf(log->text + log->n, bytes, "%s %s\n", at, line);
}

/* ---- writing ---- */

int metrics_begin(const char *dir)
{
	if (mkdir(dir, DIR_MODE) < 0 && errno != EEXIST)
		return -errno;
	return artifact_remove(dir, ARTIFACT_COMPLETE);
}

/* Writes text under name and counts it. */
static int write_text(const struct metrics_segment *s, struct metrics_files *files,
	const char *name, const char *text, char *error, size_t error_bytes)
{
	size_t n = strlen(text);
	int rc = artifact_write(s->dir, name, text, n);

	if (rc < 0) {
		snprintf(error, error_bytes, "%s/%s: %s", s->dir, name, strerror(-rc));
		return rc;
	}
	files->file[files->n++] = (struct metrics_file){.name = name, .bytes = (int64_t)n};
	return 0;
}

/* As write_text, and text is freed. */
static int write_made(const struct metrics_segment *s, struct metrics_files *files,
	const char *name, char *text, char *error, size_t error_bytes)
{
	int rc = write_text(s, files, name, text, error, error_bytes);

	free(text);
	return rc;
}

/* A file with lines of each step, built in parts, because it may not fit into memory. */
struct steps_file {
	struct artifact_source source;
	char *(*make)(const struct metrics_segment *s, int64_t from, int64_t to);
	const struct metrics_segment *segment;
	int64_t lines; /* of a step */
	int64_t at;    /* the next step */
	bool begun;
	char *part;
};

static int next_steps(struct artifact_source *source, const char **bytes, size_t *n)
{
	struct steps_file *f = (struct steps_file *)source;
	const int64_t left = f->segment->measure->done - f->at;
	int64_t steps = f->lines < PART_LINES ? PART_LINES / f->lines : 1;

	*n = 0;
	free(f->part);
	f->part = NULL;
	if (left == 0 && f->begun)
		return 0;
	if (steps > left)
		steps = left;
	f->part = f->make(f->segment, f->at, f->at + steps);
	f->begun = true;
	f->at += steps;
	*bytes = f->part;
	*n = strlen(f->part);
	return 0;
}

/* As write_text. */
static int write_steps(const struct metrics_segment *s, struct metrics_files *files,
	const char *name, struct steps_file f, char *error, size_t error_bytes)
{
	int64_t written;
	int rc;

	f.source.next = next_steps;
	f.segment = s;
	rc = artifact_write_from(s->dir, name, &f.source, 0, &written);
	free(f.part);
	if (rc < 0) {
		snprintf(error, error_bytes, "%s/%s: %s", s->dir, name, strerror(-rc));
		return rc;
	}
	files->file[files->n++] = (struct metrics_file){.name = name, .bytes = written};
	return 0;
}

/* For a gpt2d that restarts before it receives segment.done: files has those written so far. */
static char *make_summary(const struct metrics_segment *s, const struct measure_summary *sum,
	const struct metrics_files *files)
{
	json_t *summary = metrics_report_summary(s, sum, files);

	return json_text(json_pack("{s:o}", "summary", summary));
}

/* As write_made; metrics_begin's folder becomes durable first. An invalid marker counts as none. */
static int write_complete(const struct metrics_segment *s, struct metrics_files *files, char *text,
	char *error, size_t error_bytes)
{
	char parent[PATH_MAX];
	int rc;

	snprintf(parent, sizeof(parent), "%s/..", s->dir);
	rc = filesystem_sync(parent);
	if (rc < 0) {
		snprintf(error, error_bytes, "%s: %s", parent, strerror(-rc));
		free(text);
		return rc;
	}
	rc = write_made(s, files, ARTIFACT_COMPLETE, text, error, error_bytes);
	if (rc < 0)
		artifact_remove(s->dir, ARTIFACT_COMPLETE);
	return rc;
}

static const char *status_of(const json_t *report)
{
	const json_t *ours = json_object_get(report, "gpt2d");

	return json_string_value(json_object_get(ours, "status"));
}

int metrics_write(const struct metrics_segment *s, struct metrics_files *files, char *error,
	size_t error_bytes)
{
	struct metrics_files made = {0};
	struct measure_summary sum;
	int64_t utc_ns = clock_utc_ns();
	char sha256[65], status[32];
	json_t *report;
	char *metrics = NULL;
	int rc;

	rc = measure_summarise(s->measure, &sum);
	if (rc < 0) {
		snprintf(error, error_bytes, "measurement: %s", strerror(-rc));
		return rc;
	}
	report = metrics_report_make(s, &sum, utc_ns);
	snprintf(status, sizeof(status), "%s", status_of(report));
	metrics = json_text(report);
	rc = write_text(s, &made, ARTIFACT_SPEC, s->spec_text, error, error_bytes);
	if (rc == 0)
		rc = write_text(s, &made, ARTIFACT_METRICS, metrics, error, error_bytes);
	if (rc == 0 && artifact_sha256(metrics, strlen(metrics), sha256) < 0) {
		snprintf(error, error_bytes, "%s: no SHA-256 of it", ARTIFACT_METRICS);
		rc = -EIO;
	}
	free(metrics);
	if (rc == 0)
		rc = write_made(s, &made, ARTIFACT_LAUNCHER, make_launcher(s), error, error_bytes);
	if (rc == 0)
		rc = write_steps(s, &made, ARTIFACT_STEP_LOG,
			(struct steps_file){.make = make_step_log, .lines = 1}, error, error_bytes);
	if (rc == 0 && s->world > 1)
		rc = write_steps(s, &made, ARTIFACT_RANK_TIMES,
			(struct steps_file){.make = make_rank_times, .lines = s->world}, error,
			error_bytes);
	if (rc == 0 && s->gpus != NULL)
		rc = write_made(s, &made, ARTIFACT_GPU_LOG, make_gpu_log(s), error, error_bytes);
	if (rc == 0)
		rc = write_made(s, &made, ARTIFACT_LOG, make_log(s), error, error_bytes);
	if (rc == 0 && s->partial == NULL)
		rc = write_made(s, &made, ARTIFACT_SUMMARY, make_summary(s, &sum, &made), error,
			error_bytes);
	if (rc == 0 && s->partial == NULL)
		rc = write_complete(
			s, &made, make_marker(s, &sum, utc_ns, status, sha256), error, error_bytes);
	if (rc == 0)
		*files = made;
	return rc;
}

json_t *metrics_summary(const struct metrics_segment *s, const struct metrics_files *files)
{
	struct measure_summary sum;

	if (measure_summarise(s->measure, &sum) < 0)
		return NULL;
	return metrics_report_summary(s, &sum, files);
}
