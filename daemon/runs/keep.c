#include "daemon/runs/keep.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/control/client.h"
#include "daemon/control/control.h"
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
	uint64_t client;
	int64_t id;
	bool kept;
};

static struct client *keeping_client(const struct keeping *k)
{
	return control_find(k->daemon->control, k->client);
}

static void refuse_keeping(struct keeping *k, int rc)
{
	struct client *client = keeping_client(k);
	char why[FAILURE_TEXT_BYTES];

	failure_text(k->daemon->store, rc, why);
	if (client != NULL && rc == -ENOENT)
		request_no_run(client, k->id);
	else if (client != NULL)
		client_refuse(client, PROTOCOL_STORE, NULL,
			"run %lld: nothing is changed, it could not be stored: %s",
			(long long)k->id, why);
	free(k);
}

static void on_kept(void *arg, int rc)
{
	struct keeping *k = arg;
	struct client *client = keeping_client(k);
	struct run *run = queue_find(k->daemon->queue, k->id);

	if (rc < 0) {
		refuse_keeping(k, rc);
		return;
	}
	if (run != NULL)
		run->kept = k->kept;
	if (client != NULL)
		client_reply(
			client, json_pack("{sI sb}", "id", (json_int_t)k->id, "kept", k->kept));
	free(k);
}

static void on_owner(void *arg, int rc, json_t *result)
{
	struct keeping *k = arg;
	struct client *client = keeping_client(k);
	uid_t owner = (uid_t)request_integer(json_object_get(result, "run"), "uid", 0);

	json_decref(result);
	if (client == NULL) {
		free(k);
	} else if (rc < 0) {
		request_unread(client, k->daemon->store, k->id, rc);
		free(k);
	} else if (!role_may_change(client_peer(client), owner)) {
		request_not_owner(client, k->id, owner);
		free(k);
	} else if (prune_has(k->daemon->pruner, k->id)) {
		client_refuse(client, PROTOCOL_BUSY, NULL, "run %lld: is being removed",
			(long long)k->id);
		free(k);
	} else {
		rc = record_keep(k->daemon->store, k->id, k->kept, on_kept, k);
		if (rc < 0)
			refuse_keeping(k, rc);
	}
}

void keep_request(struct daemon *d, struct client *client, json_t *params)
{
	json_t *kept = json_object_get(params, "kept");
	struct keeping *k = calloc(1, sizeof(*k));

	if (k != NULL)
		*k = (struct keeping){d, client_peer(client)->number,
			request_integer(params, "id", 0), kept == NULL || json_is_true(kept)};
	if (k == NULL || record_show(d->store, d->state_dir, k->id, -1, 1, on_owner, k) < 0) {
		free(k);
		client_refuse(client, PROTOCOL_INTERNAL, NULL, "out of memory");
	}
}
