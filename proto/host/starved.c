#include "proto/host/starved.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

static bool is_limited(int resource)
{
	struct rlimit limit;

	return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

const char *starved_text(int rc)
{
	if (rc == -EAGAIN && is_limited(RLIMIT_AS))
		return "no more processes or threads, or no address space for one: raise "
		       "ulimit -v or -u, LimitAS= or TasksMax= of the unit";
	if (rc == -EAGAIN)
		return "no more processes or threads: raise ulimit -u, TasksMax= of the unit";
	return strerror(-rc);
}

const char *starved_memory_text(void)
{
	if (is_limited(RLIMIT_AS))
		return ": address space is limited (ulimit -v, LimitAS= of the unit)";
	if (is_limited(RLIMIT_DATA))
		return ": data segments are limited (ulimit -d, LimitDATA= of the unit)";
	return "";
}
