#include "ctl/verbs/gate.h"

#include <string.h>

#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/output.h"
#include "ctl/link/watch.h"
#include "proto/host/clock.h"

/* Whether it has come about, by an answer that came at once: 0, or CTL_TIMEOUT with e. */
static int look(const char *method, const json_t *reply, struct ctl_error *e)
{
	const bool drain = strcmp(method, METHOD_DRAIN) == 0;
	const char *wanted = strcmp(method, METHOD_WARM) == 0 ? "ready" : "released";
	const int64_t running = format_int(reply, "running", 0);
	char engine[32];

	format_string(reply, "engine", "?", engine, sizeof(engine));
	if (drain && running > 0)
		return ctl_error_set(e, CTL_TIMEOUT, "drain: run %lld goes on", (long long)running);
	if (!drain && strcmp(engine, wanted) != 0)
		return ctl_error_set(e, CTL_TIMEOUT, "%s: the engines are %s, not yet %s", method,
			engine, wanted);
	return 0;
}

/* A signal ended the wait, after it was asked for: what lasts, and how it is undone. */
static int detached(const char *method, struct ctl_error *e)
{
	static const struct {
		const char *method, *text;
	} rows[] = {
		{METHOD_DRAIN, "the drain stays asked for\ntake it back: gpt2ctl resume"},
		{METHOD_RELEASE, "the release stays asked for\ntake it back: gpt2ctl warm"},
		{METHOD_WARM, "the engines are still asked for\ntake it back: gpt2ctl release"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].method, method) == 0)
			return ctl_error_set(e, CTL_CANCELLED, "detached; %s", rows[i].text);
	}
	return e->exit;
}

/* Of what was so already the first reason is kept. */
static void tell_kept(struct ctl *ctl, const char *method, const char *reason, const json_t *reply)
{
	const bool drain = strcmp(method, METHOD_DRAIN) == 0;
	const json_t *hold = json_object_get(reply, drain ? "drained" : "released");
	const char *kept = json_string_value(json_object_get(hold, "reason"));

	if (!ctl->json && reason && json_is_true(json_object_get(reply, "already")) &&
		strcmp(reason, kept ? kept : "") != 0)
		fprintf(ctl->err.file,
			"gpt2ctl: it was %s before, with %s reason, which stays; for another: "
			"gpt2ctl %s first\n",
			drain ? "drained" : "released", kept ? "its" : "no",
			drain ? "resume" : "warm");
}

/*
 * Until it has come about, over losses of the connection: what was asked lasts, but whether gpt2d
 * had stored it is not known, and to ask again changes nothing more. params is taken over; *c may
 * be another one then, or NULL.
 */
static int await(struct ctl *ctl, struct client **c, const char *method, json_t *params,
	int64_t until_ns, json_t **reply, struct ctl_error *e)
{
	char start[CLIENT_START_BYTES] = "";
	int exit;

	for (;;) {
		const bool another = client_note_start(*c, start);

		exit = client_await(*c, method, json_incref(params), reply, e);
		if (exit != CTL_TRANSPORT || !client_lost(*c) || !another)
			break; /* or lost twice by the same gpt2d */
		exit = watch_reconnect(ctl, c, 0, false, until_ns, e);
		if (exit)
			break;
	}
	json_decref(params);
	return exit;
}

/* What of --wait could not be had; c as it was left, NULL: it was lost. */
static void tell_unmet(
	const char *method, const struct client *c, bool asked, int exit, struct ctl_error *e)
{
	if (exit == CTL_TIMEOUT && c && !client_untaken(c) && !client_is_silent(c))
		ctl_error_set(e, exit,
			"%s: it has not come about in time; it stays asked for\n"
			"how far it is: gpt2ctl status",
			method);
	if (asked && exit == CTL_CANCELLED)
		detached(method, e);
}

/* {reason, now, wait}, or NULL with e. */
static json_t *params_of(
	const struct arguments *args, const char *method, bool lasts, struct ctl_error *e)
{
	const char *reason = arguments_string(args, "reason", NULL);
	json_t *params;

	if (arguments_has(args, "timeout") && !arguments_has(args, "wait")) {
		ctl_error_set(e, CTL_USAGE, "%s: --timeout is for --wait", method);
		return NULL;
	}
	params = json_object();
	if (reason && json_object_set_new(params, "reason", json_string(reason)) < 0) {
		json_decref(params);
		ctl_error_set(e, CTL_USAGE, "%s: --reason: it is not UTF-8", method);
		return NULL;
	}
	if (arguments_has(args, "now"))
		json_object_set_new(params, "now", json_true());
	if (lasts)
		json_object_set_new(params, "wait", json_true());
	return params;
}

/* 0 with *reply, or an exit code with e. */
static int ask(struct ctl *ctl, const struct arguments *args, const char *method, json_t **reply,
	struct ctl_error *e)
{
	const double timeout = arguments_real(args, "timeout", -1.0);
	const bool wait = arguments_has(args, "wait"), lasts = wait && timeout != 0.0;
	json_t *params = params_of(args, method, lasts, e);
	int64_t until_ns = -1;
	struct client *c = NULL;
	bool asked;
	int exit;

	if (!params)
		return e->exit;
	if (lasts && timeout > 0.0)
		until_ns = clock_mono_ns() + (int64_t)(timeout * 1e9);
	if (wait)
		interrupt_begin();
	exit = client_open_until(ctl, until_ns, &c, e);
	asked = c;
	if (exit)
		json_decref(params);
	else if (lasts)
		exit = await(ctl, &c, method, params, until_ns, reply, e);
	else
		exit = client_request(c, method, params, CLIENT_REPLY_S, reply, e);
	if (wait)
		tell_unmet(method, c, asked, exit, e);
	client_close(c);
	if (!exit && wait && !lasts)
		exit = look(method, *reply, e);
	return exit;
}

int gate_ask(struct ctl *ctl, const struct arguments *args, const char *method)
{
	json_t *reply = NULL;
	struct ctl_error e = {0};
	int exit = ask(ctl, args, method, &reply, &e);

	if (exit) {
		ctl_fail(ctl, &e);
	} else {
		ctl->output->gate(ctl, method, reply);
		output_tell_done(ctl, method);
		tell_kept(ctl, method, arguments_string(args, "reason", NULL), reply);
	}
	json_decref(reply);
	return exit;
}
