/* gpt2ctl follow: the progress of a run until it ends. */
#include "ctl/verbs/follow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/print/page.h"
#include "ctl/print/progress.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "proto/host/clock.h"

/* An event with the values that most functions below print. */
struct shown {
	const struct term *term;
	struct progress *progress;
	char state[32];
	const json_t *params;
};

static void print_state(const struct shown *s)
{
	progress_clear(s->progress);
	members_print(s->term->file, s->params, "run {id} {name|}: ");
	text_state(s->term, s->params);
}

static void event_state(const struct shown *s)
{
	if (states_exit(s->state) < 0) /* else run.done follows */
		print_state(s);
}

static void add_arm(struct page *p, const json_t *row)
{
	const double low = format_real(row, "low"), high = format_real(row, "high");
	const bool has_interval = isfinite(low) && isfinite(high);
	char *arm = members_text(row, "{arm|} {throughput_percent:signed|-}");
	char *verdict = members_text(row, "{verdict|}"), interval[FORMAT_BYTES];

	page_part(p, "%s %s %s", arm, has_interval ? format_interval(low, high, interval) : "",
		verdict);
	free(arm);
	free(verdict);
}

/* The estimates of throughput after each block of an experiment. */
static void event_block(const struct shown *s)
{
	struct page p = {.term = s->term};
	const json_t *row;
	size_t i;

	progress_clear(s->progress);
	page_members(&p, s->params, "block {block|0}/{blocks|0}");
	if (json_is_string(json_object_get(s->params, "void")))
		page_members(&p, s->params, "void: {void}");
	json_array_foreach(json_object_get(s->params, "comparisons"), i, row)
		add_arm(&p, row);
	if (format_real(s->params, "eta_s") > 0.0)
		page_members(&p, s->params, "{eta_s:duration} left");
	page_end(&p);
}

static void event_step(const struct shown *s)
{
	progress_show(s->progress, s->params, clock_mono_ns());
}

static void event_log(const struct shown *s)
{
	char level[32];

	format_string(s->params, "level", "", level, sizeof(level));
	if (strcmp(level, "warning") != 0 && strcmp(level, "error") != 0)
		return;
	progress_clear(s->progress);
	fprintf(s->term->file, "%s%s%s",
		term_colour(s->term, *level == 'e' ? TERM_RED : TERM_YELLOW), level,
		term_colour(s->term, TERM_PLAIN));
	members_print(s->term->file, s->params,
		json_is_null(json_object_get(s->params, "rank")) ? ": gpt2d: {message|}\n"
								 : ": rank {rank|0}: {message|}\n");
}

static void event_store(const struct shown *s)
{
	const json_t *store = json_object_get(s->params, "store");

	progress_clear(s->progress);
	text_store(s->term, store);
}

static void event_done(const struct shown *s)
{
	print_state(s);
	members_print(s->term->file, s->params, "[artifacts: {dir}\n]");
	if (format_int(s->params, "dropped", 0) > 0)
		members_print(s->term->file, s->params,
			"{dropped} events were dropped: gpt2ctl read too slowly\n");
}

static const struct {
	const char *event;
	void (*show)(const struct shown *s);
} shows[] = {
	{EVENT_STATE, event_state}, {EVENT_BLOCK, event_block}, {EVENT_STEP, event_step},
	{EVENT_LOG, event_log}, {EVENT_STORE, event_store}, {EVENT_DONE, event_done},
	/* EVENT_SEGMENT: its block says more; EVENT_ARTIFACT: the end names the directory */
};

static void print_event(struct following *f, const char *event, const json_t *params)
{
	struct shown s = {.term = f->progress.term, .progress = &f->progress, .params = params};

	format_string(params, "state", "?", s.state, sizeof(s.state));
	for (size_t i = 0; i < sizeof(shows) / sizeof(shows[0]); i++)
		if (strcmp(shows[i].event, event) == 0)
			shows[i].show(&s);
	fflush(s.term->file);
}

static void on_event(struct watch *w, struct watch_run *r, const char *event, json_t *params)
{
	struct output *o = &w->ctl->output;

	/* events carry the ID only */
	if (r && *r->name && !json_object_get(params, "name"))
		json_object_set_new(params, "name", json_string(r->name));
	if (o->json && (r || !json_object_get(params, "run")))
		output_print(o, event, params, NULL);
	if (!o->json) {
		print_event((struct following *)w, event, params);
		output_flush(o);
	}
}

static void on_snapshot(struct watch *w, struct watch_run *r, const json_t *reply)
{
	struct following *f = (struct following *)w;
	json_t *progress = json_object_get(reply, "progress");

	print_event(f, EVENT_STATE, json_object_get(reply, "run"));
	text_outlook(f->progress.term, json_object_get(reply, "outlook"));
	if (json_is_object(progress)) {
		json_object_set_new(progress, "id", json_integer(r->id));
		json_object_set_new(progress, "name", json_string(r->name));
		print_event(f, EVENT_STEP, progress);
	}
	output_flush(&w->ctl->output);
}

static void on_silent(struct watch *w, struct watch_run *r, int64_t silent_ns)
{
	struct following *f = (struct following *)w;
	char text[FORMAT_BYTES];

	progress_clear(&f->progress);
	fprintf(f->progress.term->file,
		"run %lld %s: %s, nothing new for %s (progress comes with each step)\n",
		(long long)r->id, r->name, r->state,
		format_duration((double)silent_ns / (double)CLOCK_S_NS, text));
	output_flush(&w->ctl->output);
}

static void clear_bar(void *progress)
{
	progress_clear(progress);
}

int follow_watch(struct following *f, const struct term *term, struct ctl_error *e)
{
	struct client *c = f->watch.client;
	int exit;

	progress_init(&f->progress, term);
	client_before_notice(c, clear_bar, &f->progress);
	exit = watch_until_end(&f->watch, e);
	client_before_notice(c, NULL, NULL);
	progress_clear(&f->progress);
	if (exit && !e->code && !f->watch.ctl->output.failed)
		watch_explain(f->watch.runs, e, e);
	return exit;
}

int follow_run(struct ctl *ctl, struct client *c, int64_t id, bool knows_wait,
	const struct term *term, struct ctl_error *e)
{
	struct watch_run r = {.id = id, .knows_wait = knows_wait};
	struct following f = {.watch = {.ctl = ctl,
				      .client = c,
				      .runs = &r,
				      .n = 1,
				      .deadline_ns = -1,
				      .event = on_event,
				      .snapshot = ctl->output.json ? NULL : on_snapshot,
				      .silent = ctl->output.json ? NULL : on_silent}};
	int exit;

	interrupt_begin();
	exit = follow_watch(&f, term, e);
	return exit ? exit : states_exit(r.state);
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct client *c = NULL;
	int64_t id;
	int exit;

	interrupt_begin();
	if (verb_parse_id(args->words[0], &id, e) != 0 || client_open(&ctl->link, &c, e) != 0)
		return e->exit;
	exit = follow_run(ctl, c, id, false, &ctl->output.out, e);
	client_close(c);
	return exit;
}

const struct verb verb_follow = {
	.name = "follow",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "show a run's progress until it ends",
	.text = "On a terminal: a bar with loss, tokens per second and the time left. "
		"Elsewhere: plain lines. If no step ends for 5 s, and again after 10, 20, 40 s and "
		"so on, a line says so. Of an experiment: after each block the change of "
		"throughput of each arm, with its interval from 6 blocks on, and the time left. "
		"For a queued run it prints why the run waits, again when the kind of reason "
		"changes; not with --json. Interrupting it (Ctrl-C) does not affect the run. If "
		"gpt2d goes away, gpt2ctl tries to reconnect for 5 s. If gpt2d does not come "
		"back, or goes away twice without an event or a restart in between, the exit "
		"status is 1. Otherwise the exit status is the run's result.",
	.run = run,
};
