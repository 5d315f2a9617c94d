#include "daemon/config/userns.h"

#include <stdint.h>
#include <stdio.h>

enum { OVERFLOW_STANDARD = 65534 };

/* Rows "first here, first outside, how many" of all ids but -1, which is nobody's. */
static bool maps_all(const char *map)
{
	long long here, outside, n;
	int64_t mapped = 0;
	FILE *f = fopen(map, "re");

	if (f == NULL)
		return true; /* a kernel without user namespaces, or no /proc */
	while (fscanf(f, "%lld %lld %lld", &here, &outside, &n) == 3)
		mapped += n;
	fclose(f);
	return mapped >= UINT32_MAX;
}

static bool is_overflow(const char *file, unsigned id)
{
	unsigned overflow = OVERFLOW_STANDARD;
	FILE *f = fopen(file, "re");

	if (f != NULL) {
		if (fscanf(f, "%u", &overflow) != 1)
			overflow = OVERFLOW_STANDARD;
		fclose(f);
	}
	return id == overflow;
}

bool userns_maps_all(void)
{
	return maps_all("/proc/self/uid_map");
}

bool userns_is_anybody(uid_t uid)
{
	return is_overflow("/proc/sys/kernel/overflowuid", uid) && !userns_maps_all();
}

bool userns_is_any_group(gid_t gid)
{
	return is_overflow("/proc/sys/kernel/overflowgid", gid) && !maps_all("/proc/self/gid_map");
}
