/* gpt2ctl show: all that is known of a run. */
#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/print/output.h"
#include "ctl/verbs/show.h"
#include "ctl/verbs/verb.h"

/* Segments come in pages; the first reply gets those of the others. */
static int add_pages(
	const struct ctl *ctl, struct client *c, int64_t id, json_t *reply, struct ctl_error *e)
{
	json_t *segments = json_object_get(reply, "segments");
	json_t *next = json_object_get(reply, "next"), *page = NULL;
	int exit = 0;

	while (!exit && json_is_integer(next)) {
		const json_int_t after = json_integer_value(next);
		json_t *params = json_pack("{s:I, s:I}", "id", (json_int_t)id, "after", after);

		json_decref(page);
		page = NULL;
		exit = client_request(c, METHOD_SHOW, params, CLIENT_REPLY_S, &page, e);
		if (exit)
			break;
		next = json_object_get(page, "next");
		if (json_array_extend(segments, json_object_get(page, "segments")) != 0 ||
			(json_is_integer(next) && json_integer_value(next) <= after))
			exit = ctl_error_set(
				e, CTL_TRANSPORT, "%s: gpt2d sent no next page", ctl->verb);
	}
	json_decref(page);
	json_object_del(reply, "next");
	return exit;
}

int show_fetch(struct ctl *ctl, const char *word, json_t **reply, struct ctl_error *e)
{
	struct client *c = NULL;
	json_t *first = NULL;
	int64_t id;
	int exit = arguments_id(word, &id, e);

	if (!exit)
		exit = client_open(ctl, &c, e);
	if (!exit)
		exit = client_request(c, METHOD_SHOW, json_pack("{s:I}", "id", (json_int_t)id),
			CLIENT_REPLY_S, &first, e);
	if (!exit)
		exit = add_pages(ctl, c, id, first, e);
	client_close(c);
	if (exit)
		json_decref(first);
	else
		*reply = first;
	return exit;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};
	json_t *reply;

	if (show_fetch(ctl, args->words[0], &reply, &e) != 0)
		return ctl_fail(ctl, &e);
	ctl->output->show(ctl, reply);
	json_decref(reply);
	return CTL_OK;
}

const struct verb verb_show = {
	.name = "show",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "a run: state and reason, times, arms, segments, artifacts",
	.text = "Of a segment that is done it has the training loss of the last step, and the "
		"validation loss (VAL LOSS) where the spec has work.validation_steps.",
	.run = run,
};
