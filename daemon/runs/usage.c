#include "daemon/runs/usage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/cgroup.h"

/* What follows the name, which may hold blanks and parentheses: field 3 and on of proc(5). */
static const char *behind_name(const char *stat)
{
	const char *end = strrchr(stat, ')');

	return end ? end + 1 : NULL;
}

static int read_stat(pid_t pid, double *cpu_s, int64_t *rss_bytes)
{
	char path[64], line[1024] = "";
	const char *rest;
	uint64_t user, kernel;
	int64_t pages;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	f = fopen(path, "re");
	if (f == NULL)
		return -1;
	rest = fgets(line, sizeof(line), f) ? behind_name(line) : NULL;
	fclose(f);
	if (rest == NULL ||
		sscanf(rest,
			" %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64
			" %*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64,
			&user, &kernel, &pages) != 3)
		return -1;
	*cpu_s = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
	*rss_bytes = pages * sysconf(_SC_PAGESIZE);
	return 0;
}

void usage_add(json_t *object, pid_t pid)
{
	double cpu_s = 0.0;
	int64_t rss_bytes = 0;
	const int rc = pid > 0 ? read_stat(pid, &cpu_s, &rss_bytes) : -1;

	json_object_set_new(object, "cpu_s", rc == 0 ? json_real(cpu_s) : json_null());
	json_object_set_new(
		object, "rss_bytes", rc == 0 ? json_integer((json_int_t)rss_bytes) : json_null());
}

/* A row of /proc/meminfo in bytes, or null. */
static json_t *meminfo(const char *name)
{
	char line[256];
	int64_t kib;
	json_t *value = NULL;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && !value && fgets(line, sizeof(line), f))
		if (strncmp(line, name, strlen(name)) == 0 &&
			sscanf(line + strlen(name), ": %" SCNd64, &kib) == 1)
			value = json_integer((json_int_t)kib * 1024);
	if (f)
		fclose(f);
	return value ? value : json_null();
}

json_t *usage_host(void)
{
	struct cgroup_memory group;
	double load;

	return json_pack("{sI so so so so}", "processors",
		(json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "load_1m",
		getloadavg(&load, 1) == 1 ? json_real(load) : json_null(), "memory_bytes",
		meminfo("MemTotal"), "memory_available_bytes", meminfo("MemAvailable"),
		"memory_limit_bytes",
		cgroup_memory_read("", &group) == 0 ? json_integer((json_int_t)group.limit_bytes)
						    : json_null());
}
