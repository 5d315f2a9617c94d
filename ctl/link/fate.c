#include "ctl/link/fate.h"

#include <string.h>

#include "ctl/print/format.h"

#define WHETHER_IT_RUNS "\nwhether gpt2d runs: gpt2ctl status"

struct fate_row {
	const char *method;
	const char *what; /* is asked of the run, or at all */
	const char *look; /* the verb that tells */
	bool of_run;
};

static const struct fate_row rows[] = {
	{METHOD_CANCEL, "is cancelled", "show", true},
	{METHOD_KEEP, "is kept", "show", true},
	{METHOD_PRIORITY, "has another priority", "show", true},
	{METHOD_PRUNE, "runs are removed", "list", false},
	{METHOD_DRAIN, "gpt2d is drained", "status", false},
	{METHOD_RESUME, "gpt2d is drained", "status", false},
	{METHOD_RELEASE, "the engines are released", "status", false},
	{METHOD_WARM, "the engines are released", "status", false},
	{METHOD_SHUTDOWN, "gpt2d was to end", "status", false},
};

/* One who follows looks for gpt2d again; of a submission there is more to say. */
static const char *const known[] = {METHOD_FOLLOW, METHOD_SUBMIT};

void fate_of(const char *method, const json_t *params, struct fate *out)
{
	const bool dry = json_is_true(json_object_get(params, "dry_run"));

	*out = (struct fate){.id = format_int(params, "id", 0)};
	out->submits = strcmp(method, METHOD_SUBMIT) == 0 || strcmp(method, METHOD_DRY_RUN) == 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!dry && strcmp(rows[i].method, method) == 0)
			out->row = &rows[i];
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		out->known |= strcmp(known[i], method) == 0;
}

bool fate_changes(const struct fate *f)
{
	return f->row != NULL;
}

int fate_untaken(const struct fate *f, bool before, struct ctl_error *e)
{
	const char *not_done = "";

	if (f->submits)
		not_done = "; nothing is queued";
	else if (f->known)
		return e->exit;
	else if (f->row)
		not_done = before ? "; nothing more is changed" : "; nothing is changed";
	/* one that stops takes no more, and one that was killed looks the same from here */
	return ctl_error_set(e, CTL_NOT_NOW,
		"the connection was lost before gpt2d had all of it: gpt2d is stopping, or has "
		"ended%s" WHETHER_IT_RUNS,
		not_done);
}

/* A line behind what e says: start, what was asked, middle, and the verb that tells. */
static int add_look(
	const struct fate *f, const char *start, const char *middle, struct ctl_error *e)
{
	const struct fate_row *row = f->row;
	char why[sizeof(e->message)], run[40] = "", id[24] = "";

	memcpy(why, e->message, sizeof(why));
	if (row->of_run) {
		snprintf(run, sizeof(run), "run %lld ", (long long)f->id);
		snprintf(id, sizeof(id), " %lld", (long long)f->id);
	}
	return ctl_error_set(e, e->exit, "%.700s\n%swhether %s%s%s: gpt2ctl %s%s", why, start, run,
		row->what, middle, row->look, id);
}

int fate_unknown(const struct fate *f, struct ctl_error *e)
{
	char why[sizeof(e->message)];

	if (f->known)
		return e->exit;
	if (f->row)
		return add_look(f, "", " is not known", e);
	memcpy(why, e->message, sizeof(why));
	return ctl_error_set(e, e->exit, "%.700s" WHETHER_IT_RUNS, why);
}

int fate_late(const struct fate *f, bool unsent, bool before, struct ctl_error *e)
{
	const char *not_done = before ? "nothing more is changed" : "nothing is changed";
	char why[sizeof(e->message)];

	if (f->row && !unsent)
		return add_look(f, "it may still do it; ", "", e);
	if (!unsent || (!f->row && !f->submits))
		return e->exit;
	memcpy(why, e->message, sizeof(why));
	return ctl_error_set(e, e->exit, "%.700s\nit has not all of what was asked: %s", why,
		f->submits ? "nothing is queued" : not_done);
}
