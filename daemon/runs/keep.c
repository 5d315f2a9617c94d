#include "daemon/runs/keep.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/control/reply.h"
#include "daemon/daemon.h"
#include "daemon/store/failure.h"
#include "daemon/runs/prune.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/store/record_prune.h"
#include "daemon/control/request.h"
#include "daemon/control/role.h"
#include "proto/protocol.h"

struct keeping {
	struct daemon *daemon;
	struct reply *reply;
	int64_t id;
	bool kept;
};

static void refuse_keeping(struct keeping *k, int rc)
{
	struct reply *reply = k->reply;
	char why[FAILURE_TEXT_BYTES];

	failure_text(k->daemon->store, rc, why);
	if (rc == -ENOENT)
		request_no_run(reply, k->id);
	else
		reply_error(reply, PROTOCOL_STORE, NULL,
			"run %lld: nothing is changed, it could not be stored: %s",
			(long long)k->id, why);
	free(k);
}

static void on_kept(void *arg, int rc)
{
	struct keeping *k = arg;
	struct reply *reply = k->reply;
	struct run *run = queue_find(k->daemon->queue, k->id);

	if (rc < 0) {
		refuse_keeping(k, rc);
		return;
	}
	if (run != NULL)
		run->kept = k->kept;
	reply_result(reply, json_pack("{sI sb}", "id", (json_int_t)k->id, "kept", k->kept));
	free(k);
}

static void on_owner(void *arg, int rc, json_t *result)
{
	struct keeping *k = arg;
	struct reply *reply = k->reply;
	uid_t owner = (uid_t)request_integer(json_object_get(result, "run"), "uid", 0);

	json_decref(result);
	if (rc < 0) {
		request_unread(reply, k->daemon->store, k->id, rc);
		free(k);
	} else if (!role_may_change(reply_peer(reply), owner)) {
		request_not_owner(reply, k->id, owner);
		free(k);
	} else if (prune_has(k->daemon->pruner, k->id)) {
		reply_error(
			reply, PROTOCOL_BUSY, NULL, "run %lld: is being removed", (long long)k->id);
		free(k);
	} else {
		rc = record_keep(k->daemon->store, k->id, k->kept, on_kept, k);
		if (rc < 0)
			refuse_keeping(k, rc);
	}
}

void keep_request(struct daemon *d, struct reply *reply, json_t *params)
{
	json_t *kept = json_object_get(params, "kept");
	struct keeping *k = calloc(1, sizeof(*k));

	if (k != NULL)
		*k = (struct keeping){d, reply, request_integer(params, "id", 0),
			kept == NULL || json_is_true(kept)};
	if (k == NULL || record_show(d->store, d->state_dir, k->id, -1, 1, on_owner, k) < 0) {
		free(k);
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
	}
}
