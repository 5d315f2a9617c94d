#include "daemon/outlook.h"

#include <stdarg.h>
#include <stdio.h>

#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/nodes/world.h"
#include "daemon/control/follow.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"
#include "proto/text.h"
#include "proto/duration.h"
#include "proto/waiting.h"

enum { WHY_BYTES = 900 };

/* Seconds until the run in progress is trained; negative: not known. */
static double left_s(const struct daemon *d)
{
	struct run *run = scheduler_running(d->scheduler);
	json_t *progress, *eta;
	double left = -1.0;

	if (run == NULL)
		return left;
	progress = follow_progress(d->follow, run->id);
	eta = json_object_get(progress, "eta_s");
	if (json_is_number(eta))
		left = json_number_value(eta);
	json_decref(progress);
	return left;
}

static void say(char why[WHY_BYTES], enum waiting code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void say(char why[WHY_BYTES], enum waiting code, const char *format, ...)
{
	int n = snprintf(why, WHY_BYTES, "%s: ", waiting_code(code));
	va_list args;

	va_start(args, format);
	vsnprintf(why + n, (size_t)(WHY_BYTES - n), format, args);
	va_end(args);
}

static void why_engines(const struct daemon *d, char why[WHY_BYTES])
{
	const struct engine_pool *pool = d->pool;
	const char *reason = engine_pool_reason(pool);
	int64_t retry = engine_pool_retry_s(pool);
	double starting = engine_pool_starting_s(pool);
	char missing[128];

	if (world_waits(d->world, missing, sizeof(missing)))
		say(why, WAITING_NODES, "%s%s%s", missing,
			reason[0] ? "; why the engines ended: " : "", reason);
	else if (starting >= 0)
		say(why, WAITING_ENGINES, "they have been starting for %.0f s", starting);
	else if (engine_pool_away(pool))
		say(why, WAITING_ENGINES, "they are released and start soon");
	else if (retry >= 0)
		say(why, WAITING_ENGINES, "gpt2d restarts them in %lld s%s%s", (long long)retry,
			reason[0] ? "; why they ended: " : "", reason);
	else
		say(why, WAITING_ENGINES, "%s%s%s", engine_pool_state_name(pool),
			reason[0] ? ", " : "", reason);
}

/* What to start gpt2d with. */
static const char *more_ranks(const struct daemon *d, const struct run *run, char out[64])
{
	if (d->settings->nodes > 1)
		snprintf(out, 64, "more nodes or with more ranks on each");
	else
		snprintf(out, 64, "--ranks %lld", (long long)run->gpus);
	return out;
}

/* before: the queued run before this one, NULL for the head of the queue. */
static void why_waits(const struct daemon *d, const struct run *run, const struct run *before,
	char why[WHY_BYTES])
{
	const struct run *running = scheduler_running(d->scheduler);
	const char *held = hold_reason(d->holds, HOLDS);
	const bool room = held != NULL && held == hold_reason(d->holds, HOLD_ROOM);
	double left = left_s(d);
	struct store_failure failure;
	char text[DURATION_BYTES], more[64];

	if (held != NULL && !room)
		snprintf(why, WHY_BYTES, "%s", held);
	else if (!queue_fits(d->queue, run))
		say(why, WAITING_RANKS, "it trains on %lld, gpt2d has %lld; start it with %s",
			(long long)run->gpus, (long long)settings_world(d->settings),
			more_ranks(d, run, more));
	else if (store_failure(d->store, &failure))
		say(why, WAITING_STORE, "%.300s cannot be written: %s; %s", failure.path,
			store_error_text(failure.rc), failure.advice);
	else if (held != NULL)
		snprintf(why, WHY_BYTES, "%s", held);
	else if (before != NULL)
		say(why, WAITING_BEHIND, "run %lld is queued before it", (long long)before->id);
	else if (running != NULL && left >= 0)
		say(why, WAITING_BEHIND, "run %lld is %s, about %s left", (long long)running->id,
			run_state_name(running->state), duration_text(left, text));
	else if (running != NULL)
		say(why, WAITING_BEHIND, "run %lld is %s", (long long)running->id,
			run_state_name(running->state));
	else if (!engine_pool_ready(d->pool))
		why_engines(d, why);
	else
		say(why, WAITING_PREPARING, "it is being prepared");
}

static json_t *starts_in_s(const struct daemon *d, const struct run *run, const struct run *before)
{
	double left = left_s(d);

	if (!queue_fits(d->queue, run) || before != NULL || left < 0 || !hold_none(d->holds) ||
		store_failing(d->store))
		return json_null();
	return json_real(left);
}

json_t *outlook_head(const struct daemon *d)
{
	const struct run *run = queue_next(d->queue, NULL);
	char why[WHY_BYTES];

	if (run == NULL)
		return json_null();
	why_waits(d, run, NULL, why);
	return text_json(why);
}

/* before: as for why_waits. */
static json_t *describe(
	const struct daemon *d, const struct run *run, int64_t position, const struct run *before)
{
	char why[WHY_BYTES];

	why_waits(d, run, before, why);
	return json_pack("{sI so so}", "position", (json_int_t)position, "waiting", text_json(why),
		"starts_in_s", starts_in_s(d, run, before));
}

json_t *outlook_run(const struct daemon *d, const struct run *run)
{
	const struct run *before = NULL, *next = queue_next(d->queue, NULL);
	int64_t position = 0;

	if (run->state != RUN_QUEUED)
		return json_null();
	for (; next != NULL && next != run; next = queue_next(d->queue, next)) {
		before = next;
		position++;
	}
	return describe(d, run, position, before);
}

json_t *outlook_queue(const struct daemon *d)
{
	const struct run *before = NULL, *run = queue_next(d->queue, NULL);
	json_t *rows = json_array(), *row;

	for (int64_t i = 0; run != NULL && i < OUTLOOK_RUNS_MAX; i++) {
		row = json_pack("{sI ss sI sI}", "id", (json_int_t)run->id, "name", run->name,
			"uid", (json_int_t)run->uid, "priority", (json_int_t)run->priority);
		json_object_update_new(row, describe(d, run, i, before));
		json_array_append_new(rows, row);
		before = run;
		run = queue_next(d->queue, run);
	}
	return rows;
}
