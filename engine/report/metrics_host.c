#include "engine/report/metrics_host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* "Key:\tvalue" of /proc/self/status. */
static void take_status_line(struct metrics_host_rank *out, const char *line)
{
	int64_t kib;

	if (sscanf(line, "VmHWM: %" SCNd64 " kB", &kib) == 1)
		out->peak_rss_bytes = kib * 1024;
	else
		(void)sscanf(line, "Cpus_allowed_list: %127s", out->cpus);
}

void metrics_host_read(struct metrics_host_rank *out)
{
	char line[4096];
	FILE *status;

	memset(out, 0, sizeof(*out)); /* its bytes are sent */
	out->pid = getpid();
	if (gethostname(out->hostname, sizeof(out->hostname) - 1) < 0)
		out->hostname[0] = '\0';
	status = fopen("/proc/self/status", "re");
	if (status == NULL)
		return;
	while (fgets(line, sizeof(line), status) != NULL)
		take_status_line(out, line);
	fclose(status);
}

static bool read_count(const char *root, int package, const char *name, int64_t *out)
{
	char path[512];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), "%s/intel-rapl:%d/%s", root, package, name);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	good = fscanf(file, "%" SCNd64, out) == 1;
	fclose(file);
	return good;
}

void metrics_host_read_energy(const char *root, struct metrics_host_energy *out)
{
	*out = (struct metrics_host_energy){0};
	while (out->n < METRICS_HOST_PACKAGES_MAX &&
		read_count(root, out->n, "energy_uj", &out->uj[out->n]) &&
		read_count(root, out->n, "max_energy_range_uj", &out->range_uj[out->n]))
		out->n++;
}

double metrics_host_energy_between(
	const struct metrics_host_energy *before, const struct metrics_host_energy *after)
{
	double uj = 0;

	if (before->n == 0 || before->n != after->n)
		return (double)NAN;
	for (int i = 0; i < after->n; i++) {
		uj += (double)(after->uj[i] - before->uj[i]);
		if (after->uj[i] < before->uj[i])
			uj += (double)after->range_uj[i];
	}
	return uj / 1e6;
}

int metrics_host_reset_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, "5", 1) != 1) /* 5: VmHWM alone, see proc(5) */
		rc = -errno;
	close(fd);
	return rc;
}

json_t *metrics_host_os(void)
{
	char libc[64] = "";
	struct utsname u;

	if (uname(&u) < 0)
		return json_null();
	if (confstr(_CS_GNU_LIBC_VERSION, libc, sizeof(libc)) == 0)
		return json_sprintf("%s-%s-%s", u.sysname, u.release, u.machine);
	if (strchr(libc, ' ') != NULL)
		memmove(strchr(libc, ' '), strchr(libc, ' ') + 1, strlen(strchr(libc, ' ')));
	return json_sprintf("%s-%s-%s-with-%s", u.sysname, u.release, u.machine, libc);
}

/* Bytes of the environment may not be UTF-8; then there is no JSON string of them. */
static json_t *string_or_null(const char *value)
{
	json_t *string = value != NULL ? json_string(value) : NULL;

	return string != NULL ? string : json_null();
}

json_t *metrics_host_variable(const char *name)
{
	return string_or_null(getenv(name));
}

static bool has_prefix(const char *variable, const char *const *prefixes)
{
	size_t i;

	for (i = 0; prefixes[i] != NULL; i++) {
		if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	}
	return false;
}

json_t *metrics_host_variables(const char *const *prefixes)
{
	json_t *out = json_object();
	char **at;

	for (at = environ; out != NULL && at != NULL && *at != NULL; at++) {
		const char *equals = strchr(*at, '=');
		char name[256];

		if (equals == NULL || (size_t)(equals - *at) >= sizeof(name))
			continue;
		if (!has_prefix(*at, prefixes))
			continue;
		memcpy(name, *at, (size_t)(equals - *at));
		name[equals - *at] = '\0';
		json_object_set_new(out, name, string_or_null(equals + 1));
	}
	return out;
}

json_t *metrics_host_scheduler(void)
{
	if (getenv("SLURM_JOB_ID") == NULL)
		return json_null();
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "type", "slurm", "job_id",
		metrics_host_variable("SLURM_JOB_ID"), "nodelist",
		metrics_host_variable("SLURM_JOB_NODELIST"), "nnodes",
		metrics_host_variable("SLURM_JOB_NUM_NODES"), "procid",
		metrics_host_variable("SLURM_PROCID"), "localid",
		metrics_host_variable("SLURM_LOCALID"), "partition",
		metrics_host_variable("SLURM_JOB_PARTITION"));
}
