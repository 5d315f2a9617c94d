/* What the machine gives: processors, memory, limits, GPUs, the clock. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/diagnosis.h"
#include "daemon/store/failure.h"
#include "daemon/config/ulimits.h"
#include "proto/host/cgroup.h"
#include "proto/host/procfs.h"

enum {
	BUILT_S = 1735689600, /* 2025: a clock before that has never been set */
	PROCESSES_ELSE = 10,  /* gpt2d's four, the checker's, what looks at versions */
	THREADS_OF_RANK = 6, /* beside those that compute */
};
static const int64_t SHM_BYTES = INT64_C(64) << 20; /* what containers give by default */
static const int64_t SHM_CPU_BYTES = INT64_C(8) << 20; /* a rank's 4.1 MiB, and those of a check */

static void check_processors(struct diagnosis *d)
{
	const struct settings *s = d->settings;
	const int usable = cgroup_processors("");
	struct utsname os;

	if (uname(&os) < 0)
		return;
	if (d->program.device != DEVICE_CUDA && usable > 0 && s->ranks > usable)
		diagnosis_add(d, "processors", VERDICT_WARN,
			"fewer ranks: each has less than one processor",
			"%d to use, %" PRId64 " ranks; Linux %s", usable, s->ranks, os.release);
	else
		diagnosis_add(d, "processors", VERDICT_OK, NULL, "%d to use, %ld on; Linux %s %s",
			usable, sysconf(_SC_NPROCESSORS_ONLN), os.release, os.machine);
}

static void check_memory(struct diagnosis *d)
{
	long long total = 0, available = 0;
	struct cgroup_memory group;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		sscanf(line, "MemTotal: %lld kB", &total);
		sscanf(line, "MemAvailable: %lld kB", &available);
	}
	if (f != NULL)
		fclose(f);
	if (cgroup_memory_read("", &group) == 0 && group.limit_bytes < total << 10)
		diagnosis_add(d, "memory", VERDICT_OK, NULL,
			"%" PRId64 " MiB by %s, %" PRId64 " MiB left; %lld MiB in the machine, "
			"%lld MiB of it available",
			group.limit_bytes >> 20, group.file, group.free_bytes >> 20, total >> 10,
			available >> 10);
	else
		diagnosis_add(d, "memory", VERDICT_OK, NULL, "%lld MiB, %lld MiB of it available",
			total >> 10, available >> 10);
}

static void check_proc(struct diagnosis *d)
{
	char why[160];

	if (procfs_check(why, sizeof(why)) < 0)
		diagnosis_add(d, "/proc", d->settings->ranks > 1 ? VERDICT_FAIL : VERDICT_WARN,
			"mount -t proc proc /proc, in the pid namespace of gpt2d (unshare "
			"--mount-proc): ranks reach each other through it",
			"%s", why);
	else
		diagnosis_add(d, "/proc", VERDICT_OK, NULL, "of this pid namespace");
}

static void check_shm(struct diagnosis *d)
{
	const uid_t own = geteuid();
	struct statvfs fs;
	struct stat st;
	const int64_t ranks = d->settings->ranks;
	int64_t size, room, needed;
	char path[64];

	if (statvfs("/dev/shm", &fs) < 0) {
		diagnosis_add(d, "/dev/shm", d->settings->ranks > 1 ? VERDICT_FAIL : VERDICT_WARN,
			"mount a tmpfs there: ranks exchange data through it", "%s",
			strerror(errno));
		return;
	}
	snprintf(path, sizeof(path), "/dev/shm/gpt2d-%u", (unsigned)own);
	if (access("/dev/shm", W_OK | X_OK) < 0) {
		diagnosis_add(d, "/dev/shm", d->settings->ranks > 1 ? VERDICT_FAIL : VERDICT_WARN,
			"chmod 1777 /dev/shm: ranks exchange data through it", "%s",
			strerror(errno));
		return;
	}
	if (lstat(path, &st) == 0 && (st.st_uid != own || !S_ISDIR(st.st_mode)))
		diagnosis_add(d, "/dev/shm", VERDICT_WARN,
			"have it removed; until then ranks take another name",
			"%s is in the place of a folder of ours, and belongs to uid %u", path,
			(unsigned)st.st_uid);
	size = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	needed = (d->program.device == DEVICE_CUDA ? SHM_BYTES : SHM_CPU_BYTES) * ranks;
	if (ranks > 1 && room < needed)
		diagnosis_add(d, "/dev/shm", VERDICT_WARN,
			"a larger one (docker run --shm-size, podman run --shm-size): ranks "
			"exchange data through it",
			"%" PRId64 " MiB, %" PRId64 " MiB free, %" PRId64 " MiB needed for %" PRId64
			" ranks",
			size >> 20, room >> 20, needed >> 20, ranks);
	else if (ranks > 1 && fs.f_files > 0 && (int64_t)fs.f_favail < 2 * ranks)
		diagnosis_add(d, "/dev/shm", VERDICT_WARN,
			"have files there removed, or a larger nr_inodes= of its mount: ranks "
			"exchange data through it",
			"%" PRId64 " of %" PRId64 " files (inodes) are free, %" PRId64
			" needed for %" PRId64 " ranks",
			(int64_t)fs.f_favail, (int64_t)fs.f_files, 2 * ranks, ranks);
	else
		diagnosis_add(d, "/dev/shm", VERDICT_OK, NULL,
			"%" PRId64 " MiB, %" PRId64 " MiB free", size >> 20, room >> 20);
}

static void limit_text(rlim_t limit, char *out, size_t out_bytes)
{
	if (limit == RLIM_INFINITY)
		snprintf(out, out_bytes, "no limit");
	else
		snprintf(out, out_bytes, "%llu", (unsigned long long)limit);
}

/* The queue's database grows, and so do the files of runs. */
static void check_file_size(struct diagnosis *d)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_FSIZE, &files) < 0)
		return;
	if (files.rlim_cur == RLIM_INFINITY)
		diagnosis_add(d, "fsize", VERDICT_OK, NULL, "no limit");
	else
		diagnosis_add(d, "fsize", VERDICT_WARN, failure_too_large,
			"a file has at most %llu bytes", (unsigned long long)files.rlim_cur);
}

/* What it ends, gpt2d or an engine, ends by a signal, after so long that nobody thinks of it. */
static void check_cpu_time(struct diagnosis *d)
{
	struct rlimit cpu;

	if (getrlimit(RLIMIT_CPU, &cpu) < 0)
		return;
	if (cpu.rlim_cur == RLIM_INFINITY)
		diagnosis_add(d, "cputime", VERDICT_OK, NULL, "no limit");
	else
		diagnosis_add(d, "cputime", VERDICT_WARN,
			"take the limit away (LimitCPU= of the unit, ulimit -t)",
			"a process ends after %llu s of processor time",
			(unsigned long long)cpu.rlim_cur);
}

/* With too little of it gpt2d does not come this far. */
static void check_stack(struct diagnosis *d)
{
	struct rlimit stack;

	if (getrlimit(RLIMIT_STACK, &stack) < 0)
		return;
	if (stack.rlim_cur == RLIM_INFINITY)
		diagnosis_add(d, "stack", VERDICT_OK, NULL, "no limit");
	else
		diagnosis_add(d, "stack", VERDICT_OK, NULL, "%llu KiB, %d needed",
			(unsigned long long)stack.rlim_cur >> 10, ULIMITS_STACK_KIB);
}

static void check_descriptors(struct diagnosis *d)
{
	struct ulimits_descriptors found;

	if (ulimits_descriptors(d->settings, &found) == 0)
		diagnosis_add(d, "nofile",
			found.too_few ? VERDICT_FAIL : found.advice ? VERDICT_WARN : VERDICT_OK,
			found.advice, "%s", found.text);
}

static void check_locked(struct diagnosis *d)
{
	struct rlimit locked;
	char text[32];

	if (getrlimit(RLIMIT_MEMLOCK, &locked) < 0)
		return;
	limit_text(locked.rlim_max, text, sizeof(text));
	if (d->program.device == DEVICE_CUDA && locked.rlim_max < (rlim_t)SHM_BYTES)
		diagnosis_add(d, "memlock", VERDICT_WARN,
			"raise it (LimitMEMLOCK=infinity of the unit, ulimit -Hl)",
			"%s bytes: transfers between GPUs may want more", text);
	else
		diagnosis_add(d, "memlock", VERDICT_OK, NULL, "%s%s", text,
			locked.rlim_max == RLIM_INFINITY ? "" : " bytes");
}

/* What gpt2d, its engines and the checker start, each thread counts as one. */
static int64_t processes_needed(const struct settings *s)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int64_t threads = s->threads;

	if (threads == 0)
		threads = processors > s->ranks ? processors / s->ranks : 1;
	return PROCESSES_ELSE + s->ranks * (threads + THREADS_OF_RANK);
}

static void check_processes(struct diagnosis *d)
{
	static const char advice[] =
		"raise it (TasksMax= and LimitNPROC= of the unit, ulimit -u, --pids-limit)";
	const int64_t needed = processes_needed(d->settings);
	char text[32];
	struct rlimit limit;

	if (getrlimit(RLIMIT_NPROC, &limit) < 0)
		return;
	limit_text(limit.rlim_cur, text, sizeof(text));
	if (geteuid() != 0 && limit.rlim_cur < (rlim_t)needed)
		diagnosis_add(d, "nproc", VERDICT_WARN, advice,
			"%s processes and threads for all of this user, about %" PRId64 " needed",
			text, needed);
	else
		diagnosis_add(d, "nproc", VERDICT_OK, NULL, "%s", text);
}

static void check_gpus(struct diagnosis *d)
{
	char line[256] = "", why[512];
	FILE *f = fopen("/proc/driver/nvidia/version", "re");
	bool driver = f != NULL && fgets(line, sizeof(line), f) != NULL;
	glob_t found = {0};
	size_t n = 0;

	if (f != NULL)
		fclose(f);
	line[strcspn(line, "\n")] = '\0';
	if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0)
		n = found.gl_pathc;
	if (n > 0 && access(found.gl_pathv[0], R_OK | W_OK) < 0)
		diagnosis_add(d, "GPUs", VERDICT_WARN,
			"be in the group that the device belongs to (video, render)", "%s: %s",
			found.gl_pathv[0], strerror(errno));
	else if (n > 0)
		diagnosis_add(d, "GPUs", VERDICT_OK, NULL, "%zu device%s; %s", n, n == 1 ? "" : "s",
			driver ? line : "the driver does not tell its version");
	else if (driver)
		diagnosis_add(d, "GPUs", VERDICT_WARN,
			"nvidia-modprobe makes the devices; a container has to be given them "
			"(--gpus all)",
			"%s, but no /dev/nvidia0", line);
	else if (engine_program_gpu(why, sizeof(why)) == 0)
		diagnosis_add(d, "GPUs", VERDICT_OK, NULL, "that of the Windows host (/dev/dxg)");
	else
		diagnosis_add(d, "GPUs", VERDICT_OK, NULL, "none: no NVIDIA driver, no device");
	globfree(&found);
	if (d->program.device == DEVICE_CUDA && n > 0 && (size_t)d->settings->ranks > n)
		diagnosis_add(d, "ranks", VERDICT_FAIL, "set ranks to the number of GPUs",
			"%" PRId64 " ranks, one GPU for each, %zu GPUs", d->settings->ranks, n);
}

static void check_clock(struct diagnosis *d)
{
	struct timex t = {0};
	char at[32];
	time_t now = (time_t)(clock_utc_ns() / CLOCK_S_NS);
	struct tm utc;
	int state = adjtimex(&t);

	gmtime_r(&now, &utc);
	strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", &utc);
	if (now < 0)
		diagnosis_add(d, "clock", VERDICT_FAIL,
			"set it: gpt2d does not start before 1970", "%s", at);
	else if (now < BUILT_S)
		diagnosis_add(d, "clock", VERDICT_WARN, "set it: the times of runs would be wrong",
			"%s", at);
	else
		diagnosis_add(d, "clock", VERDICT_OK, NULL, "%s, %s", at,
			state < 0 ? "not known whether it is kept right"
				: (t.status & STA_UNSYNC) != 0
				? "not kept right by a time service (durations do not go by it)"
				: "kept right by a time service");
}

void diagnosis_machine(struct diagnosis *d)
{
	check_processors(d);
	check_memory(d);
	check_proc(d);
	check_shm(d);
	check_descriptors(d);
	check_locked(d);
	check_processes(d);
	check_file_size(d);
	check_cpu_time(d);
	check_stack(d);
	check_gpus(d);
	check_clock(d);
}
