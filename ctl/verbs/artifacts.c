/* gpt2ctl artifacts: the files of a run, and copies of them. */
#include "ctl/arguments.h"
#include "ctl/results/artifact_check.h"
#include "ctl/results/artifact_copy.h"
#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"segment", 's', OPTION_INT, "N", 1, 1e9,
		"only those of segment N, counted from 1 as show does"},
	{"copy", 'c', OPTION_STRING, "DIR", 0, 0,
		"copy them to DIR, with their folders; each is checked by its hash"},
	{"force", 'f', OPTION_FLAG, NULL, 0, 0,
		"with --copy: replace files that are in DIR and differ"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* In the protocol they count from 0. */
static void count_from_one(int64_t id, int64_t segment, struct ctl_error *e)
{
	const int64_t segments = format_int(e->data, "segments", 0);

	if (segment > 0 && segments > 0)
		ctl_error_set(e, e->exit,
			"--segment %lld: run %lld has %lld segment%s, the first is 1",
			(long long)segment, (long long)id, (long long)segments,
			segments > 1 ? "s" : "");
}

/* Pages end with a segment; *result gets the files of all. */
static int fetch(
	struct client *c, int64_t id, int64_t segment, json_t **result, struct ctl_error *e)
{
	json_t *all = NULL, *page, *next = NULL;
	int64_t after = -1, left_out = 0;
	int exit = 0;

	do {
		json_t *params = json_pack("{s:I}", "id", (json_int_t)id);

		if (segment > 0)
			json_object_set_new(params, "segment", json_integer(segment - 1));
		else if (after >= 0)
			json_object_set_new(params, "after", json_integer(after));
		exit = client_request(c, METHOD_ARTIFACTS, params, CLIENT_CHECK_S, &page, e);
		if (exit) {
			count_from_one(id, segment, e);
			break;
		}
		next = json_object_get(page, "next");
		if (json_is_integer(next) && json_integer_value(next) <= after)
			exit = ctl_error_set(
				e, CTL_TRANSPORT, "artifacts: gpt2d sent no next page");
		after = json_is_integer(next) ? json_integer_value(next) : -1;
		left_out = format_sum(left_out, format_int(page, "left_out", 0));
		if (all == NULL) {
			all = page;
			continue;
		}
		json_array_extend(json_object_get(all, "files"), json_object_get(page, "files"));
		json_array_extend(
			json_object_get(all, "missing"), json_object_get(page, "missing"));
		json_decref(page);
	} while (!exit && after >= 0);
	if (exit) {
		json_decref(all);
		return exit;
	}
	json_object_del(all, "next");
	json_object_set_new(all, "left_out", json_integer(left_out));
	*result = all;
	return 0;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const char *dir = arguments_string(args, "copy", NULL);
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *result = NULL;
	bool incomplete = false, altered = false, missing;
	int64_t id;
	int exit = arguments_id(args->words[0], &id, &e);

	if (!exit && !dir && arguments_has(args, "force"))
		exit = ctl_error_set(&e, CTL_USAGE, "--force: goes with --copy");
	if (!exit && dir && !*dir)
		exit = ctl_error_set(&e, CTL_USAGE, "--copy: a folder is needed");
	if (!exit)
		exit = client_open(ctl, &c, &e);
	if (!exit)
		exit = fetch(c, id, arguments_int(args, "segment", 0), &result, &e);
	if (!exit)
		exit = artifact_check_all(c, result, &altered, &e);
	if (!exit && dir) {
		exit = artifact_copy_all(
			ctl, c, result, dir, arguments_has(args, "force"), &incomplete, &e);
		json_object_set_new(result, "copied_to", format_json_text(dir));
		incomplete |= format_int(result, "left_out", 0) > 0;
	}
	missing = json_array_size(json_object_get(result, "missing")) > 0;
	client_close(c);
	if (!exit)
		ctl->output->artifacts(ctl, result);
	json_decref(result);
	if (exit)
		return ctl_fail(ctl, &e);
	return incomplete || altered || missing ? CTL_TRANSPORT : CTL_OK;
}

const struct verb verb_artifacts = {
	.name = "artifacts",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "the files of a run, with their SHA-256; or copies of them",
	.text = "Those of its latest attempt, by segment. Files that the engine wrote and that "
		"are gone, or have something else than a file in their place, are named as "
		"missing. A run whose folder is a link is refused, with the place: no link is "
		"followed. With --copy each arrives whole or not at all; one that is there "
		"already is left as it is, one that was copied in part goes on where it "
		"stopped, and once it is there, what another copy began of its name goes. "
		"RUN_COMPLETE.txt comes last, and only where all is there that it says is "
		"whole; one that is in DIR from before is removed first where something beside "
		"or below it is copied or is not what it was written for. Links below DIR are "
		"not followed: what would go through one is left out, and the link is named. A "
		"specification or metrics of another SHA-256 than the RUN_COMPLETE.txt beside "
		"them has, any file of another size than the engine wrote, and a "
		"RUN_COMPLETE.txt of what is not done, are named as altered on standard error, "
		"also without --copy; of a copy that RUN_COMPLETE.txt is left out, and the "
		"run's as well, and what is altered replaces no other file, whatever --force "
		"says. The exit code is 1 when something is altered or missing, or not all "
		"could be copied; standard error has a line for each, with the reason, or one "
		"where no file is left. DIR is made where it is not there, the folder it is in "
		"is not.",
	.options = options,
	.run = run,
};
