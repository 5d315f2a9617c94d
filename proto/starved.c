#include "proto/starved.h"

#include <errno.h>
#include <string.h>

const char *starved_text(int rc)
{
	if (rc == -EAGAIN)
		return "no more processes or threads: raise ulimit -u, TasksMax= of the unit";
	return strerror(-rc);
}
