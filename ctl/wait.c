/* gpt2ctl wait: until runs have ended, and how they ended in the exit code. */
#include <stdlib.h>

#include "ctl/arguments.h"
#include "ctl/format.h"
#include "ctl/interrupt.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include "ctl/watch.h"

static const struct option_row options[] = {
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"give up after this time with exit code 124"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* Of two exit codes the one that tells more: what is last here. */
static int worse(int a, int b)
{
	static const int order[] = {CTL_OK, CTL_CANCELLED, CTL_GATE_FAILED, CTL_RUN_FAILED,
		CTL_NO_SUCH_RUN, CTL_TRANSPORT};
	int at_a = -1, at_b = -1;

	for (int i = 0; i < (int)(sizeof(order) / sizeof(order[0])); i++) {
		if (order[i] == a)
			at_a = i;
		if (order[i] == b)
			at_b = i;
	}
	return at_b > at_a ? b : a;
}

/* Wait for one; its result into runs. *go_on: the connection can be used for the next. */
static int wait_one(struct ctl *ctl, struct client **c, struct watch *w, json_t *runs, bool *go_on)
{
	struct ctl_error e = {0};
	int exit = watch_run(ctl, c, w, &e);

	*go_on = true;
	if (w->state[0]) {
		json_array_append_new(runs,
			json_pack("{s:I, s:s, s:s, s:s, s:i}", "id", (json_int_t)w->id, "name",
				w->name, "state", w->state, "reason", w->reason, "exit", exit));
		return exit;
	}
	*go_on = exit == CTL_NO_SUCH_RUN;
	json_array_append_new(runs,
		json_pack("{s:I, s:n, s:o, s:i}", "id", (json_int_t)w->id, "state", "error",
			format_json_text(e.message), "exit", exit));
	/* with JSON the one object printed at the end holds it */
	if (ctl->json)
		ctl_error_clear(&e);
	else
		ctl_fail(ctl, &e);
	return exit;
}

static int wait_all(
	struct ctl *ctl, struct client **c, const struct arguments *args, const int64_t *ids)
{
	const double timeout = arguments_real(args, "timeout", -1.0);
	struct watch w = {.deadline_ns = -1};
	json_t *runs = json_array(), *result;
	bool go_on = true;
	int exit = CTL_OK;

	if (timeout >= 0.0)
		w.deadline_ns = client_now_ns() + (int64_t)(timeout * 1e9);
	for (size_t i = 0; i < args->n_words && go_on; i++) {
		w.id = ids[i];
		const int one = wait_one(ctl, c, &w, runs, &go_on);

		exit = go_on ? worse(exit, one) : one;
	}
	result = json_pack("{s:o, s:i}", "runs", runs, "exit", exit);
	ctl->output->waited(ctl, result);
	json_decref(result);
	return exit;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct client *c = NULL;
	struct ctl_error e = {0};
	int64_t *ids = calloc(args->n_words, sizeof(*ids));
	int exit = CTL_OK;

	if (!ids)
		exit = ctl_error_set(&e, CTL_TRANSPORT, "out of memory");
	for (size_t i = 0; i < args->n_words && !exit; i++)
		exit = arguments_id(args->words[i], &ids[i], &e);
	if (!exit)
		exit = client_open(ctl, &c, &e);
	if (exit) {
		exit = ctl_fail(ctl, &e);
	} else {
		interrupt_begin();
		exit = wait_all(ctl, &c, args, ids);
	}
	client_close(c);
	free(ids);
	return exit;
}

const struct verb verb_wait = {
	.name = "wait",
	.args = "ID...",
	.min_args = 1,
	.max_args = -1,
	.summary = "wait until runs have ended; the exit code tells how",
	.text = "The exit code is 0 only when all of them are done; otherwise that of the worst: "
		"no such run (7), failed (4), cancelled or interrupted (6).",
	.options = options,
	.run = run,
};
