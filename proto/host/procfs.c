#include "proto/host/procfs.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int procfs_check(char *why, size_t why_bytes)
{
	char self[16] = "";
	struct statfs fs;

	if (statfs("/proc", &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC) {
		snprintf(why, why_bytes, "/proc: no proc file system is mounted there");
		return -ENOENT;
	}
	if (readlink("/proc/self", self, sizeof(self) - 1) >= 0 && atol(self) == getpid())
		return 0;
	snprintf(why, why_bytes,
		"/proc is of another pid namespace: it has %s for process %ld of this one",
		self[0] != '\0' ? self : "nothing", (long)getpid());
	return -EXDEV;
}

void procfs_describe(pid_t pid, char *out, size_t out_bytes)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = '\0';
	snprintf(out, out_bytes, "%s%spid %d", path, n > 0 ? ", " : "", (int)pid);
}

bool procfs_owner(pid_t pid, uid_t *uid, char *name, size_t name_bytes)
{
	char path[32];
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	if (fstat(fileno(f), &st) < 0 || fgets(name, (int)name_bytes, f) == NULL) {
		fclose(f);
		return false;
	}
	fclose(f);
	name[strcspn(name, "\n")] = '\0';
	*uid = st.st_uid;
	return true;
}
