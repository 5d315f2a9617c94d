/* What drain, resume, release, warm, priority and cancel say, for people. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/text.h"
#include "proto/waiting.h"

void text_hold(const struct term *t, const char *label, const json_t *hold)
{
	const int64_t uid = format_int(hold, "uid", -1);
	char at[64], reason[300], name[64], by[100];
	const struct passwd *user;

	if (!json_is_object(hold))
		return;
	user = getpwuid((uid_t)uid);
	if (user) {
		term_clean(user->pw_name, name, sizeof(name));
		snprintf(by, sizeof(by), "%s (uid %lld)", name, (long long)uid);
	} else
		snprintf(by, sizeof(by), "uid %lld", (long long)uid);
	format_string(hold, "reason", "", reason, sizeof(reason));
	fprintf(t->file, "%s since %s by %s%s%s\n", label, text_time(hold, "since", at, sizeof(at)),
		by, *reason ? ": " : "", reason);
}

static void say_drained(const struct term *t, const json_t *reply)
{
	const int64_t running = format_int(reply, "running", 0);

	text_hold(t, "drained", json_object_get(reply, "drained"));
	if (running > 0)
		fprintf(t->file, "run %lld %s; its end: gpt2ctl wait %lld\n", (long long)running,
			json_is_true(json_object_get(reply, "stopping")) ? "is being stopped"
									 : "goes on",
			(long long)running);
	fprintf(t->file, "%lld queued; they start again with: gpt2ctl resume\n",
		(long long)format_int(reply, "queued", 0));
}

static void say_resumed(const struct term *t, const json_t *reply)
{
	fputs(json_is_true(json_object_get(reply, "already"))
			? "gpt2d was not drained\n"
			: "resumed: queued runs start again\n",
		t->file);
	text_hold(t, "no run starts, as the engines are released: gpt2ctl warm; released",
		json_object_get(reply, "released"));
}

static void say_released(const struct term *t, const json_t *reply)
{
	const int64_t running = format_int(reply, "running", 0);
	char engine[32];

	text_hold(t, "released", json_object_get(reply, "released"));
	format_string(reply, "engine", "", engine, sizeof(engine));
	if (running > 0)
		fprintf(t->file,
			json_is_true(json_object_get(reply, "stopping"))
				? "run %lld is being stopped, then the engines end; "
				: "the engines end after run %lld; ",
			(long long)running);
	if (running > 0)
		fprintf(t->file, "its end: gpt2ctl wait %lld\n", (long long)running);
	else
		fprintf(t->file, "the engines %s\n",
			strcmp(engine, "released") == 0 ? "have ended" : "are ending");
	fprintf(t->file, "%lld queued; they start with: gpt2ctl warm\n",
		(long long)format_int(reply, "queued", 0));
}

static void say_warm(const struct term *t, const json_t *reply)
{
	char engine[32], took[FORMAT_BYTES];

	format_string(reply, "engine", "?", engine, sizeof(engine));
	if (strcmp(engine, "ready") != 0)
		fprintf(t->file, "the engines are %s; until they are ready: gpt2ctl warm --wait\n",
			engine);
	else if (json_is_true(json_object_get(reply, "already")))
		fputs("the engines are ready\n", t->file);
	else
		fprintf(t->file, "the engines are ready after %s\n",
			format_duration(format_real(reply, "took_s"), took));
	text_hold(t, "no run starts, as gpt2d is drained: gpt2ctl resume; drained",
		json_object_get(reply, "drained"));
}

void text_gate(struct ctl *ctl, const char *method, const json_t *reply)
{
	static const struct {
		const char *method;
		void (*say)(const struct term *t, const json_t *reply);
	} says[] = {
		{METHOD_DRAIN, say_drained},
		{METHOD_RESUME, say_resumed},
		{METHOD_RELEASE, say_released},
		{METHOD_WARM, say_warm},
	};

	for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
		if (strcmp(says[i].method, method) == 0)
			says[i].say(&ctl->out, reply);
}

bool text_waits(const char *waiting)
{
	const char *moment = waiting_code(WAITING_PREPARING);
	const size_t n = strlen(moment);

	return *waiting && (strncmp(waiting, moment, n) != 0 || waiting[n] != ':');
}

void text_outlook(const struct term *t, const json_t *outlook)
{
	const double starts = format_real(outlook, "starts_in_s");
	char waiting[900], in[FORMAT_BYTES];

	if (!json_is_object(outlook))
		return;
	fprintf(t->file, "waits     %lld before it%s%s; %s\n",
		(long long)format_int(outlook, "position", 0),
		starts >= 0 ? ", starts in about " : "",
		starts >= 0 ? format_duration(starts, in) : "",
		format_string(outlook, "waiting", "", waiting, sizeof(waiting)));
}

void text_priority(struct ctl *ctl, const json_t *reply)
{
	char name[80], state[32];

	fprintf(ctl->out.file, "run %lld %s: priority %lld, was %lld\n",
		(long long)format_int(reply, "id", 0),
		format_string(reply, "name", "", name, sizeof(name)),
		(long long)format_int(reply, "priority", 0),
		(long long)format_int(reply, "before", 0));
	format_string(reply, "state", "", state, sizeof(state));
	if (strcmp(state, "queued") != 0)
		fprintf(ctl->out.file, "it is %s by now\n", state);
	text_outlook(&ctl->out, json_object_get(reply, "outlook"));
}

void text_cancelled(struct ctl *ctl, const json_t *result)
{
	char id[32], state[32];
	const json_t *row;
	size_t i;

	if (json_array_size(json_object_get(result, "runs")) == 0)
		fputs("nothing to cancel\n", ctl->out.file);
	json_array_foreach(json_object_get(result, "runs"), i, row) {
		if (!json_is_string(json_object_get(row, "state")))
			continue; /* its error is told already */
		format_string(row, "id", "?", id, sizeof(id));
		format_string(row, "state", "?", state, sizeof(state));
		if (json_is_true(json_object_get(row, "already")))
			fprintf(ctl->out.file, "run %s is %s already, nothing to cancel\n", id,
				state);
		else if (strcmp(state, "cancelled") == 0)
			fprintf(ctl->out.file, "run %s is cancelled\n", id);
		else
			fprintf(ctl->out.file,
				"run %s is being cancelled (%s); its end: gpt2ctl wait %s\n", id,
				state, id);
	}
}
