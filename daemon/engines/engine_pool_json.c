/* What is told of the engines: their states by name, since when, how soon. */
#include "daemon/engines/engine_link.h"
#include "daemon/engines/engine_pool_private.h"

static const char *const pool_state_names[] = {
	"down",
	"starting",
	"ready",
	"failing",
	"releasing",
	"released",
	"stopping",
	"stopped",
};

static const char *const rank_state_names[] = {"down", "starting", "connecting", "ready"};

double engine_pool_starting_s(const struct engine_pool *p)
{
	return p->state == POOL_STARTING ? (double)(clock_mono_ns() - p->started_ns) / 1e9 : -1.0;
}

int64_t engine_pool_retry_s(const struct engine_pool *p)
{
	int64_t retry = (p->retry_ns - clock_mono_ns() + CLOCK_S_NS - 1) / CLOCK_S_NS;

	return p->state != POOL_DOWN ? -1 : retry > 0 ? retry : 0;
}

json_t *engine_pool_json(const struct engine_pool *p)
{
	json_t *ranks = json_array();
	double starting = engine_pool_starting_s(p);
	int64_t retry = engine_pool_retry_s(p);

	for (int i = 0; i < p->o.ranks; i++) {
		const struct rank *r = &p->ranks[i];

		json_array_append_new(ranks,
			json_pack("{si sI ss sO? sO?}", "rank", i, "pid",
				(json_int_t)(r->link ? engine_link_pid(r->link) : 0), "state",
				rank_state_names[r->state], "device", r->device, "gpu", r->gpu));
	}
	return json_pack("{ss ss? ss si sI so so so so}", "state", pool_state_names[p->state],
		"reason", p->reason[0] ? p->reason : NULL, "program", p->o.program, "threads",
		p->o.threads, "restarts", (json_int_t)p->restarts, "starting_s",
		starting >= 0 ? json_real(starting) : json_null(), "ready_after_s",
		p->ready_ns > 0 ? json_real((double)p->ready_ns / 1e9) : json_null(), "retry_in_s",
		retry >= 0 ? json_integer(retry) : json_null(), "ranks", ranks);
}

const char *engine_pool_state_name(const struct engine_pool *p)
{
	return pool_state_names[p->state];
}

const char *engine_pool_reason(const struct engine_pool *p)
{
	return p->reason;
}
