#include "proto/starved.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

static bool address_space_is_limited(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

const char *starved_text(int rc)
{
	if (rc == -EAGAIN && address_space_is_limited())
		return "no more processes or threads, or no address space for one: raise "
		       "ulimit -v or -u, LimitAS= or TasksMax= of the unit";
	if (rc == -EAGAIN)
		return "no more processes or threads: raise ulimit -u, TasksMax= of the unit";
	return strerror(-rc);
}
