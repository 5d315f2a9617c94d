/* Events of a followed run, for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/progress.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/link/watch.h"
#include "proto/host/clock.h"

enum { NAME_BYTES = 80, REASON_BYTES = 600 };

struct shown {
	const struct term *term;
	struct progress *progress;
	char id[32], name[NAME_BYTES], arm[NAME_BYTES], state[32], reason[REASON_BYTES];
	int64_t segment, segments;
	const json_t *params;
};

static void print_state(const struct shown *s)
{
	fprintf(s->term->file, "run %s %s: %s%s%s%s%s\n", s->id, s->name,
		term_colour(s->term, states_colour(s->state)), s->state,
		term_colour(s->term, TERM_PLAIN), *s->reason ? ": " : "",
		text_reason(s->state, s->reason));
}

static void event_state(const struct shown *s)
{
	if (states_exit(s->state) >= 0)
		return; /* run.done follows and tells it */
	progress_clear(s->progress);
	print_state(s);
}

/* ": 12.3 k tok/s, exposed comm 0.71 ms" of what the summary holds */
static void print_summary(FILE *out, const json_t *summary)
{
	const double rate = format_real(summary, "tok_s_global");
	const double exposed = format_real(summary, "exposed_comm_mean_s");
	char text[FORMAT_BYTES];

	if (isfinite(rate))
		fprintf(out, ": %s tok/s", format_si(rate, text));
	if (isfinite(exposed))
		fprintf(out, ", exposed comm %s", format_duration(exposed, text));
}

static void event_segment(const struct shown *s)
{
	/* a single run is one segment: its states tell the same */
	if (s->segments <= 1 || strcmp(s->state, "done") != 0)
		return;
	progress_clear(s->progress);
	fprintf(s->term->file, "run %s %s  segment %lld/%lld %s", s->id, s->name,
		(long long)s->segment + 1, (long long)s->segments, s->arm);
	print_summary(s->term->file, json_object_get(s->params, "summary"));
	fputc('\n', s->term->file);
}

static void event_step(const struct shown *s)
{
	const struct progress_step step = {
		.name = s->name,
		.id = format_int(s->params, "id", 0),
		.arm = s->arm,
		.segment = s->segment,
		.segments = s->segments,
		.step = format_int(s->params, "step", 0),
		.steps = format_int(s->params, "steps", 0),
		.loss = format_real(s->params, "loss"),
		.tokens_per_s = format_real(s->params, "tokens_per_sec"),
		.eta_s = format_real(s->params, "eta_s"),
	};

	progress_show(s->progress, &step, clock_mono_ns());
}

static void event_log(const struct shown *s)
{
	char level[32], message[1024];

	format_string(s->params, "level", "", level, sizeof(level));
	if (strcmp(level, "warning") != 0 && strcmp(level, "error") != 0)
		return;
	progress_clear(s->progress);
	fprintf(s->term->file, "%s%s%s: rank %lld: %s\n",
		term_colour(s->term, *level == 'e' ? TERM_RED : TERM_YELLOW), level,
		term_colour(s->term, TERM_PLAIN), (long long)format_int(s->params, "rank", 0),
		format_string(s->params, "message", "", message, sizeof(message)));
}

void text_store(const struct term *t, const json_t *store)
{
	char path[4096], error[256], advice[700], at[64];

	if (json_is_object(store))
		fprintf(t->file,
			"%sgpt2d cannot write %s since %s: %s; %s%s\n"
			"how a run ends is told once it can\n",
			term_colour(t, TERM_RED),
			format_string(store, "path", "?", path, sizeof(path)),
			text_time(store, "since", at, sizeof(at)),
			format_string(store, "error", "?", error, sizeof(error)),
			format_string(store, "advice", "", advice, sizeof(advice)),
			term_colour(t, TERM_PLAIN));
	else
		fputs("gpt2d can write again\n", t->file);
	fflush(t->file);
}

static void event_store(const struct shown *s)
{
	progress_clear(s->progress);
	text_store(s->term, json_object_get(s->params, "store"));
}

static void event_done(const struct shown *s)
{
	const int64_t dropped = format_int(s->params, "dropped", 0);
	char dir[4096];

	progress_clear(s->progress);
	print_state(s);
	format_string(s->params, "dir", "", dir, sizeof(dir));
	if (*dir)
		fprintf(s->term->file, "artifacts: %s\n", dir);
	if (dropped > 0)
		fprintf(s->term->file, "%lld events were not shown: this client read too slowly\n",
			(long long)dropped);
}

static const struct {
	const char *event;
	void (*show)(const struct shown *s);
} shows[] = {
	{EVENT_STATE, event_state}, {EVENT_SEGMENT, event_segment}, {EVENT_STEP, event_step},
	{EVENT_LOG, event_log}, {EVENT_STORE, event_store}, {EVENT_DONE, event_done},
	/* EVENT_ARTIFACT: the folder is named at the end */
};

void text_event(struct ctl *ctl, struct progress *progress, const char *event, const json_t *params)
{
	struct shown s = {.term = progress->term, .progress = progress, .params = params};

	format_string(params, "id", "?", s.id, sizeof(s.id));
	format_string(params, "name", "", s.name, sizeof(s.name));
	format_string(params, "arm", "", s.arm, sizeof(s.arm));
	format_string(params, "state", "?", s.state, sizeof(s.state));
	format_string(params, "reason", "", s.reason, sizeof(s.reason));
	s.segment = format_int(params, "segment", 0);
	s.segments = format_int(params, "segments", 1);
	for (size_t i = 0; i < sizeof(shows) / sizeof(shows[0]); i++) {
		if (strcmp(shows[i].event, event) == 0) {
			shows[i].show(&s);
			break;
		}
	}
	fflush(s.term->file);
}
