/* gpt2ctl prune: remove runs that have ended, with their files. */
#include <unistd.h>

#include "ctl/print/members.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/text.h"

static const struct option_row options[] = {
	{"keep", 'k', OPTION_INT, "N", 0, 1e9, "keep the newest N of them"},
	{"older-than", 'o', OPTION_STRING, "TIME", 0, 0,
		"only runs that ended so long ago: a number and s, m, h, d or w"},
	{"state", 's', OPTION_CHOICE, STATES_ENDED, 0, 0, "only runs in this state"},
	{"dry-run", 'n', OPTION_FLAG, NULL, 0, 0, "remove nothing; print what would be removed"},
	{"forget", 0, OPTION_FLAG, NULL, 0, 0,
		"also remove the records of runs whose directories do not exist"},
	{"yes", 'y', OPTION_FLAG, NULL, 0, 0, "do not ask"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_left(const struct term *t, const json_t *left)
{
	const json_t *run;
	size_t i;

	json_array_foreach(left, i, run)
		members_print(t->file, run,
			"gpt2ctl: run {id} {name|} is not removed: {dir|its directory} does not "
			"exist (is a disk not mounted?)\nremove its record with --forget\n");
}

static void print_kept(const struct term *t, const json_t *kept)
{
	const long long marked = format_int(kept, "marked", 0);
	const long long newest = format_int(kept, "newest", 0);
	const bool one = marked + newest == 1;

	if (marked + newest == 0)
		return;
	fprintf(t->file, "%lld %s: ", marked + newest, one ? "run stays" : "runs stay");
	if (marked > 0)
		fprintf(t->file, "%lld protected by gpt2ctl keep%s", marked,
			newest > 0 ? ", " : "");
	if (newest > 0)
		fprintf(t->file, "%lld the newest (--keep)", newest);
	fputc('\n', t->file);
}

static void print_removed(const struct term *t, const json_t *result)
{
	const json_t *runs = json_object_get(result, "runs");
	const bool dry = json_is_true(json_object_get(result, "dry_run"));
	const size_t n = json_array_size(runs);
	char size[FORMAT_BYTES];

	if (n == 0) {
		fputs("no run to remove\n", t->file);
		return;
	}
	if (dry)
		members_table(t, "", runs, ">ID\tSTATE\tENDED\t>SIZE\tNAME",
			"{id}\t{state}\t{ended_at:time|-}\t{bytes:size}\t{name|}");
	fprintf(t->file, "%zu run%s %s, %s %s\n", n, n == 1 ? "" : "s",
		dry ? "would be removed" : "removed",
		format_size(format_int(result, "bytes", 0), size), dry ? "in total" : "freed");
}

static void print_pruned(struct output *o, const json_t *result)
{
	print_left(&o->err, json_object_get(result, "left"));
	print_removed(&o->out, result);
	print_kept(&o->out, json_object_get(result, "kept"));
}

static int make_params(const struct options *args, json_t **out, struct ctl_error *e)
{
	const char *older = options_string(args, "older-than", NULL);
	const char *state = options_string(args, "state", NULL);
	int64_t seconds = 0;
	json_t *params;

	if (!older && !state && !options_has(args, "keep"))
		return ctl_error_set(e, CTL_USAGE,
			"prune: missing --keep N, --older-than TIME or --state STATE (--keep 0: "
			"all runs that have ended)");
	if (older && verb_parse_time("--older-than", older, &seconds, e) != 0)
		return e->exit;
	params = json_object();
	if (older)
		json_object_set_new(params, "older_than_s", json_integer(seconds));
	if (state)
		json_object_set_new(params, "state", text_json(state));
	if (options_has(args, "keep"))
		json_object_set_new(params, "keep", json_integer(options_int(args, "keep", 0)));
	if (options_has(args, "forget"))
		json_object_set_new(params, "forget", json_true());
	*out = params;
	return 0;
}

static json_t *empty_result(void)
{
	return json_pack(
		"{s:[], s:[], s:{s:i, s:i}}", "runs", "left", "kept", "marked", 0, "newest", 0);
}

/* Adds a page's counts to those of earlier pages. */
static void add_kept(json_t *kept, const json_t *of_page)
{
	static const char *const reasons[] = {"marked", "newest"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		json_object_set_new(kept, reasons[i],
			json_integer(format_int(kept, reasons[i], 0) +
				format_int(of_page, reasons[i], 0)));
}

/* All pages; prints progress on a terminal. If it fails, result has the part that was done. */
static int fetch(struct ctl *ctl, struct client *c, const json_t *params, bool dry, json_t *result,
	struct ctl_error *e)
{
	const bool shows_progress = ctl->output.err.tty && !ctl->output.json && !dry;
	json_t *runs = json_object_get(result, "runs"), *page, *next;
	int64_t after = 0, bytes = 0;
	int exit;

	do {
		json_t *mine = json_copy((json_t *)params);

		json_object_set_new(mine, "dry_run", json_boolean(dry));
		json_object_set_new(mine, "after", json_integer(after));
		exit = client_request(c, METHOD_PRUNE, mine, CLIENT_CHECK_S, &page, e);
		if (exit)
			break;
		next = json_object_get(page, "next");
		if (json_is_integer(next) && json_integer_value(next) <= after)
			exit = ctl_error_set(e, CTL_TRANSPORT, "prune: gpt2d sent no next page");
		after = json_is_integer(next) ? json_integer_value(next) : 0;
		bytes += format_int(page, "bytes", 0);
		json_array_extend(runs, json_object_get(page, "runs"));
		json_array_extend(json_object_get(result, "left"), json_object_get(page, "left"));
		add_kept(json_object_get(result, "kept"), json_object_get(page, "kept"));
		json_decref(page);
		if (shows_progress)
			fprintf(ctl->output.err.file, "\r\033[K%zu removed", json_array_size(runs));
	} while (!exit && after > 0);
	if (shows_progress)
		fputs("\r\033[K", ctl->output.err.file);
	json_object_set_new(result, "bytes", json_integer(bytes));
	json_object_set_new(result, "dry_run", json_boolean(dry));
	return exit;
}

/* Ask whether to remove what a dry run finds: 0 and *yes, or an exit status with e. */
static int confirm(
	struct ctl *ctl, struct client *c, const json_t *params, bool *yes, struct ctl_error *e)
{
	json_t *result = empty_result();
	char size[FORMAT_BYTES];
	int exit = fetch(ctl, c, params, true, result, e);
	const size_t n = json_array_size(json_object_get(result, "runs"));

	format_size(format_int(result, "bytes", 0), size);
	json_decref(result);
	*yes = n == 0; /* nothing to ask; the verb prints that there is nothing */
	if (exit || n == 0)
		return exit;
	if (ctl->output.json || !ctl->output.err.tty || !isatty(STDIN_FILENO))
		return ctl_error_set(e, CTL_USAGE,
			"prune: %zu run%s, %s would be removed; confirm with --yes, list them with "
			"--dry-run",
			n, n == 1 ? "" : "s", size);
	*yes = verb_confirm(ctl, "remove %zu run%s, %s, permanently?", n, n == 1 ? "" : "s", size);
	if (!*yes)
		return ctl_error_set(e, CTL_DECLINED, "nothing was removed");
	return 0;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const bool dry = options_has(args, "dry-run");
	json_t *params = NULL, *result = empty_result();
	bool yes = dry || options_has(args, "yes"), stays = false;
	struct client *c = NULL;
	int exit = make_params(args, &params, e);

	if (!exit)
		exit = client_open(&ctl->link, &c, e);
	if (!exit && !yes)
		exit = confirm(ctl, c, params, &yes, e);
	if (!exit) {
		exit = fetch(ctl, c, params, dry, result, e);
		if (!exit ||
			(json_array_size(json_object_get(result, "runs")) > 0 && !ctl->output.json))
			output_print(&ctl->output, "prune", result, print_pruned);
		if (!exit && !dry)
			output_confirm(&ctl->output, "prune");
		if (!dry && json_array_size(json_object_get(result, "left")) > 0)
			stays = true;
	}
	client_close(c);
	json_decref(params);
	json_decref(result);
	if (exit)
		return e->exit;
	return stays ? CTL_TRANSPORT : CTL_OK;
}

const struct verb verb_prune = {
	.name = "prune",
	.args = "",
	.summary = "remove runs that have ended, with their files",
	.text = "Removes the runs to which all given options apply: your own, or as an admin "
		"everybody's. It never removes a run that is queued or in progress, one that such "
		"a run resumes from, nor one that is protected by keep; it prints how many of "
		"those stay, and how many stay as the newest of --keep. A run whose directory "
		"does not exist stays too, because its disk may not be mounted; standard error "
		"names it, and the exit status is 1 (0 with --dry-run). --forget removes its "
		"record. prune asks before it removes anything on a terminal; elsewhere it "
		"requires --yes. The next prune, or the next start of gpt2d, finishes a removal "
		"that was interrupted; until then the run is listed, and its files are missing.",
	.options = options,
	.run = run,
};
