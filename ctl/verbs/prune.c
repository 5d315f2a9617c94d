/* gpt2ctl prune: runs that have ended go, with their files. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/verbs/ask.h"
#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/output.h"
#include "ctl/print/states.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"keep", 'k', OPTION_INT, "N", 0, 1e9, "the newest N of them stay"},
	{"older-than", 'o', OPTION_STRING, "TIME", 0, 0,
		"only those that ended so long ago: a number and s, m, h, d or w"},
	{"state", 's', OPTION_CHOICE, STATES_ENDED, 0, 0,
		"only those in this state"},
	{"dry-run", 'n', OPTION_FLAG, NULL, 0, 0, "remove nothing, print what would go"},
	{"forget", 0, OPTION_FLAG, NULL, 0, 0,
		"also runs whose folders are not there: what the daemon knows of them goes"},
	{"yes", 'y', OPTION_FLAG, NULL, 0, 0, "do not ask"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* "30d" to seconds: 0, or CTL_USAGE with e. */
static int parse_time(const char *text, int64_t *seconds, struct ctl_error *e)
{
	static const struct {
		char letter;
		int64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
	const size_t digits = strspn(text, "0123456789");
	long long n;

	errno = 0;
	n = strtoll(text, NULL, 10);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && digits > 0; i++) {
		if (text[digits] != units[i].letter || text[digits + 1] != '\0')
			continue;
		if (errno || n > PROTOCOL_OLDER_S_MAX / units[i].seconds)
			return ctl_error_set(e, CTL_USAGE,
				"--older-than: %.80s: too large, at most %" PRId64 "%c", text,
				PROTOCOL_OLDER_S_MAX / units[i].seconds, units[i].letter);
		*seconds = n * units[i].seconds;
		return 0;
	}
	return ctl_error_set(e, CTL_USAGE,
		"--older-than: %.80s: a number and a unit are needed, as 12h, 30d, 4w", text);
}

static int make_params(const struct arguments *args, json_t **out, struct ctl_error *e)
{
	const char *older = arguments_string(args, "older-than", NULL);
	const char *state = arguments_string(args, "state", NULL);
	int64_t seconds = 0;
	json_t *params;

	if (!older && !state && !arguments_has(args, "keep"))
		return ctl_error_set(e, CTL_USAGE,
			"prune: which? --keep N, --older-than TIME or --state STATE is needed "
			"(--keep 0: all that have ended)");
	if (older && parse_time(older, &seconds, e) != 0)
		return e->exit;
	params = json_object();
	if (older)
		json_object_set_new(params, "older_than_s", json_integer(seconds));
	if (state)
		json_object_set_new(params, "state", format_json_text(state));
	if (arguments_has(args, "keep"))
		json_object_set_new(params, "keep", json_integer(arguments_int(args, "keep", 0)));
	if (arguments_has(args, "forget"))
		json_object_set_new(params, "forget", json_true());
	*out = params;
	return 0;
}

static json_t *empty_result(void)
{
	return json_pack(
		"{s:[], s:[], s:{s:i, s:i}}", "runs", "left", "kept", "marked", 0, "newest", 0);
}

/* A page's counts to those of the pages before. */
static void add_kept(json_t *kept, const json_t *of_page)
{
	static const char *const reasons[] = {"marked", "newest"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		json_object_set_new(kept, reasons[i],
			json_integer(format_sum(format_int(kept, reasons[i], 0),
				format_int(of_page, reasons[i], 0))));
}

/* All pages; on a terminal how far it is. *result gets what was done also when it failed. */
static int fetch(struct ctl *ctl, struct client *c, const json_t *params, bool dry, json_t *result,
	struct ctl_error *e)
{
	const bool tell = ctl->err.tty && !ctl->json && !dry;
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
		bytes = format_sum(bytes, format_int(page, "bytes", 0));
		json_array_extend(runs, json_object_get(page, "runs"));
		json_array_extend(json_object_get(result, "left"), json_object_get(page, "left"));
		add_kept(json_object_get(result, "kept"), json_object_get(page, "kept"));
		json_decref(page);
		if (tell)
			fprintf(ctl->err.file, "\r\033[K%zu removed", json_array_size(runs));
	} while (!exit && after > 0);
	if (tell)
		fputs("\r\033[K", ctl->err.file);
	json_object_set_new(result, "bytes", json_integer(bytes));
	json_object_set_new(result, "dry_run", json_boolean(dry));
	return exit;
}

/* Show what would go, and ask: 0 and *yes, or an exit code with e. */
static int confirm(
	struct ctl *ctl, struct client *c, const json_t *params, bool *yes, struct ctl_error *e)
{
	json_t *result = empty_result();
	char size[FORMAT_BYTES];
	int exit = fetch(ctl, c, params, true, result, e);
	const size_t n = json_array_size(json_object_get(result, "runs"));

	format_size(format_int(result, "bytes", 0), size);
	json_decref(result);
	*yes = n == 0; /* nothing is lost, and that there is nothing is said */
	if (exit || n == 0)
		return exit;
	if (ctl->json || !ctl->err.tty || !isatty(STDIN_FILENO))
		return ctl_error_set(e, CTL_USAGE,
			"prune: %zu run%s, %s would be removed; give --yes to do it, --dry-run to "
			"see them",
			n, n == 1 ? "" : "s", size);
	*yes = ask_yes(ctl, "remove %zu run%s, %s, for good?", n, n == 1 ? "" : "s", size);
	if (!*yes)
		return ctl_error_set(e, CTL_DECLINED, "nothing was removed");
	return 0;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const bool dry = arguments_has(args, "dry-run");
	json_t *params = NULL, *result = empty_result();
	bool yes = dry || arguments_has(args, "yes"), stays = false;
	struct client *c = NULL;
	struct ctl_error e = {0};
	int exit = make_params(args, &params, &e);

	if (!exit)
		exit = client_open(ctl, &c, &e);
	if (!exit && !yes)
		exit = confirm(ctl, c, params, &yes, &e);
	if (!exit) {
		exit = fetch(ctl, c, params, dry, result, &e);
		if (!exit || (json_array_size(json_object_get(result, "runs")) > 0 && !ctl->json))
			ctl->output->pruned(ctl, result);
		if (!exit && !dry)
			output_tell_done(ctl, "prune");
		if (!dry && json_array_size(json_object_get(result, "left")) > 0)
			stays = true;
	}
	client_close(c);
	json_decref(params);
	json_decref(result);
	if (exit)
		return ctl_fail(ctl, &e);
	return stays ? CTL_TRANSPORT : CTL_OK;
}

const struct verb verb_prune = {
	.name = "prune",
	.args = "",
	.summary = "remove runs that have ended, with their files",
	.text = "Those to which all that is given applies: one's own, or as an administrator "
		"everybody's. Never one that waits or runs, nor one that was marked with keep: how "
		"many of those stay, and how many as the newest of --keep, is printed too. "
		"One whose folder is not there stays as well, and is named on standard error, "
		"with exit code 1 (0 with --dry-run): it may be on a disk that is not mounted, and "
		"what the daemon knows is all that leads to it; --forget is for those that are "
		"gone for good. It asks first, where there is a terminal; elsewhere --yes is "
		"needed. A removal that was begun is finished, by the next prune of that run or "
		"the next daemon if need be; until then it is shown as before, its files missing.",
	.options = options,
	.run = run,
};
