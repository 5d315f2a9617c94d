#include "ctl/verbs/verb.h"

#include <stdio.h>
#include <string.h>

#include "ctl/ctl.h"
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
	&verb_logs,
	&verb_prune,
	&verb_keep,
	&verb_metrics,
	&verb_compare,
	&verb_data_prepare,
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
		"the daemon's socket; default $GPT2D_SOCKET, then "
		"$XDG_RUNTIME_DIR/gpt2d/gpt2d.sock where "
		"that exists, then /run/gpt2d/gpt2d.sock"},
	{"json", 'j', OPTION_FLAG, NULL, 0, 0,
		"print one JSON object (events of a followed run: one a line), see "
		"gpt2ctl-json(5)"},
	{"quiet", 'q', OPTION_FLAG, NULL, 0, 0,
		"print nothing but errors, and what --json or --print-id asks for"},
	{"version", 'V', OPTION_FLAG, NULL, 0, 0, "the same as the verb version"},
	{"help", 'h', OPTION_FLAG, NULL, 0, 0, "what the verb does and takes"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

const struct verb *verb_find(char *const *words, size_t n, size_t *used)
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

/* The first or the second word of a verb of two. */
static bool is_half(const struct verb *verb, const char *word)
{
	const char *second = strchr(verb->name, ' ');
	const size_t len = strlen(word);

	return second && (strcmp(second + 1, word) == 0 ||
		(len == (size_t)(second - verb->name) && strncmp(verb->name, word, len) == 0));
}

const struct verb *verb_find_half(const char *word)
{
	for (size_t i = 0; i < n_verbs; i++) {
		if (is_half(verbs[i], word))
			return verbs[i];
	}
	return NULL;
}

static const char *suggest(char *const *words, size_t n)
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

int verb_unknown(char *const *words, size_t n, struct ctl_error *e)
{
	const char *near = suggest(words, n);
	const size_t len = strlen(words[0]);
	const bool half = n > 1 && near && strncmp(near, words[0], len) == 0 && near[len] == ' ';

	return ctl_error_set(e, CTL_USAGE, "%.80s%s%.80s: no such verb%s%s%s", words[0],
		half ? " " : "", half ? words[1] : "",
		near ? "; did you mean " : "; see: gpt2ctl help", near ? near : "",
		near ? "?" : "");
}
