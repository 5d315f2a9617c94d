#include "daemon/store/run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "proto/host/clock.h"
#include "proto/state_files.h"
#include "proto/text.h"

static const char *const state_names[RUN_STATES] = {
	[RUN_QUEUED] = "queued",
	[RUN_STARTING] = "starting",
	[RUN_RUNNING] = "running",
	[RUN_FINISHING] = "finishing",
	[RUN_DONE] = "done",
	[RUN_FAILED] = "failed",
	[RUN_CANCELLED] = "cancelled",
	[RUN_INTERRUPTED] = "interrupted",
};

#define BIT(state) (1u << (state))

static const unsigned followers[RUN_STATES] = {
	[RUN_QUEUED] = BIT(RUN_STARTING) | BIT(RUN_FAILED) | BIT(RUN_CANCELLED),
	[RUN_STARTING] =
		BIT(RUN_RUNNING) | BIT(RUN_FAILED) | BIT(RUN_CANCELLED) | BIT(RUN_INTERRUPTED),
	[RUN_RUNNING] =
		BIT(RUN_FINISHING) | BIT(RUN_FAILED) | BIT(RUN_CANCELLED) | BIT(RUN_INTERRUPTED),
	[RUN_FINISHING] = BIT(RUN_DONE) | BIT(RUN_FAILED) | BIT(RUN_INTERRUPTED),
	[RUN_INTERRUPTED] = BIT(RUN_QUEUED),
};

const char *run_state_name(enum run_state state)
{
	return state_names[state];
}

int run_state_parse(const char *name, enum run_state *out)
{
	for (int i = 0; i < RUN_STATES; i++) {
		if (strcmp(name, state_names[i]) == 0) {
			*out = (enum run_state)i;
			return 0;
		}
	}
	return -EINVAL;
}

bool run_state_ended(enum run_state state)
{
	return state >= RUN_DONE;
}

bool run_may(enum run_state from, enum run_state to)
{
	return (followers[from] & BIT(to)) != 0;
}

bool run_continues(const struct run *run)
{
	return run->segments > 1;
}

int run_transition(struct run *run, enum run_state to, const char *reason, int64_t at_ns)
{
	if (!run_may(run->state, to))
		return -EINVAL;
	if (to == RUN_QUEUED && !run_continues(run)) {
		run->attempt++;
		run->started_ns = 0;
		run->segments_done = 0;
	}
	if (to == RUN_STARTING && run->started_ns == 0)
		run->started_ns = at_ns;
	run->ended_ns = run_state_ended(to) ? at_ns : 0;
	run->state = to;
	snprintf(run->reason, sizeof(run->reason), "%s", reason ? reason : "");
	text_clean(run->reason);
	return 0;
}

enum run_state run_reported(const struct run *run)
{
	return run->end_pending ? run->before : run->state;
}

const char *run_reason(const struct run *run)
{
	const char *name = run_state_name(run->state);
	const size_t n = strlen(name);

	if (strncmp(run->reason, name, n) == 0 && strncmp(run->reason + n, ": ", 2) == 0)
		return run->reason + n + 2;
	return run->reason;
}

int run_dir_now(int64_t id, const char *state_dir, const char *then, char *out, size_t out_bytes)
{
	const char *tail = then, *found;
	char mark[32];
	int n;

	snprintf(mark, sizeof(mark), "/" STATE_RUNS "/%lld-", (long long)id);
	while ((found = strstr(tail, mark)) != NULL)
		tail = found + 1;
	n = tail == then ? snprintf(out, out_bytes, "%s", then)
			 : snprintf(out, out_bytes, "%s/%s", state_dir, tail);
	return n >= 0 && (size_t)n < out_bytes ? 0 : -ENAMETOOLONG;
}

int run_dir(const struct run *run, const char *state_dir, char *out, size_t out_bytes)
{
	char attempt[24] = "";
	int n;

	if (run->attempt > 1)
		snprintf(attempt, sizeof(attempt), ".%lld", (long long)run->attempt);
	n = snprintf(out, out_bytes, "%s/" STATE_RUNS "/%lld-%s%s", state_dir, (long long)run->id,
		run->name, attempt);
	return n >= 0 && (size_t)n < out_bytes ? 0 : -ENAMETOOLONG;
}

int run_segment_dir(const char *dir, int64_t segment, const char *arm, char *out, size_t out_bytes)
{
	int n = snprintf(out, out_bytes, "%s/segments/%03lld-%s", dir, (long long)segment + 1, arm);

	return n >= 0 && (size_t)n < out_bytes ? 0 : -ENAMETOOLONG;
}

/* The reason for clients; NULL: none. */
static const char *reported_reason(const struct run *run)
{
	return run->reason[0] && !run->end_pending ? run->reason : NULL;
}

json_t *run_state_json(const struct run *run)
{
	return json_pack("{ss ss?}", "state", run_state_name(run_reported(run)), "reason",
		reported_reason(run));
}

json_t *run_json(const struct run *run, const char *state_dir)
{
	char dir[PATH_MAX];

	if (run_dir(run, state_dir, dir, sizeof(dir)) < 0)
		return NULL;
	return json_pack("{sI ss sI ss ss? sI so sI sI sI sI sb sb sI ss so so so ss}", "id",
		(json_int_t)run->id, "name", run->name, "uid", (json_int_t)run->uid, "state",
		run_state_name(run_reported(run)), "reason", reported_reason(run), "priority",
		(json_int_t)run->priority, "rerun_of",
		run->rerun_of ? json_integer(run->rerun_of) : json_null(), "gpus",
		(json_int_t)run->gpus, "segments", (json_int_t)run->segments, "segments_done",
		(json_int_t)run->segments_done, "attempt", (json_int_t)run->attempt, "restart",
		run->restart, "kept", run->kept, "timeout_s", (json_int_t)run->timeout_s,
		"spec_sha256", run->spec_sha256, "submitted_at", clock_json(run->submitted_ns),
		"started_at", clock_json(run->started_ns), "ended_at",
		clock_json(run->end_pending ? 0 : run->ended_ns), "dir", dir);
}
