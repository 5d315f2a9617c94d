#include "daemon/store/unstored.h"

#include <stdbool.h>
#include <string.h>

#include "proto/host/clock.h"
#include "daemon/daemon.h"
#include "daemon/runs/queue.h"
#include "daemon/store/run.h"
#include "daemon/store/store.h"

static struct run *find(const struct daemon *d, const json_t *stored)
{
	return queue_find(d->queue, json_integer_value(json_object_get(stored, "id")));
}

static bool is_later(const struct run *run, enum run_state state, const json_t *last)
{
	const char *last_at = json_string_value(json_object_get(last, "at"));
	const char *last_state = json_string_value(json_object_get(last, "state"));
	char at[CLOCK_TEXT_BYTES];
	enum run_state stored;
	int order;

	if (run->moved_ns[state] == 0)
		return false;
	if (!last_at || !last_state || run_state_parse(last_state, &stored) < 0)
		return true;
	clock_text(run->moved_ns[state], at);
	order = strcmp(at, last_at);
	return order > 0 || (order == 0 && state > stored);
}

static void add_transitions(const struct run *run, json_t *transitions)
{
	json_t *last = json_array_get(transitions, json_array_size(transitions) - 1);
	bool later[RUN_STATES];

	for (int i = 0; i <= (int)run_told(run); i++)
		later[i] = is_later(run, (enum run_state)i, last);
	for (int i = 0; i <= (int)run_told(run); i++)
		if (later[i])
			json_array_append_new(transitions,
				json_pack("{so ss ss}", "at", clock_json(run->moved_ns[i]), "state",
					run_state_name((enum run_state)i), "reason",
					i == (int)run->state ? run->reason : ""));
}

void unstored_show(const struct daemon *d, json_t *result)
{
	const struct run *run = find(d, json_object_get(result, "run"));
	json_t *now;

	if (run == NULL || !store_failing(d->store))
		return;
	now = run_json(run, d->state_dir);
	if (now != NULL)
		json_object_set_new(result, "run", now);
	add_transitions(run, json_object_get(result, "transitions"));
}

void unstored_logs(const struct daemon *d, json_t *result)
{
	const struct run *run = find(d, result);

	if (run != NULL && store_failing(d->store))
		json_object_set_new(result, "state", json_string(run_state_name(run_told(run))));
}

void unstored_list(const struct daemon *d, json_t *result, int state)
{
	json_t *runs = json_object_get(result, "runs"), *stored, *now;
	const struct run *run;
	size_t i;

	if (!store_failing(d->store))
		return;
	json_array_foreach(runs, i, stored) {
		run = find(d, stored);
		now = run ? run_json(run, d->state_dir) : NULL;
		if (now != NULL)
			json_array_set_new(runs, i, now);
	}
	for (i = json_array_size(runs); state >= 0 && i > 0; i--) {
		now = json_object_get(json_array_get(runs, i - 1), "state");
		if (strcmp(json_string_value(now), run_state_name((enum run_state)state)) != 0)
			json_array_remove(runs, i - 1); /* it has another since it was looked up */
	}
}
