/* gpt2ctl logs: the messages of engines and gpt2d about a run. */
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/host/clock.h"
#include "proto/text.h"

enum { QUIET_MS = 500 }; /* without an event, ask again */

static const struct option_row options[] = {
	{"follow", 'f', OPTION_FLAG, NULL, 0, 0,
		"also print new messages, until the run has ended"},
	{"level", 'l', OPTION_CHOICE, "debug|info|warning|error", 0, 0,
		"only messages of this level and above"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct logs {
	struct ctl *ctl;
	struct client *client;
	int64_t id; /* 0: gpt2d itself */
	const char *level;
	int64_t after;
	bool follow, more, open;
	bool silent; /* do not print why the run waits, or not again */
};

/* ---- text ---- */

static enum term_colour level_colour(const char *level)
{
	if (strcmp(level, "error") == 0)
		return TERM_RED;
	if (strcmp(level, "warning") == 0)
		return TERM_YELLOW;
	return strcmp(level, "debug") == 0 ? TERM_DIM : TERM_PLAIN;
}

static void print_line(struct output *o, const json_t *line)
{
	const struct term *t = &o->out;
	const int64_t rank = format_int(line, "rank", -1);
	char level[16], who[32] = "gpt2d";

	if (rank >= 0)
		snprintf(who, sizeof(who), "rank %lld", (long long)rank);
	format_string(line, "level", "?", level, sizeof(level));
	members_print(t->file, line, "{at:time|-} ");
	fprintf(t->file, "%s%-7s%s %s", term_colour(t, level_colour(level)), level,
		term_colour(t, TERM_PLAIN), who);
	members_print(t->file, line, ": {message|}\n");
}

static void print_logs(struct output *o, const json_t *result)
{
	const json_t *line;
	size_t i;

	if (format_int(result, "dropped", 0) > 0)
		members_print(o->out.file, result, "({dropped} older messages were dropped)\n");
	json_array_foreach(json_object_get(result, "lines"), i, line)
		print_line(o, line);
}

/* ---- pages ---- */

static json_t *params_of(const struct logs *l)
{
	json_t *params = json_pack("{s:I}", "after", (json_int_t)l->after);

	if (l->id > 0)
		json_object_set_new(params, "id", json_integer(l->id));
	if (l->level)
		json_object_set_new(params, "level", text_json(l->level));
	return params;
}

static int ask(struct logs *l, json_t **page, struct ctl_error *e)
{
	json_t *params = params_of(l);
	const json_t *next;
	int exit = client_request(l->client, METHOD_LOGS, params,
		l->follow ? CLIENT_PATIENT : CLIENT_REPLY_S, page, e);

	if (exit)
		return exit;
	next = json_object_get(*page, "next");
	l->more = json_is_true(json_object_get(*page, "more"));
	l->open = json_is_true(json_object_get(*page, "open"));
	if (!json_is_integer(next) || json_integer_value(next) < l->after ||
		(l->more && json_integer_value(next) == l->after)) {
		json_decref(*page);
		return ctl_error_set(e, CTL_TRANSPORT, "logs: gpt2d sent no next page");
	}
	l->after = json_integer_value(next);
	return 0;
}

/* The messages so far, as one object. */
static int print_all(struct logs *l, struct ctl_error *e)
{
	json_t *all = NULL, *page;
	int exit;

	do {
		exit = ask(l, &page, e);
		if (exit)
			break;
		if (all == NULL) {
			all = page;
			continue;
		}
		json_array_extend(json_object_get(all, "lines"), json_object_get(page, "lines"));
		json_decref(page);
	} while (l->more);
	if (!exit) {
		json_object_del(all, "next");
		json_object_del(all, "more");
		output_print(&l->ctl->output, "logs", all, print_logs);
	}
	json_decref(all);
	return exit;
}

static void print_lines(struct logs *l, const json_t *page)
{
	const json_t *line;
	json_t *copy;
	size_t i;

	json_array_foreach(json_object_get(page, "lines"), i, line) {
		copy = json_copy((json_t *)line);
		json_object_set(copy, "id", json_object_get(page, "id"));
		output_print(&l->ctl->output, "log", copy, print_line);
		json_decref(copy);
	}
}

/* Waits until there may be new messages: 0, or an exit status with e. */
static int await_news(struct logs *l, struct ctl_error *e)
{
	const int64_t until_ns = clock_mono_ns() + QUIET_MS * CLOCK_MS_NS;
	char event[64];
	json_t *params;

	for (;;) {
		switch (client_next(l->client, until_ns, event, &params, e)) {
		case CLIENT_EVENT:
			json_decref(params);
			if (strcmp(event, EVENT_STEP) != 0)
				return 0;
			break;
		case CLIENT_QUIET:
			return 0;
		case CLIENT_INTERRUPTED: /* not handled here: the signal ends the process */
		case CLIENT_LOST:
			return e->exit;
		}
	}
}

/* Prints once why no messages come, unless the run will start soon. */
static void print_waiting(struct logs *l, const json_t *outlook)
{
	const char *waiting = json_string_value(json_object_get(outlook, "waiting"));

	if (l->silent || waiting == NULL || !text_waits(waiting))
		return;
	text_outlook(&l->ctl->output.err, outlook);
	l->silent = true;
}

/* On a new connection. */
static int begin(struct logs *l, struct ctl_error *e)
{
	json_t *reply;
	int exit;

	/* a restarted gpt2d numbers its own messages from 1; those of runs are in the store */
	if (client_restarted(l->client) && l->id == 0)
		l->after = 0;
	if (l->id == 0)
		return 0;
	exit = client_request(l->client, METHOD_FOLLOW, json_pack("{s:I}", "id", (json_int_t)l->id),
		CLIENT_PATIENT, &reply, e);
	if (exit)
		return exit;
	print_waiting(l, json_object_get(reply, "outlook"));
	json_decref(reply);
	return 0;
}

/* Until the end, or until stdout fails: 0, or an exit status with e. */
static int print_new(struct logs *l, struct ctl_error *e)
{
	json_t *page;
	int exit = begin(l, e);

	while (!exit) {
		exit = ask(l, &page, e);
		if (exit)
			break;
		print_lines(l, page);
		json_decref(page);
		if (l->ctl->output.failed || (!l->more && !l->open))
			break;
		if (!l->more)
			exit = await_news(l, e);
	}
	return exit;
}

/* print_new, also after losses of the connection. */
static int print_until_end(struct logs *l, struct ctl_error *e)
{
	int exit;

	do {
		exit = print_new(l, e);
	} while (exit && client_lost(l->client) && (exit = client_reopen(l->client, e)) == 0);
	return exit;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct logs l = {.ctl = ctl,
		.level = options_string(args, "level", NULL),
		.follow = options_has(args, "follow"),
		.silent = ctl->output.json || options_has(args, "quiet")};
	int exit = 0;

	if (args->n_words > 0)
		exit = verb_parse_id(args->words[0], &l.id, e);
	if (!exit)
		exit = client_open(&ctl->link, &l.client, e);
	if (!exit)
		exit = l.follow ? print_until_end(&l, e) : print_all(&l, e);
	client_close(l.client);
	return exit;
}

const struct verb verb_logs = {
	.name = "logs",
	.args = "[ID]",
	.max_args = 1,
	.summary = "print the messages of engines and gpt2d about a run",
	.text = "Also of a run that has ended: gpt2d keeps the newest 1000 messages of each run, "
		"and gpt2ctl prints how many were dropped. Without ID: gpt2d's own messages, for "
		"its user and admins: the newest 256 of gpt2d and the newest 256 of engines. With "
		"--follow, standard error says once why a run is queued, and if gpt2d goes away, "
		"gpt2ctl tries to reconnect for 5 s. A signal (Ctrl-C) ends gpt2ctl by that "
		"signal (130 in a shell), as it ends tail(1), not with exit status 6.",
	.options = options,
	.run = run,
};
