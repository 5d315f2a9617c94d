#include "ctl/print/view.h"

#include <math.h>
#include <string.h>

#include "ctl/print/format.h"
#include "proto/host/clock.h"
#include "proto/rpc.h"

void view_init(struct view *v)
{
	*v = (struct view){.segment = -1, .every = 1, .reply_s = CLIENT_REPLY_S};
}

void view_finish(struct view *v)
{
	json_decref(v->status);
	view_init(v);
}

void view_forget_run(struct view *v)
{
	v->run = 0;
	v->segment = -1;
	v->n_losses = 0;
}

/* ---- load ---- */

static void set_load(json_t *now, const json_t *before, double seconds)
{
	const double used = format_real(now, "cpu_s") - format_real(before, "cpu_s");
	const bool same = format_int(now, "pid", 0) == format_int(before, "pid", -1);
	const bool known = same && isfinite(used) && used >= 0.0 && seconds > 0.0;

	json_object_set_new(now, "cpu_load", known ? json_real(used / seconds) : json_null());
}

static void set_loads(json_t *now, const json_t *before, double seconds)
{
	const json_t *old = json_object_get(json_object_get(before, "engine"), "ranks");
	json_t *ranks = json_object_get(json_object_get(now, "engine"), "ranks"), *rank;
	size_t i;

	set_load(json_object_get(now, "daemon"), json_object_get(before, "daemon"), seconds);
	json_array_foreach(ranks, i, rank)
		set_load(rank, json_array_get(old, i), seconds);
}

/* ---- the run that is followed ---- */

static void add_loss(struct view *v, int64_t segment, int64_t step, double loss)
{
	if (segment != v->segment) {
		v->segment = segment;
		v->first_step = step;
		v->n_losses = 0;
		v->every = 1;
		v->seen = 0;
	}
	if (v->seen++ % v->every != 0)
		return;
	if (v->n_losses == VIEW_LOSSES) {
		for (size_t i = 0; i < VIEW_LOSSES / 2; i++)
			v->losses[i] = v->losses[i * 2];
		v->n_losses = VIEW_LOSSES / 2;
		v->every *= 2;
	}
	v->losses[v->n_losses++] = loss;
}

static int follow(struct view *v, struct client *c, int64_t id, struct ctl_error *e)
{
	json_t *reply;
	/* the events that gpt2d has kept: the losses so far */
	const int exit = client_request(c, METHOD_FOLLOW,
		json_pack("{s:I, s:i}", "id", (json_int_t)id, "after", 0), v->reply_s, &reply, e);

	if (exit == 0) {
		json_decref(reply);
		v->run = id;
		return 0;
	}
	if (exit == CTL_TRANSPORT || exit == CTL_TIMEOUT)
		return exit;
	ctl_error_clear(e); /* without losses, then */
	return 0;
}

int view_take_events(struct view *v, struct client *c, struct ctl_error *e)
{
	char event[64];
	json_t *params;

	for (;;) {
		switch (client_next(c, 0, event, &params, e)) {
		case CLIENT_EVENT:
			if (strcmp(event, EVENT_STEP) == 0 && format_int(params, "id", 0) == v->run)
				add_loss(v, format_int(params, "segment", 0),
					format_int(params, "step", 0), format_real(params, "loss"));
			json_decref(params);
			break;
		case CLIENT_LOST:
			return e->exit;
		case CLIENT_QUIET:
		case CLIENT_INTERRUPTED:
			ctl_error_clear(e);
			return 0;
		}
	}
}

/* ---- looking ---- */

int view_look(struct view *v, struct client *c, struct ctl_error *e)
{
	json_t *status = NULL;
	int64_t id, now_ns;
	int exit = client_request(c, METHOD_STATUS, json_object(), v->reply_s, &status, e);

	if (exit)
		return exit;
	now_ns = clock_mono_ns();
	set_loads(status, v->status, (double)(now_ns - v->at_ns) / 1e9);
	json_decref(v->status);
	v->status = status;
	v->at_ns = now_ns;
	id = format_int(json_object_get(json_object_get(status, "running"), "run"), "id", 0);
	if (id != v->run) {
		view_forget_run(v);
		if (id > 0)
			exit = follow(v, c, id, e);
	}
	return exit ? exit : view_take_events(v, c, e);
}

json_t *view_json(const struct view *v)
{
	json_t *object = json_deep_copy(v->status), *losses = json_array();

	for (size_t i = 0; i < v->n_losses; i++)
		json_array_append_new(losses, rpc_real(v->losses[i]));
	json_object_set_new(object, "losses", losses);
	return object;
}
