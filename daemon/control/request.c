#include "daemon/control/request.h"

#include <errno.h>

#include "daemon/control/role.h"
#include "daemon/store/store.h"
#include "proto/protocol.h"

int64_t request_integer(const json_t *params, const char *key, int64_t standard)
{
	const json_t *v = json_object_get(params, key);

	return v ? json_integer_value(v) : standard;
}

void request_no_run(struct reply *reply, int64_t id)
{
	reply_error(reply, PROTOCOL_NO_SUCH_RUN, NULL,
		"run %lld: no such run; it may have been removed by prune or retain_runs; see: "
		"gpt2ctl list",
		(long long)id);
}

void request_of_nobody(struct reply *reply)
{
	reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
		"uid %u represents all users that the user namespace of gpt2d does not map, and "
		"owns no runs; ask an admin",
		(unsigned)reply_peer(reply)->uid);
}

void request_not_owner(struct reply *reply, int64_t id, uid_t owner)
{
	if (role_is_nobody(reply_peer(reply)))
		request_of_nobody(reply);
	else
		reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
			"run %lld: belongs to another user; ask uid %u, or an admin", (long long)id,
			(unsigned)owner);
}

void request_unread(struct reply *reply, struct store *s, int64_t id, int rc)
{
	char why[FAILURE_TEXT_BYTES];

	store_failure_text(s, rc, why);
	if (rc == -ENOENT)
		request_no_run(reply, id);
	else
		reply_error(reply, PROTOCOL_STORE, NULL, "the store cannot be read: %s", why);
}
