#include "ctl/verb_table.h"

#include <stdio.h>
#include <string.h>

#include "proto/suggest.h"

const struct verb *const verbs[] = {
	&verb_submit,
	&verb_status,
	&verb_top,
	&verb_list,
	&verb_show,
	&verb_follow,
	&verb_wait,
	&verb_cancel,
	&verb_priority,
	&verb_rerun,
	&verb_artifacts,
	&verb_export,
	&verb_generate,
	&verb_logs,
	&verb_prune,
	&verb_keep,
	&verb_metrics,
	&verb_topo,
	&verb_compare,
	&verb_judge,
	&verb_tune,
	&verb_plan,
	&verb_data_prepare,
	&verb_data_show,
	&verb_data_verify,
	&verb_import_deepspeed,
	&verb_drain,
	&verb_resume,
	&verb_release,
	&verb_warm,
	&verb_shutdown,
	&verb_completion,
	&verb_version,
	&verb_help,
};
const size_t n_verbs = sizeof(verbs) / sizeof(verbs[0]);

const struct option_row global_options[] = {
	{"socket", 0, OPTION_STRING, "PATH", 0, 0,
		"gpt2d's socket (default: $GPT2D_SOCKET; else $XDG_RUNTIME_DIR/gpt2d/gpt2d.sock "
		"if it exists; else /run/gpt2d/gpt2d.sock)"},
	{"json", 'j', OPTION_FLAG, NULL, 0, 0,
		"print one JSON object (for events of a followed run, one per line), see "
		"gpt2ctl-json(5)"},
	{"quiet", 'q', OPTION_FLAG, NULL, 0, 0,
		"print only errors and the output of --json and --print-id"},
	{"version", 'V', OPTION_FLAG, NULL, 0, 0, "the same as the verb version"},
	{"help", 'h', OPTION_FLAG, NULL, 0, 0, "print what the verb does and its options"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

const struct verb *verb_table_find(const char *const *words, size_t n, size_t *used)
{
	char two[64];

	if (n == 0)
		return NULL;
	snprintf(two, sizeof(two), "%.30s %.30s", words[0], n > 1 ? words[1] : "");
	for (size_t i = 0; i < n_verbs; i++) {
		if (strcmp(verbs[i]->name, words[0]) == 0) {
			*used = 1;
			return verbs[i];
		}
		if (n > 1 && strcmp(verbs[i]->name, two) == 0) {
			*used = 2;
			return verbs[i];
		}
	}
	return NULL;
}

bool verb_table_begins(const struct verb *verb, const char *word)
{
	const size_t len = strlen(word);

	return strncmp(verb->name, word, len) == 0 && verb->name[len] == ' ';
}

/* The first or the second word of a verb of two. */
static bool is_half(const struct verb *verb, const char *word)
{
	const char *second = strchr(verb->name, ' ');

	return second && (strcmp(second + 1, word) == 0 || verb_table_begins(verb, word));
}

const struct verb *verb_table_find_half(const char *word)
{
	for (size_t i = 0; i < n_verbs; i++) {
		if (is_half(verbs[i], word))
			return verbs[i];
	}
	return NULL;
}

static const char *suggest(const char *const *words, size_t n)
{
	const char *names[64];
	char two[64];
	const char *near;

	if (n == 0 || !*words[0])
		return NULL;
	for (size_t i = 0; i < n_verbs && i < 64; i++) {
		if (is_half(verbs[i], words[0]))
			return verbs[i]->name;
		names[i] = verbs[i]->name;
	}
	near = suggest_nearest(words[0], names, n_verbs);
	if (!near && n > 1) {
		snprintf(two, sizeof(two), "%.30s %.30s", words[0], words[1]);
		near = suggest_nearest(two, names, n_verbs);
	}
	return near;
}

int verb_table_unknown(const char *const *words, size_t n, struct ctl_error *e)
{
	const char *near = suggest(words, n);
	const size_t len = strlen(words[0]);
	const bool half = n > 1 && near && strncmp(near, words[0], len) == 0 && near[len] == ' ';

	return ctl_error_set(e, CTL_USAGE, "%.80s%s%.80s: no such verb%s%s%s", words[0],
		half ? " " : "", half ? words[1] : "",
		near ? "; did you mean " : "; see: gpt2ctl help", near ? near : "",
		near ? "?" : "");
}

/* ---- command lines ---- */

static int check_count(const struct verb *v, const struct options *args, struct ctl_error *e)
{
	if (args->n_words < (size_t)v->min_args)
		return ctl_error_set(e, CTL_USAGE,
			"%s: missing argument (expected %s, found %zu)\n"
			"see: gpt2ctl help %s",
			v->name, v->args, args->n_words, v->name);
	if (v->max_args >= 0 && args->n_words > (size_t)v->max_args)
		return ctl_error_set(e, CTL_USAGE,
			"%s: %s: unexpected argument\n"
			"see: gpt2ctl help %s",
			v->name, args->words[v->max_args], v->name);
	return 0;
}

/* An error before --json is also printed in the form of --json. */
static void find_json(struct options *args, int argc, char **argv)
{
	char error[8];

	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0 && !options_has(args, "json"); i++)
		if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0)
			options_read(args, 1, &argv[i], 0, false, error, sizeof(error));
}

/* The first word of a verb of two, and --help. */
static bool asks_for_half(int argc, char **argv, int at, struct options *args)
{
	char error[128];

	return verb_table_find_half(argv[at]) &&
		options_read(args, argc, argv, at, false, error, sizeof(error)) >= 0 &&
		options_has(args, "help") && args->n_words == 1;
}

/* The verb is the first word that is neither an option nor the value of one. */
static int parse(
	int argc, char **argv, const struct verb **verb, struct options *args, struct ctl_error *e)
{
	int at = options_read(args, argc, argv, 0, true, e->message, sizeof(e->message));
	const size_t n = at >= 0 && at < argc ? (size_t)(argc - at) : 0;
	char help[64];
	size_t used;

	if (at < 0)
		return e->exit = CTL_USAGE;
	if (n == 0)
		return 0;
	*verb = verb_table_find((const char *const *)argv + at, n, &used);
	if (!*verb && asks_for_half(argc, argv, at, args))
		return 0;
	if (!*verb)
		return verb_table_unknown((const char *const *)argv + at, n, e);
	args->tables[1] = (*verb)->options;
	snprintf(help, sizeof(help), "gpt2ctl help %s", (*verb)->name);
	args->help = help;
	at = options_read(args, argc, argv, at + (int)used, false, e->message, sizeof(e->message));
	args->help = "gpt2ctl help";
	if (at < 0)
		return e->exit = CTL_USAGE;
	if (options_has(args, "help") || options_has(args, "version"))
		return 0;
	return check_count(*verb, args, e);
}

int verb_table_parse(
	int argc, char **argv, const struct verb **verb, struct options *args, struct ctl_error *e)
{
	int exit;

	*verb = NULL;
	*args = (struct options){.tables = {global_options}, .help = "gpt2ctl help"};
	exit = parse(argc, argv, verb, args, e);
	if (exit)
		find_json(args, argc, argv);
	return exit;
}
