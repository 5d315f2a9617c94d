/*
 * gpt2ctl drain, resume: whether queued runs start. gpt2ctl release, warm: whether the engines hold
 * their devices.
 */
#include <string.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/host/clock.h"

#define RECONNECTS "; if gpt2d goes away, gpt2ctl reconnects within 5 s and asks again"
#define TIMEOUT                                                                                    \
	"with --wait: give up after this time with exit status 124; 0: check once; the request "   \
	"stays in effect, also after a signal (6)"

static const struct option_row drain_options[] = {
	{"reason", 'r', OPTION_STRING, "TEXT", 0, 0,
		"status and submit show it; the first reason stays until resume"},
	{"wait", 'w', OPTION_FLAG, NULL, 0, 0,
		"until the run in progress has ended and its end is on disk" RECONNECTS},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9, TIMEOUT},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static const struct option_row release_options[] = {
	{"now", 0, OPTION_FLAG, NULL, 0, 0,
		"do not wait for the run in progress: it becomes interrupted, and queued again if "
		"its spec has restart"},
	{"reason", 'r', OPTION_STRING, "TEXT", 0, 0, "status and submit show it"},
	{"wait", 'w', OPTION_FLAG, NULL, 0, 0, "until the engines have ended" RECONNECTS},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9, TIMEOUT},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static const struct option_row warm_options[] = {
	{"wait", 'w', OPTION_FLAG, NULL, 0, 0,
		"until the engines are ready, and print how long that took" RECONNECTS},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"with --wait: give up after this time with exit status 124; 0: check once"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* ---- the replies ---- */

static void print_drained(struct output *o, const json_t *reply)
{
	text_hold(&o->out, "drained", json_object_get(reply, "drained"));
	text_stopping(&o->out, reply, "continues");
	members_print(o->out.file, reply, "{queued} queued; start them with: gpt2ctl resume\n");
}

static void print_resumed(struct output *o, const json_t *reply)
{
	fputs(json_is_true(json_object_get(reply, "already")) ? "gpt2d was not drained\n"
							      : "resumed: queued runs start\n",
		o->out.file);
	text_hold(&o->out, "no run starts until gpt2ctl warm: the engines are released",
		json_object_get(reply, "released"));
}

static void print_released(struct output *o, const json_t *reply)
{
	char engine[32];

	text_hold(&o->out, "released", json_object_get(reply, "released"));
	text_stopping(&o->out, reply, "ends first, then the engines end");
	format_string(reply, "engine", "", engine, sizeof(engine));
	if (format_int(reply, "running", 0) <= 0)
		fprintf(o->out.file, "the engines %s\n",
			strcmp(engine, "released") == 0 ? "have ended" : "are ending");
	members_print(o->out.file, reply, "{queued} queued; start them with: gpt2ctl warm\n");
}

static void print_warm(struct output *o, const json_t *reply)
{
	char engine[32];

	format_string(reply, "engine", "?", engine, sizeof(engine));
	if (strcmp(engine, "ready") != 0)
		fprintf(o->out.file,
			"the engines are %s; wait for them with: gpt2ctl warm --wait\n", engine);
	else if (json_is_true(json_object_get(reply, "already")))
		fputs("the engines are ready\n", o->out.file);
	else
		members_print(
			o->out.file, reply, "the engines are ready after {took_s:duration|-}\n");
	text_hold(&o->out, "no run starts until gpt2ctl resume: gpt2d is drained",
		json_object_get(reply, "drained"));
}

/* ---- the verbs ---- */

static const struct hold {
	const char *method, *undo;
	const char *hold;   /* the member with the reason, or NULL */
	const char *engine; /* the state of the engines that --wait waits for; NULL: no run left */
	void (*print)(struct output *o, const json_t *reply);
} holds[] = {
	{METHOD_DRAIN, "resume", "drained", NULL, print_drained},
	{METHOD_RESUME, "drain", NULL, NULL, print_resumed},
	{METHOD_RELEASE, "warm", "released", "released", print_released},
	{METHOD_WARM, "release", NULL, "ready", print_warm},
};

/* --timeout 0: whether the immediate reply shows that the state is reached. */
static int check_reached(const struct hold *h, const json_t *reply, struct ctl_error *e)
{
	const int64_t running = format_int(reply, "running", 0);
	char engine[32];

	format_string(reply, "engine", "?", engine, sizeof(engine));
	if (!h->engine && running > 0)
		return ctl_error_set(
			e, CTL_TIMEOUT, "%s: run %lld continues", h->method, (long long)running);
	if (h->engine && strcmp(engine, h->engine) != 0)
		return ctl_error_set(e, CTL_TIMEOUT, "%s: the engines are %s, not yet %s",
			h->method, engine, h->engine);
	return 0;
}

/* gpt2d keeps the first reason. */
static void print_kept_reason(
	struct ctl *ctl, const struct hold *h, const char *reason, const json_t *reply)
{
	const json_t *hold = h->hold ? json_object_get(reply, h->hold) : NULL;
	const char *kept = json_string_value(json_object_get(hold, "reason"));

	if (hold && !ctl->output.json && reason && strcmp(reason, kept ? kept : "") != 0 &&
		json_is_true(json_object_get(reply, "already")))
		fprintf(ctl->output.err.file,
			"gpt2ctl: already %s, with %s reason, which stays; to change it: gpt2ctl "
			"%s first\n",
			h->hold, kept ? "its" : "no", h->undo);
}

/* {reason, now, wait}, or NULL with e. */
static json_t *params_of(
	const struct options *args, const struct hold *h, bool deferred, struct ctl_error *e)
{
	const char *reason = options_string(args, "reason", NULL);
	json_t *params = json_object();

	if (options_has(args, "timeout") && !options_has(args, "wait"))
		ctl_error_set(e, CTL_USAGE, "%s: --timeout requires --wait", h->method);
	else if (reason && json_object_set_new(params, "reason", json_string(reason)) < 0)
		ctl_error_set(e, CTL_USAGE, "%s: --reason: not UTF-8", h->method);
	if (options_has(args, "now"))
		json_object_set_new(params, "now", json_true());
	if (deferred)
		json_object_set_new(params, "wait", json_true());
	if (!e->exit)
		return params;
	json_decref(params);
	return NULL;
}

/*
 * deferred: gpt2d replies once the state is reached. If the connection is lost, ask again: the
 * request may not be on disk, and a second one changes nothing.
 */
static int ask(struct client *c, const struct hold *h, json_t *params, bool deferred,
	json_t **reply, struct ctl_error *e)
{
	int exit;

	do {
		exit = client_request(c, h->method, json_incref(params),
			deferred ? CLIENT_DEFERRED : CLIENT_REPLY_S, reply, e);
	} while (exit && deferred && client_lost(c) && (exit = client_reopen(c, e)) == 0);
	if (exit && deferred && !client_lost(c) && !client_unsent(c) &&
		(exit == CTL_TIMEOUT || exit == CTL_CANCELLED))
		ctl_error_set(e, exit,
			"%s: %s; the request stays in effect\n"
			"check with: gpt2ctl status; undo with: gpt2ctl %s",
			h->method, exit == CTL_TIMEOUT ? "timed out" : "interrupted", h->undo);
	return exit;
}

/* All four verbs: each has the name of its method. */
static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const double timeout = options_real(args, "timeout", -1.0);
	const bool wait = options_has(args, "wait"), deferred = wait && timeout != 0.0;
	struct client_options link = ctl->link;
	const struct hold *h = holds;
	struct client *c = NULL;
	json_t *params, *reply = NULL;
	int exit;

	while (strcmp(h->method, ctl->link.verb) != 0)
		h++;
	params = params_of(args, h, deferred, e);
	if (!params)
		return e->exit;
	if (deferred && timeout > 0.0)
		link.until_ns = clock_mono_ns() + (int64_t)(timeout * 1e9);
	if (wait)
		interrupt_begin();
	exit = client_open(&link, &c, e);
	if (!exit)
		exit = ask(c, h, params, deferred, &reply, e);
	client_close(c);
	json_decref(params);
	if (!exit && wait && !deferred)
		exit = check_reached(h, reply, e);
	if (!exit) {
		output_print(&ctl->output, h->method, reply, h->print);
		output_confirm(&ctl->output, h->method);
		print_kept_reason(ctl, h, options_string(args, "reason", NULL), reply);
	}
	json_decref(reply);
	return exit;
}

const struct verb verb_drain = {
	.name = "drain",
	.args = "",
	.summary = "start no more runs; the run in progress is finished",
	.text = "Runs can still be submitted; they stay queued. The drain lasts until resume, "
		"also over a restart of gpt2d. Only the daemon's user, root and admins may use it.",
	.options = drain_options,
	.run = run,
};

const struct verb verb_resume = {
	.name = "resume",
	.args = "",
	.summary = "start queued runs again after drain",
	.text = "",
	.run = run,
};

const struct verb verb_release = {
	.name = "release",
	.args = "",
	.summary = "end the engines and give their GPUs back; the queue waits",
	.text = "The run in progress is finished first, unless --now is given. Runs can be "
		"submitted and stay queued. The release lasts until warm, also over a restart of "
		"gpt2d. With idle_release in gpt2d.conf(5), idle engines end by themselves and "
		"start for the next run. Members of socket_group may use release and warm, and "
		"--now on their own run; the daemon's user, root and admins on every run.",
	.options = release_options,
	.run = run,
};

const struct verb verb_warm = {
	.name = "warm",
	.args = "",
	.summary = "start the engines again after release",
	.text = "If the engines do not start, gpt2d waits longer after each try; warm starts the "
		"next try at once.",
	.options = warm_options,
	.run = run,
};
