#include "daemon/runs/recover.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/daemon.h"
#include "daemon/store/failure.h"
#include "daemon/config/log.h"
#include "daemon/store/record_prune.h"
#include "proto/state_files.h"
#include "daemon/store/store.h"
#include "daemon/runs/trash.h"

static int remove_rows(int64_t id, void *arg)
{
	struct daemon *d = arg;
	struct run was;
	int rc = record_ended_now(d->store, id, &was);

	if (rc == -ENOENT)
		return 0; /* they are gone */
	if (rc == 0)
		rc = trash_move(d->state_dir, &was);
	if (rc == 0)
		rc = trash_clear(d->state_dir, &was);
	if (rc == 0)
		rc = record_delete_now(d->store, id);
	if (failure_is_full(rc) && trash_empty(d->state_dir, &was, INT64_MAX) == 0)
		rc = record_delete_now(d->store, id);
	if (rc == 0)
		log_write(LOG_INFO, "run %lld: its removal is finished", (long long)id);
	return rc;
}

int recover_removals(struct daemon *d, char *error, size_t error_bytes)
{
	int rc = trash_each(d->state_dir, remove_rows, d);

	if (rc < 0)
		snprintf(error, error_bytes, "%s/" STATE_TRASH ": %s", d->state_dir,
			store_error_text(rc));
	return rc;
}
