#include "engine/report/gpu_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/host/memory.h"
#include "proto/host/clock.h"
#include "proto/host/thread.h"

enum { THROTTLE_IDLE = 1 };
static const char not_known[] = "[N/A]";

struct gpu_log {
	struct nvml *nvml;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool on, closing;
	struct nvml_sample latest;
	int64_t latest_ns; /* monotonic; 0: there is none */
	struct gpu_log_samples samples;
};

void gpu_log_samples_finish(struct gpu_log_samples *samples)
{
	free(samples->sample);
	*samples = (struct gpu_log_samples){0};
}

static bool has_room(struct gpu_log_samples *s)
{
	if (s->n < s->capacity)
		return true;
	if (s->n >= GPU_LOG_SAMPLES_MAX)
		return false;
	s->capacity = s->capacity ? 2 * s->capacity : 64;
	s->sample = memory_resized(s->sample, s->capacity * sizeof(*s->sample));
	return true;
}

/* With the lock, which is released while the driver is queried. */
static struct gpu_log_sample read_sample(struct gpu_log *log)
{
	struct gpu_log_sample sample;

	pthread_mutex_unlock(&log->lock);
	nvml_read(log->nvml, &sample.s);
	sample.utc_ns = clock_utc_ns();
	pthread_mutex_lock(&log->lock);
	log->latest = sample.s;
	log->latest_ns = clock_mono_ns();
	return sample;
}

static void keep(struct gpu_log *log, struct gpu_log_sample sample)
{
	if (has_room(&log->samples))
		log->samples.sample[log->samples.n++] = sample;
	else
		log->samples.dropped++;
}

static void *run(void *arg)
{
	struct gpu_log *log = arg;

	pthread_mutex_lock(&log->lock);
	while (!log->closing) {
		const bool on = log->on;
		const int64_t period_ms = on ? GPU_LOG_PERIOD_MS : GPU_LOG_REST_MS;
		const struct timespec until =
			clock_timespec(clock_mono_ns() + period_ms * CLOCK_MS_NS);
		struct gpu_log_sample sample;

		while (log->on == on && !log->closing &&
			pthread_cond_timedwait(&log->changed, &log->lock, &until) != ETIMEDOUT)
			;
		if (log->on != on || log->closing)
			continue;
		sample = read_sample(log);
		if (log->on)
			keep(log, sample);
	}
	pthread_mutex_unlock(&log->lock);
	return NULL;
}

static int start_thread(struct gpu_log *log)
{
	int rc;

	pthread_mutex_init(&log->lock, NULL);
	thread_condition_init(&log->changed);
	rc = thread_start(&log->thread, run, log, "gpu_log");
	if (rc) {
		pthread_cond_destroy(&log->changed);
		pthread_mutex_destroy(&log->lock);
	}
	return rc;
}

int gpu_log_create(
	const char *library, const char *pci, struct gpu_log **out, char *error, size_t error_bytes)
{
	struct gpu_log *log = memory_zeroed(1, sizeof(*log));
	int rc;

	rc = nvml_open(library, pci, &log->nvml, error, error_bytes);
	if (!rc) {
		rc = start_thread(log);
		if (rc)
			snprintf(error, error_bytes, "nvml: no thread: %s", strerror(-rc));
	}
	if (rc) {
		nvml_close(log->nvml);
		free(log);
		return rc;
	}
	*out = log;
	return 0;
}

void gpu_log_destroy(struct gpu_log *log)
{
	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	log->closing = true;
	pthread_cond_signal(&log->changed);
	pthread_mutex_unlock(&log->lock);
	pthread_join(log->thread, NULL);
	pthread_cond_destroy(&log->changed);
	pthread_mutex_destroy(&log->lock);
	gpu_log_samples_finish(&log->samples);
	nvml_close(log->nvml);
	free(log);
}

const struct nvml_device *gpu_log_device(const struct gpu_log *log)
{
	return nvml_device(log->nvml);
}

int64_t gpu_log_energy_mj(const struct gpu_log *log)
{
	return nvml_energy_mj(log->nvml);
}

bool gpu_log_latest(struct gpu_log *log, struct nvml_sample *out)
{
	bool fresh;

	pthread_mutex_lock(&log->lock);
	fresh = log->latest_ns != 0 &&
		clock_mono_ns() - log->latest_ns < GPU_LOG_FRESH_MS * CLOCK_MS_NS;
	*out = log->latest;
	pthread_mutex_unlock(&log->lock);
	return fresh;
}

void gpu_log_begin(struct gpu_log *log)
{
	struct gpu_log_sample first;

	pthread_mutex_lock(&log->lock);
	first = read_sample(log);
	gpu_log_samples_finish(&log->samples);
	keep(log, first);
	log->on = true;
	pthread_cond_signal(&log->changed);
	pthread_mutex_unlock(&log->lock);
}

void gpu_log_end(struct gpu_log *log, struct gpu_log_samples *out)
{
	pthread_mutex_lock(&log->lock);
	log->on = false;
	pthread_cond_signal(&log->changed);
	keep(log, read_sample(log));
	*out = log->samples;
	log->samples = (struct gpu_log_samples){0};
	pthread_mutex_unlock(&log->lock);
}

/* ---- figures ---- */

struct mean {
	double sum;
	int64_t n;
};

static void add(struct mean *m, int64_t value)
{
	if (value < 0)
		return;
	m->sum += (double)value;
	m->n++;
}

static double value_of(const struct mean *m)
{
	return m->n ? m->sum / (double)m->n : (double)NAN;
}

static void raise_to(int64_t *largest, int64_t value)
{
	if (value > *largest)
		*largest = value;
}

void gpu_log_summarise(const struct nvml_device *device, const struct gpu_log_samples *samples,
	struct gpu_log_summary *out)
{
	struct mean sm = {0}, memory = {0}, temperature = {0}, power = {0}, gpu = {0}, copy = {0};

	memset(out, 0, sizeof(*out)); /* its bytes are sent */
	out->device = *device;
	out->samples = (int64_t)samples->n;
	out->temperature_max_c = out->used_max_bytes = out->throttle = out->others_max = -1;
	for (size_t i = 0; i < samples->n; i++) {
		const struct nvml_sample *s = &samples->sample[i].s;

		add(&sm, s->sm_mhz);
		add(&memory, s->memory_mhz);
		add(&temperature, s->temperature_c);
		add(&power, s->power_mw);
		add(&gpu, s->gpu_percent);
		add(&copy, s->memory_percent);
		raise_to(&out->temperature_max_c, s->temperature_c);
		raise_to(&out->used_max_bytes, s->used_bytes);
		raise_to(&out->others_max, s->others);
		if (s->throttle >= 0)
			out->throttle = (out->throttle < 0 ? 0 : out->throttle) |
				(s->throttle & ~(int64_t)THROTTLE_IDLE);
	}
	out->sm_mhz = value_of(&sm);
	out->memory_mhz = value_of(&memory);
	out->temperature_c = value_of(&temperature);
	out->power_w = value_of(&power) / 1e3;
	out->gpu_percent = value_of(&gpu);
	out->memory_percent = value_of(&copy);
}

/* ---- as a table ---- */

static void put_number(FILE *to, int64_t value, int64_t unit, const char *end)
{
	if (value < 0)
		fprintf(to, "%s%s", not_known, end);
	else
		fprintf(to, "%" PRId64 "%s", value / unit, end);
}

static void put_text(FILE *to, const char *text)
{
	fprintf(to, "%s, ", text[0] ? text : not_known);
}

static void put_time(FILE *to, int64_t utc_ns)
{
	time_t seconds = (time_t)(utc_ns / CLOCK_S_NS);
	struct tm tm = {0};
	char text[32];

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y/%m/%d %H:%M:%S", &tm);
	fprintf(to, "%s.%03d, ", text, (int)(utc_ns / CLOCK_MS_NS % 1000));
}

static void put_sample(FILE *to, const struct nvml_device *d, const struct gpu_log_sample *sample)
{
	const struct nvml_sample *s = &sample->s;

	put_time(to, sample->utc_ns);
	put_number(to, d->index, 1, ", ");
	put_text(to, d->name);
	put_text(to, d->uuid);
	put_text(to, d->driver);
	put_number(to, s->sm_mhz, 1, ", ");
	put_number(to, s->memory_mhz, 1, ", ");
	if (s->throttle < 0)
		put_text(to, "");
	else
		fprintf(to, "0x%016" PRIx64 ", ", (uint64_t)s->throttle);
	put_number(to, s->temperature_c, 1, ", ");
	if (s->power_mw < 0)
		put_text(to, "");
	else
		fprintf(to, "%" PRId64 ".%02d, ", s->power_mw / 1000,
			(int)(s->power_mw % 1000 / 10));
	put_number(to, s->gpu_percent, 1, ", ");
	put_number(to, s->memory_percent, 1, ", ");
	put_number(to, s->used_bytes, 1 << 20, ", ");
	put_number(to, s->total_bytes, 1 << 20, ", ");
	put_number(to, s->others, 1, ", ");
}

/* The rank whose next sample is the earliest; -1: there are none left. */
static int find_next(const struct gpu_log_rank *ranks, int world)
{
	int next = -1;

	for (int i = 0; i < world; i++)
		if (ranks[i].n > 0 &&
			(next < 0 || ranks[i].sample->utc_ns < ranks[next].sample->utc_ns))
			next = i;
	return next;
}

void gpu_log_write(FILE *to, struct gpu_log_rank *ranks, int world)
{
	int rank;

	fputs("timestamp, index, name, uuid, driver_version, clocks.current.sm [MHz], "
	      "clocks.current.memory [MHz], clocks_throttle_reasons.active, temperature.gpu, "
	      "power.draw [W], utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
	      "memory.total [MiB], other_processes, rank\n",
		to);
	while ((rank = find_next(ranks, world)) >= 0) {
		put_sample(to, ranks[rank].device, ranks[rank].sample++);
		ranks[rank].n--;
		fprintf(to, "%d\n", rank);
	}
}
