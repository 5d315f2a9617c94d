#include "daemon/runs/prune_params.h"

#include <inttypes.h>

#include "daemon/config/clock.h"
#include "daemon/control/request.h"
#include "daemon/control/role.h"
#include "proto/protocol.h"

enum { BATCH_STANDARD = 50, BATCH_MAX = 1000 };

/* What is not given is fine; a number below 0 is not. */
static bool fits(const json_t *params, const char *key, int64_t max)
{
	int64_t value = request_integer(params, key, 0);

	return value >= 0 && value <= max;
}

bool prune_params_take(struct reply *reply, json_t *params, struct record_prunable *what)
{
	const char *state = json_string_value(json_object_get(params, "state"));
	int64_t older_s = request_integer(params, "older_than_s", -1);
	enum run_state parsed = RUN_DONE;

	*what = (struct record_prunable){.keep = request_integer(params, "keep", -1),
		.ended_before_ns = INT64_MAX,
		.uid = reply_peer(reply)->admin ? -1 : (int64_t)reply_peer(reply)->uid,
		.state = -1,
		.after = request_integer(params, "after", 0),
		.limit = request_integer(params, "limit", BATCH_STANDARD),
		.count_kept = true};
	if (!fits(params, "keep", INT64_MAX) || !fits(params, "after", INT64_MAX) ||
		!fits(params, "older_than_s", PROTOCOL_OLDER_S_MAX)) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"keep, after: 0 and above are allowed; older_than_s: 0 to %" PRId64,
			PROTOCOL_OLDER_S_MAX);
		return false;
	}
	if (role_is_nobody(reply_peer(reply))) {
		request_of_nobody(reply);
		return false;
	}
	if (what->limit < 1 || what->limit > BATCH_MAX) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "limit: 1 to %d is allowed",
			BATCH_MAX);
		return false;
	}
	if (json_object_get(params, "keep") == NULL && state == NULL && older_s < 0) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"prune: one of keep, older_than_s and state is needed");
		return false;
	}
	if (state != NULL && (run_state_parse(state, &parsed) < 0 || !run_state_ended(parsed))) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"state: \"%.32s\" is no state of a run that has ended (done, failed, "
			"cancelled, interrupted)",
			state);
		return false;
	}
	if (state != NULL)
		what->state = (int)parsed;
	if (older_s >= 0)
		what->ended_before_ns = clock_utc_ns() - older_s * CLOCK_S_NS;
	return true;
}
