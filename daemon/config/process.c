#include "daemon/config/process.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

void process_describe(pid_t pid, char *out, size_t out_bytes)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = '\0';
	snprintf(out, out_bytes, "%s%spid %d", path, n > 0 ? ", " : "", (int)pid);
}
