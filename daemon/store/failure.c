#include "daemon/store/failure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/store/store_sql.h"
#include "proto/host/filesystem.h"

const char failure_too_large[] = "raise the limit on the size of files (LimitFSIZE= of the unit, "
				 "ulimit -f)";

bool failure_is_full(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG;
}

void failure_describe(const char *path, int rc, struct store_failure *out)
{
	char where[PATH_MAX + 64];

	out->rc = rc;
	snprintf(out->path, sizeof(out->path), "%s", path);
	filesystem_describe(path, where, sizeof(where));
	if (rc == -EFBIG)
		snprintf(out->advice, sizeof(out->advice), "%s", failure_too_large);
	else if (failure_is_full(rc))
		snprintf(out->advice, sizeof(out->advice),
			"make room on %.500s; gpt2ctl prune removes old runs", where);
	else if (rc == -EBUSY)
		snprintf(out->advice, sizeof(out->advice),
			"fuser -v %.500s shows the process; end it, or wait for it", path);
	else if (rc == -ESTALE)
		snprintf(out->advice, sizeof(out->advice), "put it back, or restart gpt2d");
	else if (rc == -EBADMSG)
		snprintf(out->advice, sizeof(out->advice),
			"stop gpt2d, then see " STORE_DAMAGED_SECTION);
	else if (rc == -EROFS)
		snprintf(out->advice, sizeof(out->advice), "make %.500s writable", where);
	else if (rc == -ETIMEDOUT)
		snprintf(out->advice, sizeof(out->advice),
			"see the kernel's log about %.300s, or whether its server can be reached;"
			" gpt2d continues when it answers",
			where);
	else
		snprintf(out->advice, sizeof(out->advice), "see the kernel's log about %.500s",
			where);
}
