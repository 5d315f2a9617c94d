/* gpt2ctl logs: what engines and gpt2d said of a run. */
#include <string.h>

#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/output.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "ctl/link/watch.h"
#include "proto/host/clock.h"

enum { QUIET_MS = 500 }; /* without news of the run it is asked again */

static const struct option_row options[] = {
	{"follow", 'f', OPTION_FLAG, NULL, 0, 0, "print what comes too, until the run has ended"},
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
	char start[CLIENT_START_BYTES]; /* of the daemon that numbered what is asked for */
	bool follow, more, open;
	bool silent; /* on standard error nothing is said of a run that waits, or no more */
};

static json_t *params_of(const struct logs *l)
{
	json_t *params = json_pack("{s:I}", "after", (json_int_t)l->after);

	if (l->id > 0)
		json_object_set_new(params, "id", json_integer(l->id));
	if (l->level)
		json_object_set_new(params, "level", format_json_text(l->level));
	return params;
}

static int ask(struct logs *l, json_t **page, struct ctl_error *e)
{
	json_t *params = params_of(l);
	const json_t *next;
	int exit = l->follow
		? client_await(l->client, METHOD_LOGS, params, page, e)
		: client_request(l->client, METHOD_LOGS, params, CLIENT_REPLY_S, page, e);

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

/* What there is, as one object. */
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
		l->ctl->output->logs(l->ctl, all);
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
		l->ctl->output->log_line(l->ctl, copy);
		json_decref(copy);
	}
}

/* Until there is something to ask for: 0, or an exit code with e. */
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
		case CLIENT_INTERRUPTED:
		case CLIENT_LOST:
			return e->exit;
		}
	}
}

/* Once, why nothing comes; that of a run that is about to start is over at once. */
static void say_waits(struct logs *l, const json_t *outlook)
{
	const char *waiting = json_string_value(json_object_get(outlook, "waiting"));

	if (l->silent || waiting == NULL || !text_waits(waiting))
		return;
	text_outlook(&l->ctl->err, outlook);
	l->silent = true;
}

/* On a connection that is new. */
static int begin(struct logs *l, struct ctl_error *e)
{
	json_t *reply;
	int exit;

	/* another gpt2d counts anew what it says; for runs the store does */
	if (client_note_start(l->client, l->start) && l->id == 0)
		l->after = 0;
	if (l->id == 0)
		return 0;
	exit = client_request(l->client, METHOD_FOLLOW,
		json_pack("{s:I}", "id", (json_int_t)l->id), CLIENT_REPLY_S, &reply, e);
	if (exit)
		return exit;
	say_waits(l, json_object_get(reply, "outlook"));
	json_decref(reply);
	return 0;
}

/* Until the end, or until stdout fails: 0; or an exit code with e. *any: it answered. */
static int print_new(struct logs *l, bool *any, struct ctl_error *e)
{
	json_t *page;
	int exit = begin(l, e);

	while (!exit) {
		exit = ask(l, &page, e);
		if (exit)
			break;
		*any |= json_array_size(json_object_get(page, "lines")) > 0;
		print_lines(l, page);
		json_decref(page);
		if (l->ctl->out_failed || (!l->more && !l->open))
			break;
		if (!l->more) {
			exit = await_news(l, e);
			*any |= !exit;
		}
	}
	return exit;
}

/* The same, over losses of the connection. */
static int print_until_end(struct logs *l, struct ctl_error *e)
{
	bool any = true;
	int exit;

	for (;;) {
		const bool again = !any;

		any = false;
		exit = print_new(l, &any, e);
		if (!exit || !client_lost(l->client))
			return exit;
		if (again && !any)
			return ctl_error_set(e, CTL_TRANSPORT,
				"connection to gpt2d lost twice; whether more was said is not "
				"known here");
		exit = watch_reconnect(l->ctl, &l->client, l->id, false, -1, e);
		if (exit)
			return exit;
	}
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct logs l = {.ctl = ctl,
		.level = arguments_string(args, "level", NULL),
		.follow = arguments_has(args, "follow"),
		.silent = ctl->json || arguments_has(args, "quiet")};
	struct ctl_error e = {0};
	int exit = 0;

	if (args->n_words > 0)
		exit = arguments_id(args->words[0], &l.id, &e);
	if (!exit)
		exit = client_open(ctl, &l.client, &e);
	if (!exit)
		exit = l.follow ? print_until_end(&l, &e) : print_all(&l, &e);
	client_close(l.client);
	return exit ? ctl_fail(ctl, &e) : CTL_OK;
}

const struct verb verb_logs = {
	.name = "logs",
	.args = "[ID]",
	.max_args = 1,
	.summary = "what engines and gpt2d said of a run",
	.text = "Also of a run that has ended: the newest 1000 messages of each are kept, and how "
		"many were dropped is said. Without ID: what gpt2d said of itself lately, for "
		"whom it belongs to and its administrators: its newest 256 messages, and the "
		"newest 256 of engines. With --follow, standard error says once why a run waits "
		"that has not begun, a gpt2d that goes away is looked for again for 5 s, and a "
		"signal (Ctrl-C) ends gpt2ctl by that signal, 130 in a shell, as it ends tail(1), "
		"not with exit code 6.",
	.options = options,
	.run = run,
};
